"""wfstdec: WFST-centric decoding of CTC speech models.

Build or load a graph (`build_graph`, `load_graph`), or take a lexicon and a language
model as they are; decode with `WfstDecoder`, `TrieDecoder` or `GreedyDecoder`; find
when the words of a known text were said with `ForcedAligner`. Beside them stand

    wfstdec.adapters    other people's interfaces: pyctcdecode
    wfstdec.audio       audio files as a model hears them
    wfstdec.batch       many utterances: from files, in batches, to files; .ray: on Ray
    wfstdec.doctor      what is wrong with files that are to be decoded together
    wfstdec.compare     searches side by side on one's own data; tuning
    wfstdec.io          log-probs, transcripts, boost files, results
    wfstdec.lattice     lattices: files, n-best, confidences, rescoring
    wfstdec.metrics     word error rates
    wfstdec.models      encoders: audio to log-probs
    wfstdec.recipes     the shipped recipe
    wfstdec.transcription   audio to words
    wfstdec.errors      what is raised

What is not in `__all__`, here or in one of these, may change from version to version.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfstdec import adapters as adapters
    from wfstdec import audio as audio
    from wfstdec import batch as batch
    from wfstdec import compare as compare
    from wfstdec import doctor as doctor
    from wfstdec import errors as errors
    from wfstdec import io as io
    from wfstdec import lattice as lattice
    from wfstdec import metrics as metrics
    from wfstdec import models as models
    from wfstdec import recipes as recipes
    from wfstdec import transcription as transcription
    from wfstdec.align.aligner import ForcedAligner as ForcedAligner
    from wfstdec.align.alignment import Alignment as Alignment
    from wfstdec.align.options import AlignOptions as AlignOptions
    from wfstdec.attention.decoder import AttentionDecoder as AttentionDecoder
    from wfstdec.attention.joint_net import load_attention as load_attention
    from wfstdec.attention.model import AttentionModel as AttentionModel
    from wfstdec.attention.options import AttentionOptions as AttentionOptions
    from wfstdec.attention.rescoring import rescore as rescore
    from wfstdec.attention.rescoring import reweighed as reweighed
    from wfstdec.attention.rescoring import text_log_probs as text_log_probs
    from wfstdec.boost.compile import PhraseCompiler as PhraseCompiler
    from wfstdec.boost.compiled import CompiledBoosts as CompiledBoosts
    from wfstdec.boost.g2p import G2p as G2p
    from wfstdec.boost.lists import BoostEntry as BoostEntry
    from wfstdec.boost.lists import Boosts as Boosts
    from wfstdec.boost.phrases import PhraseOptions as PhraseOptions
    from wfstdec.errors import WfstdecError as WfstdecError
    from wfstdec.fst.openfst_io import from_openfst as from_openfst
    from wfstdec.fst.openfst_io import to_openfst as to_openfst
    from wfstdec.fst.tlg import build_graph as build_graph
    from wfstdec.gpu.choice import BackendChoice as BackendChoice
    from wfstdec.graph.packed import PackedGraph as PackedGraph
    from wfstdec.graph.packed import load_graph as load_graph
    from wfstdec.greedy.decoder import GreedyDecoder as GreedyDecoder
    from wfstdec.greedy.options import GreedyOptions as GreedyOptions
    from wfstdec.lattice.arrays import Lattice as Lattice
    from wfstdec.lm.kenlm_model import KenlmModel as KenlmModel
    from wfstdec.lm.loading import build_lm as build_lm
    from wfstdec.lm.ngram import NgramLM as NgramLM
    from wfstdec.lm.ngram import load_lm as load_lm
    from wfstdec.lm.user import UserLM as UserLM
    from wfstdec.models.loading import load_model as load_model
    from wfstdec.search.decoder import Decoder as Decoder
    from wfstdec.search.endpoints import Endpointer as Endpointer
    from wfstdec.search.endpoints import EndpointRule as EndpointRule
    from wfstdec.search.hypothesis import Hypothesis as Hypothesis
    from wfstdec.search.open_vocabulary import OpenVocabulary as OpenVocabulary
    from wfstdec.search.paths.lattice import lattice_hypotheses as lattice_hypotheses
    from wfstdec.search.paths.segments import SegmentReader as SegmentReader
    from wfstdec.search.sessions import Partial as Partial
    from wfstdec.search.sessions import Sessions as Sessions
    from wfstdec.search.text_rescoring import rescore_texts as rescore_texts
    from wfstdec.text.arpa import read_arpa as read_arpa
    from wfstdec.text.lexicon import Lexicon as Lexicon
    from wfstdec.text.lexicon import read_lexicon as read_lexicon
    from wfstdec.text.lexicon import spelling_lexicon as spelling_lexicon
    from wfstdec.text.normalize import Normalizer as Normalizer
    from wfstdec.text.symbols import TokenTable as TokenTable
    from wfstdec.text.symbols import read_tokens as read_tokens
    from wfstdec.text.symbols import token_table as token_table
    from wfstdec.transcription.transcriber import Transcriber as Transcriber
    from wfstdec.transducer.automata import TorchNgramLM as TorchNgramLM
    from wfstdec.transducer.decoder import TransducerDecoder as TransducerDecoder
    from wfstdec.transducer.model import TransducerModel as TransducerModel
    from wfstdec.transducer.onnx_model import (
        load_onnx_transducer as load_onnx_transducer,
    )
    from wfstdec.transducer.options import TransducerOptions as TransducerOptions
    from wfstdec.transducer.phrases import TorchPhrases as TorchPhrases
    from wfstdec.transducer.torch_model import load_transducer as load_transducer
    from wfstdec.trie.decoder import TrieDecoder as TrieDecoder
    from wfstdec.trie.options import TrieOptions as TrieOptions
    from wfstdec.wfst.decoder import WfstDecoder as WfstDecoder
    from wfstdec.wfst.options import WfstOptions as WfstOptions

__version__ = "0.1.0"

_HOMES = {
    "AlignOptions": "wfstdec.align.options",
    "Alignment": "wfstdec.align.alignment",
    "AttentionDecoder": "wfstdec.attention.decoder",
    "AttentionModel": "wfstdec.attention.model",
    "AttentionOptions": "wfstdec.attention.options",
    "BackendChoice": "wfstdec.gpu.choice",
    "BoostEntry": "wfstdec.boost.lists",
    "Boosts": "wfstdec.boost.lists",
    "CompiledBoosts": "wfstdec.boost.compiled",
    "Decoder": "wfstdec.search.decoder",
    "EndpointRule": "wfstdec.search.endpoints",
    "Endpointer": "wfstdec.search.endpoints",
    "ForcedAligner": "wfstdec.align.aligner",
    "G2p": "wfstdec.boost.g2p",
    "GreedyDecoder": "wfstdec.greedy.decoder",
    "GreedyOptions": "wfstdec.greedy.options",
    "Hypothesis": "wfstdec.search.hypothesis",
    "KenlmModel": "wfstdec.lm.kenlm_model",
    "Lattice": "wfstdec.lattice.arrays",
    "Lexicon": "wfstdec.text.lexicon",
    "NgramLM": "wfstdec.lm.ngram",
    "Normalizer": "wfstdec.text.normalize",
    "OpenVocabulary": "wfstdec.search.open_vocabulary",
    "PackedGraph": "wfstdec.graph.packed",
    "Partial": "wfstdec.search.sessions",
    "PhraseCompiler": "wfstdec.boost.compile",
    "PhraseOptions": "wfstdec.boost.phrases",
    "SegmentReader": "wfstdec.search.paths.segments",
    "Sessions": "wfstdec.search.sessions",
    "TokenTable": "wfstdec.text.symbols",
    "TorchNgramLM": "wfstdec.transducer.automata",
    "TorchPhrases": "wfstdec.transducer.phrases",
    "Transcriber": "wfstdec.transcription.transcriber",
    "TransducerDecoder": "wfstdec.transducer.decoder",
    "TransducerModel": "wfstdec.transducer.model",
    "TransducerOptions": "wfstdec.transducer.options",
    "TrieDecoder": "wfstdec.trie.decoder",
    "TrieOptions": "wfstdec.trie.options",
    "UserLM": "wfstdec.lm.user",
    "WfstDecoder": "wfstdec.wfst.decoder",
    "WfstOptions": "wfstdec.wfst.options",
    "WfstdecError": "wfstdec.errors",
    "build_graph": "wfstdec.fst.tlg",
    "build_lm": "wfstdec.lm.loading",
    "from_openfst": "wfstdec.fst.openfst_io",
    "lattice_hypotheses": "wfstdec.search.paths.lattice",
    "load_attention": "wfstdec.attention.joint_net",
    "load_graph": "wfstdec.graph.packed",
    "load_lm": "wfstdec.lm.ngram",
    "load_model": "wfstdec.models.loading",
    "load_onnx_transducer": "wfstdec.transducer.onnx_model",
    "load_transducer": "wfstdec.transducer.torch_model",
    "read_arpa": "wfstdec.text.arpa",
    "read_lexicon": "wfstdec.text.lexicon",
    "read_tokens": "wfstdec.text.symbols",
    "rescore": "wfstdec.attention.rescoring",
    "rescore_texts": "wfstdec.search.text_rescoring",
    "reweighed": "wfstdec.attention.rescoring",
    "spelling_lexicon": "wfstdec.text.lexicon",
    "text_log_probs": "wfstdec.attention.rescoring",
    "to_openfst": "wfstdec.fst.openfst_io",
    "token_table": "wfstdec.text.symbols",
}
_MODULES = (
    "adapters",
    "audio",
    "batch",
    "compare",
    "doctor",
    "errors",
    "io",
    "lattice",
    "metrics",
    "models",
    "recipes",
    "transcription",
)

__all__ = ["__version__", *sorted([*_HOMES, *_MODULES])]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: a quick `import wfstdec`."""
    if name in _MODULES:
        return importlib.import_module(f"wfstdec.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'wfstdec' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
