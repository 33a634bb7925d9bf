"""Decoding without a graph: search over a lexicon trie, or over tokens."""
