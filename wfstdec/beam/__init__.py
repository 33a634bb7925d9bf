"""Decoding without a graph: a beam over a trie of the lexicon, or over tokens."""
