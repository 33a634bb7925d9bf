"""Trie search on a CPU: numba kernels and their memory."""
