"""Beam search without a graph: over the trie of a lexicon, or over tokens."""
