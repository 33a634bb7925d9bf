"""Alignment of a known text: when its words and tokens were said."""
