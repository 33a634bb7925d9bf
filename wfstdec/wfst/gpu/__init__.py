"""WFST search on a GPU: kernels and their host code.

backend        the search on a CUDA device by CuPy; batches fit its memory
batch          batches of utterances, sessions, and batches that record lattices
layout         records shared by host and kernels, the `Program`, sizes of memory, the
               graph and OOV words on the device
"""
