"""Marks on labels, for kernels that note arcs of lattices without a graph."""

from __future__ import annotations

from wfstdec.graph.arcs import CARRIES_WORD, REPEAT

REPEATED, WORD = REPEAT, CARRIES_WORD
"""Flags of ilabels: the token goes on; `olabel` is a word."""
OPEN = 0xFFFFFFFF
"""Stands for the label of open words where that is not known yet."""
TRIE, TOKENS = "trie", "tokens"
"""In the place of a topology: words stand where they end; words are tokens."""
