"""Public decoders to compare with, each only where it is installed.

    peer = PEERS["flashlight"](inputs)          # `PeerInputs`
    peer.decode(utterances, peer.settings()[0])
    available_peers(inputs)                     # those that these inputs allow

kaldi-decoder    FasterDecoder on the graph of our own search
flashlight       flashlight-text: a lexicon's trie, or tokens alone
pyctcdecode      words over pieces or characters; no pronunciations

All decode on the CPU in one thread. `tools/peers` has those that need a GPU or NeMo.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.compare.comparison import MakePeer, Peer, PeerInputs, ScoredPeer, Setting
from wfstdec.errors import BackendError, OptionError
from wfstdec.fst.openfst import FstContent, write_fst
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import WORD_START
from wfstdec.text.tokens import EPSILON
from wfstdec.wfst.options import WfstOptions


def import_peer(module: str, install: str) -> Any:
    """Import a module that need not be there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BackendError(
            f"{module.partition('.')[0]} cannot be imported ({error}); {install}"
        ) from error


def name_with_version(package: str) -> str:
    """The name of a package, with its version where that is known."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


_INSTALL = {
    "kaldi": "pip install kaldi-decoder",
    "flashlight": "pip install flashlight-text (no wheel for Python 3.13)",
    "pyctcdecode": "pip install --no-deps pyctcdecode==0.5.0 && pip install pygtrie "
    "kenlm; its wheel asks for numpy<2 and works with later ones",
}
_BEAMS = (6.0, 8.0, 10.0, 13.0, 17.0)
_MAX_ACTIVE = 7000


def scaled_fst(graph: PackedGraph, lm_scale: float, word_insertion: float = 0.0) -> Any:
    """The graph as a `kaldifst.StdConstFst` whose costs are multiplied by a scale."""
    # Kaldi's decoder has no such scale. The float32 products are those that our search
    # makes in every frame, so both see the same costs bit for bit.
    # `graph`: the graph; its unpacked arcs keep their order, epsilons first.
    kaldifst = import_peer("kaldifst", _INSTALL["kaldi"])
    fst, scale = graph.unpack(), np.float32(lm_scale)
    cost = fst.cost * scale
    if word_insertion:
        cost = cost + np.float32(word_insertion) * (fst.olabel != EPSILON)
    scaled = replace(fst, cost=cost, final_cost=fst.final_cost * scale)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scaled.fst"
        write_fst(path, FstContent(scaled), "const")
        return kaldifst.StdConstFst.read(str(path))


class FasterDecoder:
    """kaldi-decoder's FasterDecoder; one object decodes any number of utterances."""

    # `options`: its beam, max_active, min_active and, unless None, beam_delta are
    # taken; None leaves Kaldi's own 0.5. `lm_scale` is in the FST.

    def __init__(self, fst: Any, options: WfstOptions) -> None:
        names = ("beam", "max_active", "min_active", "lm_scale", "beam_delta")
        plain = WfstOptions(**{name: getattr(options, name) for name in names})
        # What Kaldi cannot do must not be left out silently: a comparison would be of
        # two things.
        if options != plain:
            raise ValueError(f"{options!r}, expected pruning and lm_scale alone")
        self._kaldi = import_peer("kaldi_decoder", _INSTALL["kaldi"])
        config = self._kaldi.FasterDecoderOptions()
        config.beam = options.beam
        config.max_active = options.max_active or 2**31 - 1
        config.min_active = options.min_active
        if options.beam_delta is not None:
            config.beam_delta = options.beam_delta
        self._fst = fst  # the decoder holds a reference that Python does not see
        self._decoder = self._kaldi.FasterDecoder(fst, config)

    def decode(self, logprobs: np.ndarray) -> Any:
        """Decode float32 [T, V]; the best path as an FST, None where there is none."""
        self._decoder.decode(self._kaldi.DecodableCtc(logprobs))
        found, path = self._decoder.get_best_path()
        return path if found else None

    @property
    def reached_final(self) -> bool:
        """True where the last utterance's best path ends in a final state."""
        return bool(self._decoder.reached_final())


