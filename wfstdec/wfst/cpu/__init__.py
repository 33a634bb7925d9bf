"""Search on a CPU: numba kernels and their data."""
