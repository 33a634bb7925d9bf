"""pyctcdecode's beam search, with a word language model over pieces or characters.

    peer = PyctcdecodePeer(inputs)
    peer.decode(utterances, {"beam_width": 100, "beam_prune_logp": -10.0,
                             "token_min_logp": -5.0})

It spells words by their tokens: pieces that begin with U+2581, or characters between
separators. A lexicon of pronunciations is nothing to it; so is the way a lexicon cuts
words into pieces, since every way is open. Words outside the lexicon are not impossible
but dear (`unk_score_offset`, its default, per unit of log10). What it makes best is the
sum over alignments, `log-probs + lm_scale * LM - word_insertion * words`, in nats.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.compare.peers.installed import import_peer, name_with_version
from wfstdec.compare.points import PeerInputs, Setting
from wfstdec.errors import OptionError
from wfstdec.text.lexicon import WORD_START

_INSTALL = (
    "pip install --no-deps pyctcdecode==0.5.0 && pip install pygtrie kenlm; its wheel "
    "asks for numpy<2 and works with later ones"
)
_BEAM_WIDTHS = (25, 50, 100, 200, 500)
_PRUNE_LOGP, _TOKEN_MIN_LOGP = -10.0, -5.0  # its defaults


class PyctcdecodePeer:
    """A `Peer`; see the module for what it is given.

    Raises:
        BackendError: pyctcdecode, or kenlm, is not installed.
        OptionError: There is no lexicon or no ARPA file, or a word of the lexicon
            is not what its tokens spell.
    """

    def __init__(self, inputs: PeerInputs) -> None:
        pyctcdecode = import_peer("pyctcdecode", _INSTALL)
        import_peer("kenlm", _INSTALL)
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
                f"pyctcdecode with {word!r} said as {text!r}, expected tokens that "
                f"spell it{f', {WORD_START!r} first' if marks else ''}"
            )
    return names
