"""Readable text: written numbers, punctuation and capitals for recognised words."""
