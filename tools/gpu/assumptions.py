"""Assumptions of the kernels about a GPU: a small kernel each, its answer known.

for assumption in ASSUMPTIONS:
    wrong = assumption.check(machine)        # None where it holds, else what was found

The known answers are NumPy's, made at hand; that of `log_add` is kept as a digest too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tools.gpu import log_add
from tools.gpu.probe_program import GIVEN, IN_GLOBAL, IN_SHARED, LEASTS, SMALL, Machine
from wfstdec.gpu.device import Grid, launch

PLACES = {"global memory": IN_GLOBAL, "shared memory": IN_SHARED}
_SEED = 22
_PEEKS = 2000


@dataclass(frozen=True)
class Assumption:
    """A thing that kernels take for granted.

    Attributes:
        name: What it is.
        check: Launches a kernel: None where all is as it should be, else what is not.
        needed: Whether the search that there is relies on it; else one to come does.
    """

    name: str
    check: Callable[[Machine], str | None]
    needed: bool = True


def _differ(found: np.ndarray, expected: np.ndarray) -> str | None:
    """Describe where two arrays of integers differ."""
    at = np.flatnonzero(found != expected)
    if not len(at):
        return None
    i = at[0]
    return (
        f"{len(at)} of {len(found)} words differ, the first at {i}: "
        f"{int(found[i]):#x}, expected {int(expected[i]):#x}"
    )


def by_value(machine: Machine) -> str | None:
    """A record that a kernel takes by value and writes back, field by field."""
    given = np.zeros(1, GIVEN)
    given["first"], given["second"], given["third"] = 0x89ABCDEF, -1.5e-40, 2**63 + 5
    given["fourth"], given["fifth"] = np.pi, 7
    bits = int(given["second"].view(np.uint32)[0]), int(given["fourth"].view("u8")[0])
    expected = [0x89ABCDEF, bits[0], 2**63 + 5, bits[1], 7, 32]
    grid, back = Grid("give_back", 1), np.zeros(6, np.uint64)
    found = launch(machine.device(32), grid, given, {"back": back})
    return _differ(found["back"], np.array(expected, np.uint64))


def all_shared_memory(machine: Machine) -> str | None:
    """Write every word of the most shared memory that a block may ask for."""
    count = machine.most_shared // 4
    found = machine.run(
        "fill_shared",
        512,
        {"found": np.zeros(1, np.uint32)},
        shared_bytes=4 * count,
        count=count,
    )["found"]
    return _differ(found, np.array([count], np.uint32))


def least_of_keys(machine: Machine) -> str | None:
    """64-bit minima through a pointer to either memory."""
    rng = np.random.default_rng(_SEED)
    keys = rng.integers(0, 2**64, 5000, np.uint64, endpoint=False)
    expected = np.array([keys[i::LEASTS].min() for i in range(LEASTS)])
    return _in_both(
        lambda place: machine.run(
            "least_keys",
            256,
            {
                "keys": keys,
                "table": np.zeros(LEASTS, np.uint64),
                "times": np.zeros(LEASTS, np.uint64),
            },
            count=len(keys),
            place=place,
        )["times"],
        expected,
    )


def slots_by_swap(machine: Machine) -> str | None:
    """64-bit compare-and-swap through a pointer to either memory: keys into a table."""
    rng = np.random.default_rng(_SEED)
    few = rng.integers(0, 2**63, SMALL // 2, np.uint64)
    keys = rng.permutation(np.tile(few, 4))
    expected = np.sort(np.unique(keys))

    def claimed(place: int) -> np.ndarray:
        back = machine.run(
            "claim_slots",
            512,
            {
                "keys": keys,
                "table": np.zeros(SMALL, np.uint64),
                "times": np.zeros(SMALL, np.uint64),
                "found": np.zeros(1, np.uint32),
            },
            count=len(keys),
            num_slots=SMALL,
            place=place,
        )
        there = np.sort(back["times"])[: len(expected)]
        return np.append(there, back["found"].astype(np.uint64))

    return _in_both(claimed, np.append(expected, np.uint64(len(expected))))


def peeks(machine: Machine) -> str | None:
    """`ld.relaxed.cta` of words that atomics lower, in either memory."""

    def seen(place: int) -> np.ndarray:
        arrays = {"table": np.zeros(1, np.uint64), "found": np.zeros(4, np.uint32)}
        run = machine.run("peek_at_words", 256, arrays, steps=_PEEKS, place=place)
        return run["found"][:3]

    return _in_both(seen, np.array([0, 0, 256], np.uint32))


def vector_loads(machine: Machine) -> str | None:
    """`ld.global.nc.v4`: 16 bytes at once through the read-only cache."""
    words = np.random.default_rng(_SEED).integers(0, 2**32, 4096, np.uint32)
    arrays = {"words": words, "found": np.zeros_like(words)}
    found = machine.run("read_quads", 128, arrays, count=len(words))["found"]
    return _differ(found, words.reshape(-1, 4)[:, ::-1].ravel())


def shuffles(machine: Machine) -> str | None:
    """Shuffles of a warp, a ballot, and sums over a block by both."""
    words = np.random.default_rng(_SEED).integers(0, 2**20, 512, np.uint32)
    warps = words.reshape(-1, 32)
    lanes = np.uint32(1) << np.arange(32, dtype=np.uint32)
    expected = [
        warps.cumsum(1, np.uint32),
        np.cumsum(words, dtype=np.uint32) - words + words.sum(dtype=np.uint32),
        words.reshape(-1, 2)[:, ::-1],
        np.repeat(warps[:, 5], 32),
        np.repeat(((warps & 1) * lanes).sum(1, np.uint32), 32),
    ]
    arrays = {"words": words, "found": np.zeros(5 * 512, np.uint32)}
    found = machine.run("exchange", 512, arrays)["found"]
    return _differ(found, np.concatenate([one.ravel() for one in expected]))


def reductions(machine: Machine) -> str | None:
    """`redux.sync` of a warp; before compute capability 8.0 there is none."""
    words = np.random.default_rng(_SEED).integers(0, 2**32, 64, np.uint32)
    warps = words.reshape(-1, 32)
    least, total = warps.min(1), warps.sum(1, np.uint32)
    expected = np.repeat([least, total, np.ones_like(total)], 32)
    if machine.capability < 80:
        expected[:] = 0
    arrays = {"words": words, "found": np.full(3 * 64, 9, np.uint32)}
    return _differ(machine.run("reduce", 64, arrays)["found"], expected)


def arithmetic(machine: Machine) -> str | None:
    """Float32 as IEEE 754 has it: subnormal numbers kept, nothing fused, division."""
    a, b, c = _operands()
    with np.errstate(all="ignore"):
        expected = [a * b + c, a / b, a + b, a * b]
    words = np.concatenate([a, b, c]).view(np.uint32)
    arrays = {"words": words, "found": np.zeros(4 * len(a), np.uint32)}
    found = machine.run("calculate", 128, arrays, blocks=8, count=len(words))["found"]
    return _differ(found, np.concatenate(expected).view(np.uint32))


def _operands() -> list[np.ndarray]:
    """Three times as many finite numbers; a third make subnormal results."""
    rng, count = np.random.default_rng(_SEED), 3000
    signs = rng.choice(np.array([-1.0, 1.0], np.float32), (3, count))
    sizes = rng.random((3, count), np.float32) + np.float32(1)
    powers = rng.integers(-30, 30, (3, count))
    powers[:2, ::3] -= 60  # products below 2^-126
    powers[2, ::3] = -140
    a, b, c = (signs * np.ldexp(sizes, powers)).astype(np.float32)
    a[1::3] /= 3
    c[1::3] = -(a[1::3] * b[1::3])  # nothing but what is fused
    return [a, b, c]


def halves(machine: Machine) -> str | None:
    """All float16 but those that are no number, subnormal ones too, as float32."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    arrays = {"found": np.zeros(1 << 16, np.uint32)}
    found = machine.run("widen_halves", 256, arrays, blocks=8, count=1 << 16)["found"]
    number = ~np.isnan(every)
    expected = every.astype(np.float32).view(np.uint32)
    return _differ(found[number], expected[number])


