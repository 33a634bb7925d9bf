"""Forced alignment: times of the words and tokens of a known text."""
