"""The search on a GPU: CUDA kernels and the batches that go through them."""
