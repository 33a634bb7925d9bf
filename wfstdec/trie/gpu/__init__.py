"""The trie search on a GPU: its kernels, and the host code that feeds them.

backend        the search on a device, batches cut to its memory; what it does not do
cuda           the same on an NVIDIA GPU
batch          utterances side by side, and sessions: the host ends them
device_space   lexicon and language model on a device, and what all batches share
layout         the records that host and kernels share, and the `Program`
"""
