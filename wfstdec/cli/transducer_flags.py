"""The flags of transducers; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from typing import Any

_SWITCH = {"action": argparse.BooleanOptionalAction}
_COUNT = {"type": int, "metavar": "N"}

SEARCH_FLAGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "--strategy": (
        "strategy",
        "one token after the other, ALSD++ (a symbol a step), or AES++ (by frames)",
        {"choices": ("greedy", "alsd", "aes")},
    ),
    "--fusion": (
        "fusion",
        "language models and boosts before the best tokens are taken, or after",
        {"choices": ("late", "early")},
    ),
    "--blank-scored": ("blank_scored", "language models weigh the blank too", _SWITCH),
    "--max-symbols": ("max_symbols", "tokens said in one frame at most", _COUNT),
    "--expansion-rounds": ("expansion_rounds", "AES++: tokens in a frame", _COUNT),
    "--expansion-beta": (
        "expansion_beta",
        "AES++: labels of an entry beyond the beam size",
        _COUNT,
    ),
    "--expansion-gamma": (
        "expansion_gamma",
        "AES++: labels of an entry are this close to its best",
        {"type": float, "metavar": "NATS"},
    ),
    "--prefix-search": (
        "prefix_search",
        "AES++: move scores to texts that are one token longer first",
        _SWITCH,
    ),
}
"""Options of `TransducerOptions` alone: the name, what it does, how it is read."""

MODEL_FLAGS: dict[str, dict[str, Any]] = {
    "--model": {
        "metavar": "PATH",
        "help": "a transducer: what TransducerNet.save wrote, or a folder with "
        "encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt; for `wfstdec "
        "decode --decoder attention`, what JointNet.save wrote; the log-probs are "
        "the features of its encoder",
    },
    "--head": {"help": "which of its heads, where it has several (default: the first)"},
    "--transducer": {
        "nargs": "*",
        "metavar": "OPTION=VALUES",
        "help": "the transducer of --model takes part, with options such as "
        "strategy=alsd,aes beam_size=4,10 fusion=late",
    },
    "--transducer-lm": {
        "metavar": "PATH",
        "help": "a language model over the tokens of --model: an ARPA file, or what "
        "`wfstdec build-lm` saved",
    },
}
