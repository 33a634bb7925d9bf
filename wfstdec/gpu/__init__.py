"""Common parts of GPU searches, independent of any one of them.

device        memory of a device: budget, copies, launches, scratch of blocks
cupy_device   the current NVIDIA GPU by CuPy
compiling     the kernels of a search as one text, compiled by NVRTC, cached on disk
records       C structs of the kernels as NumPy types, and checks that both agree
batch         batches of utterances: launches, and growth of arrays
backend       batches split to the memory, and results after a failure
logprobs      log-probs for kernels
cuda_arrays   arrays on the GPU (torch, CuPy, DLPack) as such log-probs, without a copy
boosts        compiled phrases and word bonuses for kernels
"""
