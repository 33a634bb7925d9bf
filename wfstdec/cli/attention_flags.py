"""The flags of attention decoders; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, get_args

from wfstdec.attention.options import LengthNorm, Stop
from wfstdec.boost.score_rows import EndRule
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


ATTENTION_SEARCH_FLAGS: dict[str, Flag] = {
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
    "--max-tokens-per-s": takes(
        "X", "no more tokens than so many a second, and 5", float
    ),
    "--no-repeat-ngram": takes(
        "N", "so many tokens in a row come but once in a text; 0: they may", int
    ),
}
"""Options of `AttentionOptions`: the name, what it does, how it is read."""

ATTENTION_MODEL_FLAGS: dict[str, Flag] = {
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
