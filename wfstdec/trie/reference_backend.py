"""The trie search in plain Python as a backend: `reference.py` and its lattices."""

from __future__ import annotations

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.reference import ReferenceSearch
from wfstdec.trie.reference_lattice import RecordingSearch
from wfstdec.trie.search_space import SearchSpace


class ReferenceBackend:
    """A space, as it is."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space

    def start(self, options: TrieOptions, boosts: CompiledBoosts) -> ReferenceSearch:
        """Begin an utterance."""
        return ReferenceSearch(self.space, options, boosts)

    def start_recording(
        self, options: TrieOptions, boosts: CompiledBoosts
    ) -> RecordingSearch:
        """Begin an utterance of which a lattice is wanted."""
        return RecordingSearch(self.space, options, boosts)
