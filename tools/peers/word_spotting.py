"""NeMo's CTC word spotter (CTC-WS): a list's words found in log-probs, put into a text.

    pip install --no-deps nemo-toolkit==3.0.0               # and torch, kaldialign
    spotter = WordSpotter(names)                            # pieces, the blank behind
    graph = spotter.compile({"garment": [[17, 230]]})
    spotter.text(logprobs, graph, cb_weight=3.0)            # over greedy CTC
    spotter.text(logprobs, graph, said=(tokens, frames))    # over a transducer's text

A. Andrusenko et al., "Fast Context-Biasing for CTC and Transducer ASR models with
CTC-based Word Spotter", Interspeech 2024. Their modules are loaded as
`tools.peers.nemo_ctc` does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tools.peers.interface import import_peer
from tools.peers.nemo_ctc import _INSTALL, _PARTS, _load_nemo, _register
from wfstdec.text.lexicon import WORD_START

_BIASING = f"{_PARTS}.context_biasing"


@functools.cache
def _load(torch: Any) -> tuple[Any, Any, Any]:
    """Their graph, their spotter, and what merges words into a text."""
    _load_nemo(torch)
    root = next(iter(import_peer("nemo", _INSTALL).__path__))
    _register(_BIASING, Path(root))
    _register(f"{_PARTS}.utils.manifest_utils", Path(root), read_manifest=None)
    graph = import_peer(f"{_BIASING}.context_graph_ctc", _INSTALL)
    spotter = import_peer(f"{_BIASING}.ctc_based_word_spotter", _INSTALL)
    merge = import_peer(f"{_BIASING}.context_biasing_utils", _INSTALL)
    return (
        graph.ContextGraphCTC,
        spotter.run_word_spotter,
        merge.merge_alignment_with_ws_hyps,
    )


class WordSpotter:
    """The spotter over one vocabulary.

    Args:
        names: The pieces, with U+2581; the blank is behind them.

    Raises:
        BackendError: NeMo or torch is not installed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._graph, self._spot, self._merge = _load(import_peer("torch", _INSTALL))
        self._blank = len(names)
        self._names = tuple(names)
        tokenizer = SimpleNamespace(ids_to_tokens=self._names_of)
        self._model = SimpleNamespace(tokenizer=tokenizer)

    def _names_of(self, tokens: Sequence[int]) -> list[str]:
        return [self._names[token] for token in tokens]

    def compile(self, words: Mapping[str, Sequence[Sequence[int]]]) -> Any:
        """Their graph of words and the ways to spell each."""
        graph = self._graph(self._blank)
        graph.add_to_graph([(word, list(map(list, w))) for word, w in words.items()])
        return graph

    def text(
        self,
        logprobs: np.ndarray,
        graph: Any,
        said: tuple[Sequence[int], Sequence[int]] | None = None,
        **setting: float,
    ) -> str:
        """The text with the words that are found.

        Args:
            logprobs: [T, V + 1] of CTC.
            graph: Of `compile`.
            said: Tokens of a transducer's text and their frames; None for greedy CTC.
            setting: Of their `run_word_spotter`.
        """
        found = self._spot(logprobs, graph, self._model, self._blank, **setting)
        kind, best = "ctc", logprobs.argmax(1)
        tokens = best[np.flatnonzero(np.diff(best, prepend=-1))]
        candidate: Any = best
        if said is not None:
            tokens, stamps = said[0], list(map(np.int64, said[1]))
            kind = "rnnt"
            candidate = SimpleNamespace(y_sequence=list(tokens), timestamp=stamps)
        if not found:  # theirs then fails
            names = self._names_of([token for token in tokens if token != self._blank])
            return " ".join("".join(names).replace(WORD_START, " ").split())
        text, _ = self._merge(
            candidate, self._model, found, decoder_type=kind, blank_idx=self._blank
        )
        return text
