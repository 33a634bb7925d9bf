"""Readable text: punctuation, capitals and written numbers on decoded words."""
