"""The trie search in plain Python as a backend: `reference.py` and its lattices."""

from __future__ import annotations

from trie_reference import ReferenceSearch
from trie_reference_lattice import RecordingSearch

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.threads import HostBackend
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace


class ReferenceBackend(HostBackend):
    def __init__(self, space: SearchSpace) -> None:
        super().__init__(space.num_tokens, space)
        self.space = space

    def start(
        self, options: TrieOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> ReferenceSearch:
        kind = RecordingSearch if record else ReferenceSearch
        return kind(self.space, options, boosts)
