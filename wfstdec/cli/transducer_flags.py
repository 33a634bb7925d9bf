"""The flags of transducers; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse

from wfstdec.cli.kinds import Flag, one_of, takes

SEARCH_FLAGS: dict[str, Flag] = {
    "--strategy": one_of(
        ("greedy", "alsd", "aes"),
        "one token after the other, ALSD++ (a symbol a step), or AES++ (by frames)",
    ),
    "--fusion": one_of(
        ("late", "early"),
        "language models and boosts before the best tokens are taken, or after",
    ),
    "--blank-scored": {
        "action": argparse.BooleanOptionalAction,
        "help": "language models weigh the blank too",
    },
    "--max-symbols": takes("N", "tokens said in one frame at most", int),
    "--expansion-rounds": takes("N", "AES++: tokens in a frame", int),
    "--expansion-beta": takes(
        "N", "AES++: labels of an entry beyond the beam size", int
    ),
    "--expansion-gamma": takes(
        "NATS", "AES++: labels of an entry are this close to its best", float
    ),
    "--prefix-search": {
        "action": argparse.BooleanOptionalAction,
        "help": "AES++: move scores to texts that are one token longer first",
    },
}
"""Options of `TransducerOptions` alone, by their names there."""

MODEL_FLAGS: dict[str, Flag] = {
    "--model": takes(
        "PATH",
        "a transducer: what TransducerNet.save wrote, or a folder with "
        "encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt; for `wfstdec "
        "decode --decoder attention`, what JointNet.save wrote; the log-probs are "
        "the features of its encoder",
    ),
    "--head": takes(
        None, "which of its heads, where it has several (default: the first)"
    ),
    "--transducer": takes(
        "OPTION=VALUES",
        "the transducer of --model takes part, with options such as "
        "strategy=alsd,aes beam_size=4,10 fusion=late",
        nargs="*",
    ),
    "--transducer-lm": takes(
        "PATH",
        "a language model over the tokens of --model: an ARPA file, or what "
        "`wfstdec build-lm` saved",
    ),
}
