"""Experiments on boosts and on what boosted searches cost, one sub-command each.

python -m tools.bench.boost magnitude --output run.json
python -m tools.bench.boost list-size --help

magnitude    WER by the boost of accurate and inaccurate lists
list-size    WER, F and speed by the size of the list
weights      how the credit of a phrase is spread over its tokens
unnumbered   lists without numbers
names        names without pronunciations, by where g2p gets them
cost         what boosting costs, by the size of the list
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tools.bench.boost import (
    cost,
    list_size,
    magnitude,
    names,
    unnumbered,
    weights,
)
from tools.bench.command import bare_parser, exit_with

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "magnitude": magnitude.main,
    "list-size": list_size.main,
    "weights": weights.main,
    "unnumbered": unnumbered.main,
    "names": names.main,
    "cost": cost.main,
}


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    parser = bare_parser(__doc__)
    parser.prog = "python -m tools.bench.boost"
    parser.add_argument("experiment", choices=COMMANDS, help="its own flags follow")
    chosen = parser.parse_args(words[:1]).experiment
    sys.argv[0] = f"{parser.prog} {chosen}"  # what its own --help calls it
    return COMMANDS[chosen](words[1:])


if __name__ == "__main__":
    exit_with(main)
