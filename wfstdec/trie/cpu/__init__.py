"""The trie search on a CPU: numba kernels, and the memory that they work on."""
