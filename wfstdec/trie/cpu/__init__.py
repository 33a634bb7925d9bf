"""The search on a CPU: numba kernels and what is laid out for them."""
