"""Decoding without a graph: a search over the trie of a lexicon, or over tokens."""
