"""Greedy search: no beam, one token at a time."""
