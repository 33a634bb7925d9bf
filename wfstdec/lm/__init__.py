"""Automata with back-off: n-gram language models, and the form boosts share."""
