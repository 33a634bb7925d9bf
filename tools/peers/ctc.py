"""Decoders of CTC output that `tools.peers.compare` runs, where they are installed.

    peer = PEERS["flashlight"](inputs)          # `PeerInputs`
    peer.decode(utterances, peer.settings()[0])
    available_peers(inputs)                     # those that these inputs allow

kaldi-decoder    FasterDecoder on the graph of our own search
flashlight       flashlight-text: a lexicon's trie, or tokens alone
pyctcdecode      words over pieces or characters; no pronunciations

All decode on the CPU in one thread.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.peers.interface import (
    MakePeer,
    Peer,
    PeerInputs,
    PeerSearch,
    ScoredPeer,
    import_peer,
    name_with_version,
)
from tools.peers.kaldi import KaldiSearch
from wfstdec.compare.comparison import Setting
from wfstdec.compare.models import Models
from wfstdec.errors import BackendError, OptionError
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import WORD_START, load_lexicon, load_tokens, separator_of

_INSTALL = {
    "flashlight": "pip install flashlight-text (no wheel for Python 3.13)",
    "pyctcdecode": "pip install --no-deps pyctcdecode==0.5.0 && pip install pygtrie "
    "kenlm; its wheel asks for numpy<2 and works with later ones",
}


class KaldiPeer:
    """A `Peer`: `KaldiSearch`, with settings that have all options."""

    def __init__(self, inputs: PeerInputs) -> None:
        if inputs.graph is None:
            raise OptionError("kaldi-decoder without a graph, expected one")
        costs = inputs.lm_scale, inputs.word_insertion
        self._search = KaldiSearch(inputs.graph, *costs)
        self.name = self._search.name

    def settings(self) -> Sequence[Setting]:
        """Beams in nats, and the number of states that binds them."""
        common = self._search.facts.options
        return [{**one, **common} for one in self._search.settings]

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """See `Peer`."""
        outcomes = self._search.prepare(setting)(utterances, None)
        return [one.text for one in outcomes]


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


def peer_searches(
    models: Models, lm_scale: float, word_insertion: float
) -> list[PeerSearch]:
    """Searches of the installed peers that the files of `models` suffice for."""
    graph = None if models.graph is None else models.loaded_graph.item
    tokens = load_tokens(models.any_tokens(), models.blank)
    lexicon, between = None, separator_of(models.separator, tokens)
    if models.lexicon is not None:
        lexicon = load_lexicon(models.lexicon, tokens, between)
    is_arpa = models.lm is not None and not Path(models.lm).is_dir()
    inputs = PeerInputs(
        tokens=tokens,
        graph=graph,
        lexicon=lexicon,
        arpa=os.fspath(models.lm) if models.lm is not None and is_arpa else None,
        separator=None if between is None else tokens.names[between],
        lm_scale=lm_scale,
        word_insertion=word_insertion,
    )
    return [PeerSearch(peer) for peer in available_peers(inputs)]