def read_path(path: Any, words: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """The words of a best path and its total cost, final cost included."""
    # No path has no words and costs `inf`.
    if path is None:
        return (), math.inf
    kaldifst = import_peer("kaldifst", _INSTALL["kaldi"])
    linear, _, olabels, weight = kaldifst.get_linear_symbol_sequence(path)
    if not linear:
        raise ValueError("a best path that branches, expected a linear one")
    return tuple(words[label] for label in olabels), weight.value1 + weight.value2


class KaldiPeer:
    """A `Peer`: Kaldi's search on the graph that ours goes through."""

    def __init__(self, inputs: PeerInputs) -> None:
        import_peer("kaldi_decoder", _INSTALL["kaldi"])
        if inputs.graph is None:
            raise OptionError("kaldi-decoder without a graph, expected one")
        self.name = name_with_version("kaldi-decoder")
        self._words = inputs.graph.words
        self._fst = scaled_fst(inputs.graph, inputs.lm_scale, inputs.word_insertion)

    def settings(self) -> Sequence[Setting]:
        """Beams in nats, and the number of states that binds them."""
        return [{"beam": beam, "max_active": _MAX_ACTIVE} for beam in _BEAMS]

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """See `Peer`."""
        decoder = FasterDecoder(self._fst, WfstOptions(**setting))
        return [
            " ".join(read_path(decoder.decode(logprobs), self._words)[0])
            for logprobs in utterances
        ]


_BEAM_SIZES = (20, 50, 100, 200, 500)
_THRESHOLD = 50.0
_UNKNOWN = "<unk>"
_NEVER = -1e4
"""The log-prob of what cannot be; infinite ones end in NaN."""


class FlashlightPeer(ScoredPeer):
    """A `ScoredPeer`; see the module for what it is given."""

    def __init__(self, inputs: PeerInputs, final_separator: bool = True) -> None:
        install = _INSTALL["flashlight"]
        self._text = import_peer("flashlight.lib.text.decoder", install)
        if inputs.arpa is None:
            raise OptionError("flashlight-text without an ARPA file, expected one")
        self.name = name_with_version("flashlight-text")
        self._inputs, self._tokens = inputs, inputs.tokens
        # The decoder cannot do without a separator: a column that never wins.
        if inputs.separator is None:
            self._separator, self._columns = len(self._tokens), len(self._tokens) + 1
            self._last = None
        else:
            self._separator = self._tokens.index(inputs.separator, "separator")
            self._columns = len(self._tokens)
            # It ends a word at a separator alone, so that one is put behind the last
            # frame.
            self._last = np.full((1, self._columns), _NEVER, np.float32)
            self._last[0, self._separator] = 0.0
        if not final_separator:
            self._last = None
        self._made: tuple[Setting, Any] | None = None
        self._names = names = self._labels()
        self._unknown = names.index(_UNKNOWN)
        dictionary = import_peer("flashlight.lib.text.dictionary", install)
        self._labels_by_name = dictionary.Dictionary(names)
        self._labels_by_name.set_default_index(self._unknown)
        kenlm = import_peer("flashlight.lib.text.decoder.kenlm", install)
        self._lm = kenlm.KenLM(inputs.arpa, self._labels_by_name)
        self._trie = None if inputs.lexicon is None else self._lexicon_trie()

    def settings(self) -> Sequence[Setting]:
        """Numbers of hypotheses; the threshold (nats) is wide enough not to count."""
        return [
            {"beam_size": size, "beam_threshold": _THRESHOLD, "beam_size_token": None}
            for size in _BEAM_SIZES
        ]

    def decode_scored(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> list[tuple[str, float]]:
        """See `ScoredPeer`."""
        # Kept until another setting is asked for.
        if self._made is None or self._made[0] != setting:
            self._made = setting, self._make_decoder(setting)
        decoder, found = self._made[1], []
        for logprobs in utterances:
            rows = self._rows(logprobs)
            results = decoder.decode(rows.ctypes.data, *rows.shape)[:1]
            texts = [(self._text_of(one), one.score) for one in results]
            found += texts or [("", -math.inf)]
        return found

    def _labels(self) -> list[str]:
        """The language model's labels: tokens or words, `<unk>` among them."""
        inputs = self._inputs
        if inputs.lexicon is None:
            return list(dict.fromkeys([*self._tokens.names, _UNKNOWN]))
        known = read_arpa(str(inputs.arpa)).index
        self._lexicon, _ = inputs.lexicon.restrict(known)
        return list(dict.fromkeys([*self._lexicon.words, _UNKNOWN]))

    def _lexicon_trie(self) -> Any:
        """The lexicon; a word's score looks ahead to its cost as a first word."""
        trie = self._text.Trie(self._columns, self._separator)
        start = self._lm.start(False)
        end = () if self._inputs.separator is None else (self._separator,)
        lexicon = self._lexicon
        for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
            label = self._labels_by_name.get_index(word)
            _, score = self._lm.score(start, label)
            trie.insert([*spelt, *end], label, score)
        trie.smear(self._text.SmearingMode.MAX)
        return trie

    def _make_decoder(self, setting: Setting) -> Any:
        text, inputs = self._text, self._inputs
        common = {
            "beam_size": setting["beam_size"],
            "beam_size_token": setting.get("beam_size_token") or self._columns,
            "beam_threshold": setting["beam_threshold"],
            # KenLM gives log10, acoustics are natural logs.
            "lm_weight": inputs.lm_scale * math.log(10),
            "sil_score": 0.0,
            "log_add": False,
            "criterion_type": text.CriterionType.CTC,
        }
        ends = (self._separator, self._tokens.blank)
        if self._trie is None:
            if inputs.word_insertion:
                raise OptionError("word_insertion without a lexicon, expected 0")
            options = text.LexiconFreeDecoderOptions(**common)
            return text.LexiconFreeDecoder(options, self._lm, *ends, [])
        options = text.LexiconDecoderOptions(
            **common, word_score=-inputs.word_insertion, unk_score=-math.inf
        )
        return text.LexiconDecoder(
            options, self._trie, self._lm, *ends, self._unknown, [], False
        )

    def _rows(self, logprobs: np.ndarray) -> np.ndarray:
        """The log-probs as the decoder is to see them."""
        rows = np.maximum(logprobs, np.float32(_NEVER))
        if self._inputs.separator is None:
            never = np.full((len(rows), 1), _NEVER, np.float32)
            rows = np.concatenate([rows, never], axis=1)
        if self._last is not None:
            rows = np.concatenate([rows, self._last])
        return np.ascontiguousarray(rows, np.float32)

    def _text_of(self, result: Any) -> str:
        if self._trie is not None:
            return " ".join(self._names[word] for word in result.words if word >= 0)
        names = [
            " " if token == self._separator else self._tokens.names[token]
            for token, _ in itertools.groupby(result.tokens)
            if token != self._tokens.blank
        ]
        marked = any(WORD_START in name for name in self._tokens.names)
        between = "" if marked or self._last is not None else " "
        return " ".join(between.join(names).replace(WORD_START, " ").split())


_BEAM_WIDTHS = (25, 50, 100, 200, 500)
_PRUNE_LOGP, _TOKEN_MIN_LOGP = -10.0, -5.0  # its defaults


class PyctcdecodePeer:
    """A `Peer`; see the module for what it is given."""

    def __init__(self, inputs: PeerInputs) -> None:
        pyctcdecode = import_peer("pyctcdecode", _INSTALL["pyctcdecode"])
        import_peer("kenlm", _INSTALL["pyctcdecode"])
        if inputs.lexicon is None or inputs.arpa is None:
            raise OptionError(
                "pyctcdecode without a lexicon or an ARPA file, expected both"
            )
        labels = _labels(inputs)
        self.name = name_with_version("pyctcdecode")
        logging.getLogger("pyctcdecode").setLevel(logging.ERROR)
        self.decoder: Any = pyctcdecode.build_ctcdecoder(
            labels,
            inputs.arpa,
            list(dict.fromkeys(inputs.lexicon.words)),
            alpha=float(inputs.lm_scale),
            beta=-float(inputs.word_insertion),
        )

    def settings(self) -> Sequence[Setting]:
        """Numbers of hypotheses, with its own thresholds."""
        return [
            {
                "beam_width": width,
                "beam_prune_logp": _PRUNE_LOGP,
                "token_min_logp": _TOKEN_MIN_LOGP,
            }
            for width in _BEAM_WIDTHS
        ]

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """See `Peer`."""
        return [self.decoder.decode(rows, **setting) for rows in utterances]


def _labels(inputs: PeerInputs) -> list[str]:
    """The token table as it wants it: the blank is empty, the separator a space."""
    names = list(inputs.tokens.names)
    names[inputs.tokens.blank] = ""
    if inputs.separator is not None:
        names[inputs.tokens.index(inputs.separator, "separator")] = " "
    lexicon, marks = inputs.lexicon, inputs.separator is None
    assert lexicon is not None
    # A word must be what its tokens spell.
    for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
        text = "".join(names[token] for token in spelt)
        if text != (WORD_START + word if marks else word):
            raise OptionError(
                f"pyctcdecode with {word!r} spelt as {text!r}, expected tokens that "
                f"spell it{f', {WORD_START!r} first' if marks else ''}"
            )
    return names


_log = logging.getLogger(__name__)


PEERS: Mapping[str, MakePeer] = {
    "flashlight": FlashlightPeer,
    "pyctcdecode": PyctcdecodePeer,
    "kaldi-decoder": KaldiPeer,
}
"""Makers of the peers by name; a peer imports its package when it is made."""


def available_peers(inputs: PeerInputs) -> list[Peer]:
    """The peers that are installed and can be made of the inputs.

    Why the others are missing is logged.
    """
    made: list[Peer] = []
    for name, make in PEERS.items():
        try:
            made.append(make(inputs))
        except (BackendError, OptionError) as error:
            _log.info("without the peer %s: %s", name, error)
    return made
