"""Back-off automata: n-gram language models, and the array form of boosts."""
