"""Parts that searches on a GPU share; nothing in here knows a search.

device        the protocol of a device: memory, copies, launches
cupy_device   the current NVIDIA GPU as one, by CuPy
budget        the memory that all work on a device takes, and who has it
program       the kernels of a search as one source text; `kernels/` has the shared part
compiling     that text as machine code, by NVRTC, kept on disk
records       C structs of the kernels as NumPy types, and checks that both agree
batch         utterances side by side: launches, and room for those that stopped
scratch       memory of the blocks of a launch, kept between launches
parts         batches cut to the memory, and what is left where one fails
launch        task and records to a kernel and back, in one packet
logprobs      log-probs where kernels can read them
cuda_arrays   arrays on the GPU (torch, CuPy, DLPack) as such log-probs, without a copy
boosts        compiled phrases and word bonuses where kernels can read them
"""
