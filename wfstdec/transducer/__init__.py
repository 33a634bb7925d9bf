"""RNN-T and TDT: searches on torch tensors, with models of `lm/` and `boost/`."""
