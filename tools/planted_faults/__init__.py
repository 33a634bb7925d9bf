"""Faults that are planted to see whether the tests find them."""
