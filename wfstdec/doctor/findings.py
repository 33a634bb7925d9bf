"""Findings, and the page that they make."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "look", "wrong"]

_WIDTH = 88


@dataclass(frozen=True)
class Finding:
    """Something that was looked at."""

    name: str  # What it is about
    status: Status  # `"ok"`; `"look"`, where only the user can tell; `"wrong"`
    text: str  # The fault, and its remedy


@dataclass(frozen=True)
class Report:
    """Findings, in the order of the page that `str()` gives."""

    findings: tuple[Finding, ...]  # All of them
    # Command lines to take, with the flags that were found
    commands: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        return {one.name: one for one in reversed(self.findings)}[name]

    @property
    def is_wrong(self) -> bool:
        """Tell whether anything is wrong."""
        return any(finding.status == "wrong" for finding in self.findings)

    def __str__(self) -> str:
        width = max(len(finding.name) for finding in self.findings)
        lines = []
        for finding in self.findings:
            head = f"{finding.name:{width}}  {finding.status:5}  "
            lines += textwrap.wrap(
                head + finding.text, _WIDTH, subsequent_indent=" " * len(head)
            )
        if self.commands:
            first = "mend what is wrong, then" if self.is_wrong else "take"
            lines += ["", f"{first}:", *(f"  {line}" for line in self.commands)]
        return "\n".join(lines)


def percent(share: float) -> str:
    """A share for people: `69 %`, `2.6 %`."""
    return f"{100 * share:.{0 if share >= 0.1 or not share else 1}f} %"
