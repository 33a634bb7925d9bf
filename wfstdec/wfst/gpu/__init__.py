"""The WFST search on a GPU: its kernels, and the host code that feeds them.

backend        the search on a device, batches cut to its memory
cuda           the same on an NVIDIA GPU
batch          utterances side by side: launches, and room for those that stopped
added          the words that utterances add, on the device
device_graph   the graph on the device, with what all its batches share
memory         scratch of the blocks that run, and sizes of all that is taken
layout         the records that host and kernels share, and the `Program`
"""
