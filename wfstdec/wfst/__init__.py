"""The token-passing beam decoder on a PackedGraph."""
