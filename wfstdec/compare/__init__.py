"""Searches side by side on one's own data: WER, speed, search errors, memory.

from wfstdec import compare

speech = compare.read_speech("dev.npz", "dev.txt")
models = compare.Models(graph="graph.npz", tokens="tokens.txt", lm="lm.arpa.gz", ...)
searches = models.wfst_searches(WfstOptions(lm_scale=0.8), {"beam": [8.0, 13.0]})
searches += models.trie_searches(TrieOptions(lm_scale=0.8), {"beam_size": [16, 32]})
comparison = compare.run(speech, searches)
print(compare.table(comparison))
compare.plot(comparison, "dev.svg")
compare.tune(searches[0].prepare, speech).best

`Models` takes files; `wfst_searches`, `trie_searches` and `greedy_searches` objects.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfstdec.compare.comparison import Comparison as Comparison
    from wfstdec.compare.comparison import Point as Point
    from wfstdec.compare.comparison import load_comparison as load_comparison
    from wfstdec.compare.confidences import score_confidences as score_confidences
    from wfstdec.compare.grids import parse_grid as parse_grid
    from wfstdec.compare.loading import greedy_factory as greedy_factory
    from wfstdec.compare.loading import measure_load as measure_load
    from wfstdec.compare.loading import trie_factory as trie_factory
    from wfstdec.compare.models import Models as Models
    from wfstdec.compare.peers import available_peers as available_peers
    from wfstdec.compare.plotting import plot as plot
    from wfstdec.compare.plotting import plot_reliability as plot_reliability
    from wfstdec.compare.plotting import plot_tuning as plot_tuning
    from wfstdec.compare.points import PeerInputs as PeerInputs
    from wfstdec.compare.posterior_scale import judge_all as judge_all
    from wfstdec.compare.posterior_scale import (
        tune_posterior_scale as tune_posterior_scale,
    )
    from wfstdec.compare.report import table as table
    from wfstdec.compare.running import run as run
    from wfstdec.compare.searches import PeerSearch as PeerSearch
    from wfstdec.compare.searches import greedy_searches as greedy_searches
    from wfstdec.compare.searches import trie_searches as trie_searches
    from wfstdec.compare.searches import wfst_searches as wfst_searches
    from wfstdec.compare.speech import Speech as Speech
    from wfstdec.compare.speech import read_speech as read_speech
    from wfstdec.compare.tuning import tune as tune

_HOMES = {
    "Comparison": "comparison",
    "Models": "models",
    "PeerInputs": "points",
    "PeerSearch": "searches",
    "Point": "comparison",
    "Speech": "speech",
    "available_peers": "peers",
    "greedy_factory": "loading",
    "greedy_searches": "searches",
    "judge_all": "posterior_scale",
    "load_comparison": "comparison",
    "measure_load": "loading",
    "parse_grid": "grids",
    "plot": "plotting",
    "plot_reliability": "plotting",
    "plot_tuning": "plotting",
    "read_speech": "speech",
    "run": "running",
    "score_confidences": "confidences",
    "table": "report",
    "trie_factory": "loading",
    "trie_searches": "searches",
    "tune": "tuning",
    "tune_posterior_scale": "posterior_scale",
    "wfst_searches": "searches",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
