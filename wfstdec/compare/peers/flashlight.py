"""flashlight-text's decoders, set up so that their objective is ours.

    peer = FlashlightPeer(inputs)
    peer.decode(utterances, {"beam_size": 50, "beam_threshold": 50.0})

With a lexicon it is `LexiconDecoder` with a language model over words, without one
`LexiconFreeDecoder` with one over tokens. Log-probs are used as they are; KenLM's log10
is made nats by the weight, and the best alignment counts (`log_add=False`):

    score = log-probs + lm_scale * ln(10) * log10(LM) - word_insertion * words

Costs of pronunciations are not taken. Three things are done for it:

    - with a separator its words end in one, and the last word of an utterance that does
      not is lost: a frame that is surely a separator is put behind every utterance
      (`final_separator=False` leaves it out)
    - without a separator it gets one that is never heard, since it holds one for free
      between words
    - words that the language model lacks are left out, as `build_graph` does

What cannot be helped: token repeats inside a word need no blank (a lexicon without
separators also cannot hold the last token of a word), and of more than six words with
the same tokens the rest are dropped, with a line on stderr. The tests name these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.compare.peers.installed import import_peer, name_with_version
from wfstdec.compare.points import PeerInputs, ScoredPeer, Setting
from wfstdec.errors import OptionError
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import WORD_START

_INSTALL = "pip install flashlight-text (no wheel for Python 3.13)"
_BEAM_SIZES = (20, 50, 100, 200, 500)
_THRESHOLD = 50.0
_UNKNOWN = "<unk>"
_NEVER = -1e4
"""The log-prob of what cannot be; infinite ones end in NaN."""


class FlashlightPeer(ScoredPeer):
    """A `ScoredPeer`; see the module for what it is given.

    Args:
        inputs: Tokens and the language model; a lexicon and a separator where there
            are any.
        final_separator: Whether a separator's frame goes behind every utterance.

    Raises:
        BackendError: flashlight-text is not installed.
        OptionError: There is no ARPA file.
    """

    def __init__(self, inputs: PeerInputs, final_separator: bool = True) -> None:
        self._text = import_peer("flashlight.lib.text.decoder", _INSTALL)
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
        dictionary = import_peer("flashlight.lib.text.dictionary", _INSTALL).Dictionary
        self._labels_by_name = dictionary(names)
        self._labels_by_name.set_default_index(self._unknown)
        kenlm = import_peer("flashlight.lib.text.decoder.kenlm", _INSTALL).KenLM
        self._lm = kenlm(inputs.arpa, self._labels_by_name)
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
            results = decoder.decode(rows.ctypes.data, *rows.shape)
            if results:
                found.append((self._text_of(results[0]), results[0].score))
            else:
                found.append(("", -math.inf))
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
        heard = [token for token, _ in itertools.groupby(result.tokens)]
        names = [
            " " if token == self._separator else self._tokens.names[token]
            for token in heard
            if token != self._tokens.blank
        ]
        marked = any(WORD_START in name for name in self._tokens.names)
        between = "" if marked or self._last is not None else " "
        return " ".join(between.join(names).replace(WORD_START, " ").split())
