"""Text files and their parsed objects: tokens, lexica, ARPA models."""
