"""The flags of attention decoders; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, get_args

from wfstdec.attention.options import LengthNorm, Stop
from wfstdec.boost.score_rows import EndRule


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


ATTENTION_SEARCH_FLAGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "--end-rule": (
        "end_rule",
        "what becomes of phrases at the end, a token that competes with them",
        {"choices": get_args(EndRule)},
    ),
    "--ctc-weight": (
        "ctc_weight",
        "0 to 1: how much the model's CTC head counts in place of attention",
        {"type": float, "metavar": "X"},
    ),
    "--pre-beam": (
        "pre_beam",
        "tokens of a text that CTC scores (none: 1.5 times the beam size)",
        {"type": int, "metavar": "N"},
    ),
    "--final-eos-score": (
        "final_eos_score",
        "--end-rule compensated: what an end gains behind a phrase",
        {"type": float, "metavar": "NATS"},
    ),
    "--length-norm": (
        "length_norm",
        "rank by the cost of a token; of attention: by none, mean or gnmt",
        {"action": SwitchOrChoice, "choices": get_args(LengthNorm)},
    ),
    "--gnmt-alpha": (
        "gnmt_alpha",
        "--length-norm gnmt: ((5 + n) / 6) to this power",
        {"type": float, "metavar": "X"},
    ),
    "--stop": (
        "stop",
        "no live text can come in any more, the list is full, or at the limit alone",
        {"choices": get_args(Stop)},
    ),
    "--max-tokens-per-s": (
        "max_tokens_per_s",
        "no more tokens than so many a second, and 5",
        {"type": float, "metavar": "X"},
    ),
    "--no-repeat-ngram": (
        "no_repeat_ngram",
        "so many tokens in a row come but once in a text; 0: they may",
        {"type": int, "metavar": "N"},
    ),
}
"""Options of `AttentionOptions`: the name, what it does, how it is read."""

ATTENTION_MODEL_FLAGS: dict[str, dict[str, Any]] = {
    "--attention": {
        "nargs": "*",
        "metavar": "OPTION=VALUES",
        "help": "the attention decoder of --attention-model takes part, with options "
        "such as beam_size=1,3,8 end_rule=closed,compensated",
    },
    "--attention-model": {
        "metavar": "PATH",
        "help": "an attention decoder with its encoder: what JointNet.save wrote; the "
        "log-probs are the features of its encoder",
    },
    "--attention-lm": {
        "metavar": "PATH",
        "help": "a language model over the tokens of --attention-model",
    },
}
