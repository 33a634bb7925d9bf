"""The WFST search on a GPU: its kernels, and the host code that feeds them.

backend        the search on a device, of CUDA by CuPy; batches fit its memory
batch          utterances side by side, sessions, and batches that record lattices
layout         records that host and kernels share, the `Program`, sizes of memory, the
               graph and OOV words on the device
"""
