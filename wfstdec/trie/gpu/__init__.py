"""The trie search on a GPU: its kernels, and the host code that feeds them.

backend        the search on a device, batches cut to its memory; unsupported options
batch          utterances in parallel, and sessions: the host ends them
layout         records shared with the kernels, `Program`, the search space on a device
"""
