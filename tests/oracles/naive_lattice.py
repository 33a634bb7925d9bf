"""The oracle of lattices: every path of a pruned search, by trying all of them.

It shares no code and no idea with the library: prefixes of paths are listed frame by
frame, all of them, each with its own total; nothing is recombined or passed backwards.

    prefixes   all ways to pass through the frames so far
    least      of each state, the cost of its cheapest prefix
    allowed    a step from a state s over an arc a, if least(s) + cost(a) is within the
               cutoff of the frame that it leads into
    paths      prefixes of the last frame that end where they may, and what each costs

Costs are float64 nats. Cases have costs that are multiples of 1/8, so that float32 adds
them exactly too, and no bonus is above half of the beam: it is paid at once.
"""

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

INF = math.inf


class Arc(NamedTuple):
    """An arc of the graph; token and word are None for epsilon."""

    number: int
    state: int
    nextstate: int
    token: int | None
    word: str | None
    cost: float


class Case(NamedTuple):
    arcs: list[Arc]
    final: list[float]
    logprobs: list[list[float]]
    beam: float = INF
    max_active: int | None = None
    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    word_insertion: float = 0.0
    bonus: dict[str, float] = {}


class Path(NamedTuple):
    """A path: its steps (frames passed with it, arc), its words, its cost."""

    steps: tuple[tuple[int, int], ...]
    state: int
    words: tuple[str, ...]
    cost: float


class Found(NamedTuple):
    """All paths; whether they end in final states; frames that they cover."""

    paths: list[Path]
    reached_final: bool
    num_frames: int


def step_cost(case, arc, frame):
    """Cost of an arc in a frame (of `logprobs`, None for an epsilon arc)."""
    cost = case.lm_scale * arc.cost
    if arc.word is not None:
        cost += case.word_insertion - case.bonus.get(arc.word, 0.0)
    if arc.token is not None:
        x = case.logprobs[frame][arc.token]
        cost += INF if x == -INF else case.acoustic_scale * -x
    return cost


def extend(case, path, arc, frame, now):
    words = path.words if arc.word is None else (*path.words, arc.word)
    cost = path.cost + step_cost(case, arc, frame)
    return Path((*path.steps, (now, arc.number)), arc.nextstate, words, cost)


def least_of(paths):
    """The cost of the cheapest path to each state."""
    least = defaultdict(lambda: INF)
    for path in paths:
        least[path.state] = min(least[path.state], path.cost)
    return least


def closed(case, paths, cutoff, now):
    """Paths, and those that epsilon arcs make of them within the cutoff.

    An arc may make a state cheaper where it has a bonus, so that more of its arcs are
    within the cutoff: it is done again until nothing changes.
    """
    epsilons = [arc for arc in case.arcs if arc.token is None]
    every = None
    while True:
        least = least_of(every or paths)
        found, waiting = list(paths), list(paths)
        while waiting:
            waiting = [
                extend(case, path, arc, None, now)
                for path in waiting
                for arc in epsilons
                if arc.state == path.state
                and least[arc.state] + step_cost(case, arc, None) <= cutoff
            ]
            found += waiting
        if found == every:
            return found
        every = found


def all_paths(case):
    start = [Path((), 0, (), 0.0)]
    paths, frames = closed(case, start, case.beam, 0), 0
    for frame in range(len(case.logprobs)):
        least = least_of(paths)
        best = min(least.values())
        kept = sorted((c, s) for s, c in least.items() if c - best <= case.beam)
        kept = {state for _, state in kept[: case.max_active]}
        paths = [path for path in paths if path.state in kept]
        steps = [a for a in case.arcs if a.token is not None and a.state in kept]
        through = {a.number: least[a.state] + step_cost(case, a, frame) for a in steps}
        cutoff = min(through.values(), default=INF) + case.beam
        if not min(through.values(), default=INF) < INF:
            return Found(paths, False, frames)
        allowed = [a for a in steps if through[a.number] <= cutoff]
        allowed = [a for a in allowed if through[a.number] < INF]
        frames += 1
        paths = [
            extend(case, path, arc, frame, frames)
            for path, arc in itertools.product(paths, allowed)
            if arc.state == path.state
        ]
        paths = closed(case, paths, cutoff, frames)
    ended = [
        path._replace(cost=path.cost + case.lm_scale * case.final[path.state])
        for path in paths
        if case.final[path.state] < INF
    ]
    return Found(ended or paths, bool(ended), frames)


def within(found, beam):
    best = min(path.cost for path in found.paths)
    return [path for path in found.paths if path.cost <= best + beam]


def texts(paths):
    """Words -> the cost of their cheapest path."""
    least = {}
    for path in paths:
        least[path.words] = min(path.cost, least.get(path.words, INF))
    return least


def edit_distance(one, other):
    """The fewest words to put in, leave out or exchange; by the definition."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        edit_distance(one[1:], other) + 1,
        edit_distance(one, other[1:]) + 1,
        edit_distance(one[1:], other[1:]) + (one[0] != other[0]),
    )
