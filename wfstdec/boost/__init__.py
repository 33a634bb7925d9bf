"""Boosting of words and phrases, per utterance, shared by both decoders."""
