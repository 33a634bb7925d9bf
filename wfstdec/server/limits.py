"""Limits of the server: what clients may ask of the machine, each an option."""

from __future__ import annotations

from dataclasses import dataclass

from wfstdec.search.options import CheckedOptions


@dataclass(frozen=True)
class Limits(CheckedOptions):
    """Limits on what clients ask; errors name the flag that raises a limit.

    Attributes:
        streams: Streams at once.
        buffered_s: Seconds of audio of a stream that wait for the search; its reader
            then stops receiving.
        message_bytes: Bytes of a message of a stream.
        body_bytes: Bytes of a request.
        file_s: Seconds of audio of a request.
        boosts: Entries of a boost list.
        boost_chars: Characters of an entry.
        idle_s: Seconds without a message after which a stream is closed.
        unread_s: Seconds that a client may leave its messages unread.
        requests: Requests with files that are worked on or wait.
        drain_s: Seconds from the first signal to stop until streams are cut off.
        url_bytes: Bytes of an address, with its query.

    Raises:
        OptionError: A value is out of range.
    """

    streams: int = 256
    buffered_s: float = 10.0
    message_bytes: int = 1 << 20
    body_bytes: int = 200 << 20
    file_s: float = 4 * 3600.0
    boosts: int = 20_000
    boost_chars: int = 64
    idle_s: float = 10.0
    unread_s: float = 10.0
    requests: int = 64
    drain_s: float = 30.0
    url_bytes: int = 128 << 10

    @staticmethod
    def flag(name: str) -> str:
        """Name the flag of `wfstdec serve` that sets a limit, for errors."""
        return "--max-" + name.replace("_", "-")

    @classmethod
    def remedy(cls, name: str) -> str:
        """Say what raises a limit, for errors."""
        return f"the server's {cls.flag(name)} allows more"

    def __post_init__(self) -> None:
        """Check every value."""
        for name in self.__dataclass_fields__:
            if name.endswith("_s"):
                self.check(name, lambda x: x > 0, "seconds, above 0")
            else:
                self.check_count(name)
