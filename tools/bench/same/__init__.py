"""Two checkouts of the project side by side: the same results, the same speed?

`results` and `speed` are started as modules, and start the workers as scripts on
another checkout. A worker imports `wfstdec` of that checkout, and what it needs of this
folder by bare names: it must not import `tools`, which may be that checkout's own.
"""
