"""The oracle of the trie's lattices: every path of a search, by trying all of them.

    paths = every_path(case, naive_search.reader(case))      # nothing is pruned
    paths, complete = pruned_paths(case, beam, beam_size)    # no model, no boosts

A path is an alignment with one way to read it, and its total, float64 nats. Nothing is
recombined or passed backwards: prefixes are listed frame by frame, all of them.
"""

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import naive_search

INF = math.inf
BLANK, TOKEN = 0, 1
"""What the last frame was."""


class Path(NamedTuple):
    """A token for each frame; words (None: between them) with how many tokens; cost."""

    alignment: tuple[int, ...]
    pieces: tuple[tuple[str | None, int], ...]
    cost: float


def every_path(case, read):
    """All alignments with all `Reading`s that `read` gives, the best first."""
    num_frames, num_tokens = case.logprobs.shape
    blank = case.tokens.index(case.blank)
    costs, found = naive_search.frame_costs(case), []
    for alignment in itertools.product(range(num_tokens), repeat=num_frames):
        acoustic = math.fsum(costs[t, token] for t, token in enumerate(alignment))
        if acoustic < INF:
            tokens = naive_search.collapse(alignment, blank)
            for one in read(tuple(case.tokens[token] for token in tokens)):
                parts = acoustic, one.graph, one.insertion, one.boost
                total = naive_search.total(case, naive_search.Parts(*parts))
                found.append(Path(alignment, one.pieces, total))
    return sorted(least_of(found), key=lambda path: path.cost)


def least_of(paths):
    """Keep one path for each alignment and reading: a word may be listed twice."""
    least = {}
    for path in paths:
        key = path[:2]
        if key not in least or path.cost < least[key].cost:
            least[key] = path
    return list(least.values())


class _Prefix(NamedTuple):
    """A path so far: the tokens of the word that is begun, and what was last."""

    place: tuple[int, ...]
    last: int
    alignment: tuple[int, ...]
    pieces: tuple[tuple[str | None, int], ...]
    cost: float


class _Step(NamedTuple):
    """Frame's step: a token or blank, whether it continues, a word that ends before."""

    token: int
    goes_on: bool
    word: str | None
    place: tuple[int, ...]
    last: int
    cost: float


def pruned_paths(case, beam, beam_size):
    """Paths in view of a search with a lexicon, and no model and no boosts.

    Returns whether they are whole sentences, too, and the frames that they cover; None
    where rounding decides what is dropped.
    """
    prons, costs = _said(case), naive_search.frame_costs(case)
    scale = naive_search.Options(**case.options).acoustic_scale
    prefixes, frames = [_Prefix((), BLANK, (), (), 0.0)], 0
    for row in costs:
        scaled = [INF if cost == INF else scale * cost for cost in row]
        least = defaultdict(lambda: INF)
        for one in prefixes:
            state = one.place, one.last
            least[state] = min(least[state], one.cost)
        steps = {state: _steps(case, prons, *state, scaled) for state in least}
        reached = [least[s] + one.cost for s in steps for one in steps[s]]
        cutoff = min(reached, default=INF) + beam
        if not cutoff < INF and not min(reached, default=INF) < INF:
            return [_path(one) for one in prefixes], False, frames
        place_cost = defaultdict(lambda: INF)
        for state, outgoing in steps.items():
            steps[state] = [s for s in outgoing if least[state] + s.cost <= cutoff]
            for step in steps[state]:
                total = least[state] + step.cost
                place_cost[step.place] = min(place_cost[step.place], total)
        kept = sorted(place_cost, key=lambda place: (place_cost[place], place))
        kept = set(kept[:beam_size])
        # What costs more than all places that stay is dropped, where no more may stay.
        worst = max(place_cost[place] for place in kept)
        limit = worst if len(kept) == beam_size else INF
        totals = [least[s] + one.cost for s in steps for one in steps[s]]
        if limit < INF and sum(abs(total - limit) < 1e-5 for total in totals) > 1:
            return None  # float32 decides
        prefixes = [
            _extended(one, step)
            for one in prefixes
            for step in steps[one.place, one.last]
            if step.place in kept and least[one.place, one.last] + step.cost <= limit
        ]
        frames += 1
    ended = [path for one in prefixes for path in _ended(case, prons, one)]
    if not ended:
        return [_path(one) for one in prefixes], False, frames
    return least_of(ended), True, frames


def _path(prefix):
    return Path(prefix.alignment, prefix.pieces, prefix.cost)


def _said(case):
    """Tokens -> word -> the least cost of saying it so."""
    found = defaultdict(dict)
    for word, names, cost in case.entries:
        tokens = tuple(map(case.tokens.index, names))
        found[tokens][word] = min(cost, found[tokens].get(word, INF))
    return found


def _ends(case, prons, place):
    """The words that a place may end, with what they cost."""
    options = naive_search.Options(**case.options)
    for word, cost in prons.get(place, {}).items():
        yield word, options.lm_scale * cost + options.word_insertion


def _steps(case, prons, place, last, costs):
    """All that may follow in a frame of these costs."""
    options = naive_search.Options(**case.options)
    blank = case.tokens.index(case.blank)
    separator = None
    if case.separator is not None:
        separator = case.tokens.index(case.separator)
    here = place[-1] if place else separator
    found = [_Step(blank, False, None, place, BLANK, costs[blank])]
    if last == TOKEN:
        found.append(_Step(here, True, None, place, TOKEN, costs[here]))
    begun = {tokens[:n] for tokens in prons for n in range(1, len(tokens) + 1)}
    bound = separator is not None and not case.separator_optional
    for token in range(len(costs)):
        if token == blank or (token == here and last == TOKEN):
            continue
        cost = costs[token] + options.token_insertion
        leads = []
        if token != separator and (*place, token) in begun:
            leads.append((None, (*place, token), 0.0))
        if token == separator and not place:
            leads.append((None, (), 0.0))
        if place:
            for word, more in _ends(case, prons, place):
                if token == separator:
                    leads.append((word, (), more))
                elif not bound and (token,) in begun:
                    leads.append((word, (token,), more))
        found += [_Step(token, False, w, to, TOKEN, cost + c) for w, to, c in leads]
    return [step for step in found if step.cost < INF]


def _extended(prefix, step):
    pieces = prefix.pieces
    if step.word is not None:
        pieces = (*pieces, (step.word, len(prefix.place)))
    if not step.place and step.last == TOKEN and not step.goes_on:
        pieces = (*pieces, (None, 1))
    alignment, cost = (*prefix.alignment, step.token), prefix.cost + step.cost
    return _Prefix(step.place, step.last, alignment, pieces, cost)


def _ended(case, prons, prefix):
    if not prefix.place:
        yield _path(prefix)
    for word, cost in _ends(case, prons, prefix.place) if prefix.place else ():
        pieces = (*prefix.pieces, (word, len(prefix.place)))
        yield Path(prefix.alignment, pieces, prefix.cost + cost)
