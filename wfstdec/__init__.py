"""wfstdec: WFST-centric decoding of CTC speech models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfstdec.boost.boosts import Boosts as Boosts
    from wfstdec.boost.phrases import PhraseCompiler as PhraseCompiler
    from wfstdec.boost.phrases import PhraseOptions as PhraseOptions
    from wfstdec.errors import WfstdecError as WfstdecError
    from wfstdec.fst.tlg import build_graph as build_graph
    from wfstdec.graph.packed import PackedGraph as PackedGraph
    from wfstdec.graph.packed import load_graph as load_graph
    from wfstdec.greedy.decoder import GreedyDecoder as GreedyDecoder
    from wfstdec.greedy.options import GreedyOptions as GreedyOptions
    from wfstdec.lm.ngram import NgramLM as NgramLM
    from wfstdec.lm.ngram import load_lm as load_lm
    from wfstdec.search.hypothesis import Hypothesis as Hypothesis
    from wfstdec.trie.decoder import TrieDecoder as TrieDecoder
    from wfstdec.trie.options import TrieOptions as TrieOptions
    from wfstdec.wfst.decoder import WfstDecoder as WfstDecoder
    from wfstdec.wfst.options import WfstOptions as WfstOptions

__version__ = "0.1.0"

_HOMES = {
    "TrieDecoder": "wfstdec.trie.decoder",
    "TrieOptions": "wfstdec.trie.options",
    "Boosts": "wfstdec.boost.boosts",
    "WfstOptions": "wfstdec.wfst.options",
    "GreedyDecoder": "wfstdec.greedy.decoder",
    "GreedyOptions": "wfstdec.greedy.options",
    "Hypothesis": "wfstdec.search.hypothesis",
    "NgramLM": "wfstdec.lm.ngram",
    "PackedGraph": "wfstdec.graph.packed",
    "PhraseCompiler": "wfstdec.boost.phrases",
    "PhraseOptions": "wfstdec.boost.phrases",
    "WfstDecoder": "wfstdec.wfst.decoder",
    "WfstdecError": "wfstdec.errors",
    "build_graph": "wfstdec.fst.tlg",
    "load_graph": "wfstdec.graph.packed",
    "load_lm": "wfstdec.lm.ngram",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: a quick `import wfstdec`."""
    if name not in _HOMES:
        raise AttributeError(f"module 'wfstdec' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
