"""Validation of inputs: recognition of wrong kinds of data, with the remedy."""