def sums_of_logs(machine: Machine) -> str | None:
    """`log_add` over 2^20 inputs, against kept bits."""
    a, b = log_add.inputs()
    arrays = {
        "words": np.concatenate([a, b]).view(np.uint32),
        "found": np.zeros(len(a), np.uint32),
    }
    found = machine.run("add_logs", 256, arrays, blocks=64, count=2 * len(a))["found"]
    if log_add.digest(found.view(np.float32)) == log_add.KEPT:
        return None
    at_hand = log_add.log_add(a, b)
    differing = _differ(found, at_hand.view(np.uint32)) or "NumPy's here are the same"
    return f"other bits than were kept; against NumPy's at hand: {differing}"


def _in_both(find: Callable[[int], np.ndarray], expected: np.ndarray) -> str | None:
    """Describe what differs in either memory."""
    for name, place in PLACES.items():
        differing = _differ(find(place), expected)
        if differing is not None:
            return f"in {name}: {differing}"
    return None


ASSUMPTIONS = (
    Assumption("a record by value", by_value),
    Assumption("all shared memory that a block may have", all_shared_memory),
    Assumption("64-bit atomicMin", least_of_keys),
    Assumption("64-bit compare-and-swap", slots_by_swap),
    Assumption("ld.relaxed.cta", peeks),
    Assumption("ld.global.nc.v4", vector_loads),
    Assumption("shuffles and sums over a block", shuffles),
    Assumption("subnormal numbers, no fma, IEEE division", arithmetic),
    Assumption("float16", halves),
    Assumption("redux.sync", reductions, needed=False),
    Assumption("log_add, 2^20 inputs", sums_of_logs, needed=False),
)
"""All of them, what launches need first."""
