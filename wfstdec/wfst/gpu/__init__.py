"""The WFST search on a GPU: its kernels, and the host code that feeds them.

backend        the search on a device, batches cut to its memory
cuda           the same on an NVIDIA GPU
batch          utterances side by side: what they begin with, and their paths
sessions       utterances that come in chunks, in joint launches
recording      batches that note arcs for lattices
added          the words that utterances add, on the device
device_graph   the graph on the device, with what all its batches share
memory         sizes of all that is taken
layout         the records that host and kernels share, and the `Program`
"""
