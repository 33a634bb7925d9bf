"""Parts that searches on a GPU share; nothing in here knows a search.

device        memory of a device: budget, copies, launches, scratch of blocks
cupy_device   the current NVIDIA GPU as one, by CuPy
compiling     the kernels of a search as one text, compiled by NVRTC, kept on disk
records       C structs of the kernels as NumPy types, and checks that both agree
batch         utterances side by side: launches, and room for those that stopped
backend       batches cut to the memory, and what is left where one fails
logprobs      log-probs where kernels can read them
cuda_arrays   arrays on the GPU (torch, CuPy, DLPack) as such log-probs, without a copy
boosts        compiled phrases and word bonuses where kernels can read them
"""
