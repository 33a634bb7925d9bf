"""Batches cut to a device's memory, and what is left where one of the parts fails.

parts = parts_that_fit(lengths, room, bytes_of, block_bytes, num_blocks)
found = decode_parts(device, parts, decode, read)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from wfstdec.errors import DeviceError, LogprobError
from wfstdec.gpu.budget import DeviceMemoryError
from wfstdec.gpu.device import Device
from wfstdec.search.contract import Read

_MOST_NAMED = 20
"""Utterances that a message names."""


def parts_that_fit(
    lengths: Sequence[int],
    room: int,
    bytes_of: Callable[[int], int],
    block_bytes: int,
    num_blocks: int,
) -> Iterator[list[int]]:
    """Utterances that fit side by side by the plan, the longest first.

    Args:
        lengths: Frames of each.
        room: Bytes that all of them may take.
        bytes_of: What an utterance of so many frames takes.
        block_bytes: Scratch of a block.
        num_blocks: Blocks that run side by side.
    """
    part: list[int] = []
    taken = 0
    # Of like length together: a launch takes as long as its longest utterance.
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        one = bytes_of(lengths[i])
        scratch = block_bytes * min(len(part) + 1, num_blocks)
        if part and taken + one + scratch > room:
            yield part
            part, taken = [], 0
        part.append(i)
        taken += one
    if part:
        yield part


def decode_parts(
    device: Device,
    parts: Iterable[Sequence[int]],
    decode: Callable[[Sequence[int]], Sequence[Any]],
    read: Read | None = None,
) -> list[Any]:
    """Decode parts one after the other; what was found, by utterance.

    Args:
        device: Where.
        parts: Utterances that go side by side, all of them together.
        decode: Decodes some, in ascending order.
        read: Makes of what was found what is asked for; None: nothing.

    Raises:
        DeviceMemoryError: Not even one utterance fits.
        LogprobError: A number is no log-prob: the first utterance that has one.
        DeviceError: The device failed; has what was found in the parts that were done.
    """
    found: dict[int, Any] = {}

    def done() -> dict[int, Any]:
        return found if read is None else {i: read(i, one) for i, one in found.items()}

    bad: list[LogprobError] = []
    left = [sorted(part) for part in parts][::-1]
    everyone = {i for part in left for i in part}
    while left:
        part = left.pop()
        try:
            found.update(zip(part, decode(part), strict=True))
        except LogprobError as error:
            assert isinstance(error.utterance, int)
            error.utterance = part[error.utterance]
            bad.append(error)  # another part may have one before it
        except DeviceMemoryError:
            # The plan is an estimate: what does not fit after all is halved.
            if len(part) < 2:
                raise
            half = len(part) // 2
            left += [part[half:], part[:half]]
        except device.failures as error:
            missing = everyone - set(found)
            raise DeviceError(_failed(error, missing), missing, done()) from error
    if bad:
        raise min(bad, key=attrgetter("utterance"))
    return [one for _, one in sorted(done().items())]


def _failed(error: Exception, missing: set[int]) -> str:
    """Make the error that says what a device's failure left undone."""
    named = ", ".join(map(str, sorted(missing)[:_MOST_NAMED]))
    more = ", ..." if len(missing) > _MOST_NAMED else ""
    return (
        f"the device failed ({type(error).__name__}: {error}) before utterances {named}"
        f"{more} were done, {len(missing)} in all; those that were are in `done`: "
        "decode the others by backend='cpu', the device may need a new process"
    )
