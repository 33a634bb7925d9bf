"""Boosting of words and phrases, per utterance, shared by all decoders."""
