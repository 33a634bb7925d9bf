"""The searches on a CPU: the model in torch, all between in numba."""
