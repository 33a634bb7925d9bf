"""Audio to words: a model's log-probs, a decoder's words, recordings of any length."""
