"""Paths that any search found: tokens with frames, words with spans, hypotheses."""
