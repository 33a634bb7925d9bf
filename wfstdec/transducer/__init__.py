"""RNN-T and TDT: searches on torch tensors, over the models of `lm/` and `boost/`."""
