"""Limits of the server: what clients may ask of the machine, each an option."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wfstdec.search.options import CheckedOptions


def _limit(default: Any, text: str) -> Any:
    """Make a field with the help of its flag."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Limits(CheckedOptions):
    """Limits on what clients ask; errors name the flag that raises a limit."""

    streams: int = _limit(256, "streams at once")
    buffered_s: float = _limit(
        10.0,
        "seconds of a stream's audio that wait for the search; it is then read no "
        "faster",
    )
    message_bytes: int = _limit(1 << 20, "bytes of a message of a stream")
    body_bytes: int = _limit(200 << 20, "bytes of a request with a file")
    file_s: float = _limit(4 * 3600.0, "seconds of a request's audio")
    boosts: int = _limit(20_000, "entries of a boost list")
    boost_chars: int = _limit(64, "characters of an entry of a boost list")
    idle_s: float = _limit(
        10.0, "seconds without a message after which a stream is closed"
    )
    unread_s: float = _limit(
        10.0, "seconds that a client may leave its messages unread"
    )
    requests: int = _limit(64, "requests with files that are worked on or wait")
    drain_s: float = _limit(
        30.0, "seconds from the first signal to stop until streams are cut off"
    )
    url_bytes: int = _limit(128 << 10, "bytes of an address, with its query")

    @staticmethod
    def flag(name: str) -> str:
        """Name the flag of `wfstdec serve` that sets a limit, for errors."""
        return "--max-" + name.replace("_", "-")

    @classmethod
    def remedy(cls, name: str) -> str:
        """Say what raises a limit, for errors."""
        return f"the server's {cls.flag(name)} allows more"

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name.endswith("_s"):
                self.check(name, lambda x: x > 0, "seconds, above 0")
            else:
                self.check_count(name)
