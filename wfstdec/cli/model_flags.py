"""The flags of decoders that run a model: transducers and attention decoders.

`flags.FLAGS` takes them in.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, get_args

from wfstdec.attention.options import LengthNorm, Stop
from wfstdec.boost.tables import EndRule
from wfstdec.cli.kinds import Flag, one_of, takes


class SwitchOrChoice(argparse.BooleanOptionalAction):
    """A switch of one decoder that is a choice of another: `--flag`, `--flag mean`."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        self._allowed = tuple(more.pop("choices"))
        super().__init__(option_strings, dest, **more)
        self.nargs = "?"

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Keep the choice, or whether the switch is on."""
        is_on = not (option_string or "").startswith("--no-")
        if values is not None and (not is_on or values not in self._allowed):
            shown = ", ".join(map(repr, self._allowed))
            raise argparse.ArgumentError(
                self, f"invalid choice: {values!r} (choose from {shown})"
            )
        setattr(namespace, self.dest, is_on if values is None else values)

    def format_usage(self) -> str:
        """Name a flag as the usage does."""
        return f"--{self.dest.replace('_', '-')} [{'|'.join(self._allowed)}]"


SEARCH_FLAGS: dict[str, Flag] = {
    # of transducers
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
    # of attention decoders
    "--end-rule": one_of(
        get_args(EndRule),
        "what becomes of phrases at the end, a token that competes with them",
    ),
    "--ctc-weight": takes(
        "X", "0 to 1: how much the model's CTC head counts in place of attention", float
    ),
    "--pre-beam": takes(
        "N", "tokens of a text that CTC scores (none: 1.5 times the beam size)", int
    ),
    "--final-eos-score": takes(
        "NATS", "--end-rule compensated: what an end gains behind a phrase", float
    ),
    "--length-norm": {
        "action": SwitchOrChoice,
        "choices": get_args(LengthNorm),
        "help": "rank by the cost of a token; of attention: by none, mean or gnmt",
    },
    "--gnmt-alpha": takes(
        "X", "--length-norm gnmt: ((5 + n) / 6) to this power", float
    ),
    "--stop": one_of(
        get_args(Stop),
        "no live text can come in any more, the list is full, or at the limit alone",
    ),
    "--max-tokens-per-s": takes("X", "at most X tokens a second, plus 5", float),
    "--no-repeat-ngram": takes(
        "N", "N tokens in a row occur only once in a text; 0: no limit", int
    ),
}
"""Options of `TransducerOptions` and `AttentionOptions`, by their names there."""

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
    "--attention": takes(
        "OPTION=VALUES",
        "the attention decoder of --attention-model takes part, with options "
        "such as beam_size=1,3,8 end_rule=closed,compensated",
        nargs="*",
    ),
    "--attention-model": takes(
        "PATH",
        "an attention decoder with its encoder: what JointNet.save wrote; the "
        "log-probs are the features of its encoder",
    ),
    "--attention-lm": takes(
        "PATH", "a language model over the tokens of --attention-model"
    ),
}
