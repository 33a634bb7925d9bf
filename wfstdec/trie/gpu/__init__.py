"""Trie search on a GPU: kernels and their host code.

backend        the search on a device, batches cut to its memory; unsupported options
batch          batches of utterances, and sessions; the host ends both
layout         records shared with the kernels, `Program`, the search space on a device
"""
