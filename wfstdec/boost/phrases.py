"""Phrase boosting: credit token by token, exact in total.

    weights, speller = {"new york": 1.0, "san jose": 2.0}, by_lexicon(lexicon)
    boosts = compile_phrases(weights, speller, options, "token", num_labels)
    state = boosts.start;  cost, state = boosts.step(state, token);  boosts.final(state)

Amounts. A spelling of n labels has base(n) = credit(1) + ... + credit(n), with
credit(1) = c0 and credit(d) = c0 * beta + ln(d) after ("TurboBias", arXiv 2508.07014;
c0 for all where `uniform`). A phrase's amount is its weight times the base of its
longest spelling (or its weight itself, on request), whichever spelling occurs. Without
a weight it follows from the list, if the compiler has a rule. A phrase occurs wherever
one of its spellings ends. A spelling that contains another of the same phrase is
removed first, so that no two end, or begin, at one place.

Credit in advance. A state n is a string that is a proper prefix of a spelling: the
longest such suffix of the labels so far. For a spelling s of length |s| let
scale(s) = amounts of the phrases spelled s / paid(|s|). The credit of a state is

    phi(n) = max(0, scale(s) for all s that n is a proper prefix of) * paid(|n|)

so for a single spelling it is the amount paid for its labels so far. phi(root) = 0.
paid = base; where `uniform`, little of it is paid for the first label, with which many
phrases of a long list begin.

Accounting. A label takes state n to m, and completes the spellings that end there;
done = their amounts, over all of them (the label's node and its failure links).

    cost of the label = phi(n) - phi(m) - done       final cost of n = phi(n)

Over the states of an utterance the differences of phi add up to phi(root) = 0; the rest
is minus the sum of done. It counts each occurrence of each phrase once, by its amount.
So the total does not depend on the order of the list or on other phrases, and an
incomplete phrase gets nothing. Amounts and credits are whole multiples of 1/16384 nat:
below 1024 nats all differences are exact in float32.

With a `boundary` (the token between words) a phrase counts between boundaries only:
`art` not in `heart`. Its spellings have the boundary before and after, the utterance an
implied one before it and after it; the credit of a state counts the labels after the
first boundary. So start is the state after a boundary, where phi = 0, and the final
cost of n is that of a boundary and phi after it. A boundary after a boundary leads to
the same state, so phrases continue across pauses.
"""

import functools
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice, product
from typing import NamedTuple

import numpy as np

from wfstdec.errors import BoostError, OptionError
from wfstdec.jit import jit
from wfstdec.jit.arrays import grow_tree
from wfstdec.lm import kernels
from wfstdec.lm.automaton import Automaton, BackoffModel, Unit, frozen
from wfstdec.text.lexicon import MARKS, Lexicon, spellable_words
from wfstdec.text.tokens import TokenTable

Spelling = tuple[int, ...]
Speller = Callable[[Sequence[str]], Sequence[Sequence[Spelling]]]
Defaults = Callable[[Mapping[str, int]], Mapping[str, float]]
"""Function from phrases and their numbers of labels to amounts, nats."""

MAX_SPELLINGS = 256
"""Most spellings of a phrase of many words with many pronunciations."""

_log = logging.getLogger("wfstdec.boost")


def by_words(word_ids: Mapping[str, int]) -> Speller:
    """Return phrases as sequences of word ids."""
    return partial(_word_ids_of, word_ids)


def _word_ids_of(
    ids: Mapping[str, int], phrases: Sequence[str]
) -> list[list[Spelling]]:
    found = (tuple(map(ids.get, phrase.split())) for phrase in phrases)
    return [[] if None in one else [one] for one in found]  # type: ignore[list-item]


def by_lexicon(
    lexicon: Lexicon, *, separator: int | None = None, separator_optional: bool = False
) -> Speller:
    """Return phrases as combinations of their words' pronunciations (at most 256)."""
    between: list[Spelling] = [()] if separator is None else [(separator,)]
    if separator_optional and separator is not None:
        between.append(())
    return partial(_pronunciations_of, lexicon.by_word(), between)


def _pronunciations_of(
    known: Mapping[str, Sequence[Spelling]],
    between: Sequence[Spelling],
    phrases: Sequence[str],
) -> list[list[Spelling]]:
    found = []
    for phrase in phrases:
        parts = (
            part for word in phrase.split() for part in (between, known.get(word, ()))
        )
        ways = product(*islice(parts, 1, None))
        spelt = dict.fromkeys(tuple(chain(*way)) for way in islice(ways, MAX_SPELLINGS))
        if next(ways, None):
            text = "a phrase has over %d spellings, the rest are left out"
            _log.warning(text, MAX_SPELLINGS)
        found.append(list(spelt))
    return found


def by_table(
    tokens: TokenTable,
    *,
    separator: int | None = None,
    sentencepiece_model: str | os.PathLike[str] | None = None,
) -> Speller:
    """Return phrases as spelled by `lexicon.spelling_lexicon`; arguments as there."""
    return partial(_spelt_by_table, tokens, separator, sentencepiece_model)


def _spelt_by_table(
    tokens: TokenTable,
    separator: int | None,
    sentencepiece_model: str | os.PathLike[str] | None,
    phrases: Sequence[str],
) -> Sequence[Sequence[Spelling]]:
    # All words at once: one SentencePiece call per list.
    words = list(dict.fromkeys(w for phrase in phrases for w in phrase.split()))
    lexicon, _ = spellable_words(
        words, tokens, separator=separator, sentencepiece_model=sentencepiece_model
    )
    return by_lexicon(lexicon, separator=separator)(phrases)


def by_tokenizer(
    encode: Callable[[str], Sequence[int] | Sequence[str]],
    *,
    tokens: TokenTable | None = None,
) -> Speller:
    """Return phrases as tokenised; an empty result means that one cannot be spelled."""
    return partial(_encoded_by, encode, tokens)


def _encoded_by(
    encode: Callable[[str], Sequence[int] | Sequence[str]],
    tokens: TokenTable | None,
    phrases: Sequence[str],
) -> list[list[Spelling]]:
    # Marks and the blank are not speech: a text with one has no spelling.
    unspelt = set() if tokens is None else {*MARKS, tokens.names[tokens.blank]}

    def tokens_of(text: str) -> Spelling:
        found = encode(text)
        if tokens is None:
            return tuple(int(token) for token in found)
        ids = [-1 if n in unspelt else tokens.ids.get(str(n), -1) for n in found]
        return () if -1 in ids else tuple(ids)

    return [[spelt] if spelt else [] for spelt in map(tokens_of, phrases)]


GRAIN = 1 / 16384  # amounts and credits are multiples of it
MAX_WEIGHT = 1e6
"""Largest absolute bonus or weight; no sum of costs reaches infinity."""
_ROOT = 0


@dataclass(frozen=True)
class PhraseOptions:
    """Amount of a phrase of weight 1.

    Attributes:
        c0: Nats for its first label.
        beta: Factor of `c0` for each later label; ln(depth) is added.
        uniform: `c0` for every label instead, most of it paid after the first one.
        weights_are_totals: A weight is the amount of the phrase, in nats, as with word
            boosts; the other options only determine when it is paid.
    """

    c0: float = 1.0
    beta: float = 2.0
    uniform: bool = False
    weights_are_totals: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.c0 <= MAX_WEIGHT:
            raise OptionError(f"c0={self.c0!r}, expected nats above 0")
        if not 0 <= self.beta <= MAX_WEIGHT:
            raise OptionError(f"beta={self.beta!r}, expected 0 or more")

    def base(self, length: int) -> np.ndarray:
        """Return the worth of 0, 1, ..., `length` labels, float64 [length + 1]."""
        beta = 1.0 if self.uniform else self.beta
        return _summed_credits(length, self.c0, beta, is_growing=not self.uniform)

    def paid(self, length: int) -> np.ndarray:
        """Return shares of an amount paid in advance, up to a factor; as `base`."""
        return _summed_credits(length, *_LATE) if self.uniform else self.base(length)


_LATE = 0.3, 3.0
"""`c0` and `beta` for advance payments of `uniform` amounts. With equal payments, half
of the harm of long lists to greedy searches comes from incomplete phrases."""


def _summed_credits(
    length: int, c0: float, beta: float, *, is_growing: bool = True
) -> np.ndarray:
    credit = np.full(length + 1, c0, np.float64)
    credit[0] = 0
    credit[2:] *= beta
    if is_growing:
        credit[2:] += np.log(np.arange(2, length + 1))
    return np.cumsum(credit)


@dataclass(frozen=True, eq=False, repr=False)
class PhraseBoosts(BackoffModel):
    """Compiled phrases: states and costs as in the module docstring."""

    unknown: tuple[str, ...]  # phrases without a spelling, sorted: without effect
    # nats for each occurrence of the others, before scaling
    amounts: Mapping[str, float] = field(default_factory=dict)


def compile_phrases(
    weights: Mapping[str, float | None],
    speller: Speller,
    options: PhraseOptions,
    unit: Unit,
    num_labels: int,
    boundary: int | None = None,
    defaults: Defaults | None = None,
) -> PhraseBoosts:
    """Spell and compile phrases; weights of None follow from `defaults`, or are 1."""
    texts = sorted(weights)
    spellings = speller(texts)
    unknown = tuple(t for t, spelt in zip(texts, spellings, strict=True) if not spelt)
    edge = () if boundary is None else (boundary,)
    longest = max((len(s) for spelt in spellings for s in spelt), default=0)
    base = options.base(longest)
    without: dict[str, int] = {}
    minimal: list[list[Spelling]] = []
    for text, spelt in zip(texts, spellings, strict=True):
        whole = [_between_boundaries(spelling, boundary) for spelling in spelt]
        # If a spelling contains another one, both would count.
        kept = _without_containing([s for s in whole if len(s) > len(edge)])
        if len(kept) < bool(spelt):
            raise BoostError("a spelling without labels, expected at least one")
        minimal.append(kept)
        if kept and weights[text] is None and defaults is not None:
            # The shortest: capitals are spelled with many pieces, and rarely output.
            without[text] = min(map(len, kept)) - 2 * len(edge)
    follows: Mapping[str, float] = defaults(without) if defaults and without else {}
    by_text: dict[str, float] = {}
    amounts: defaultdict[Spelling, float] = defaultdict(float)
    for text, kept in zip(texts, minimal, strict=True):
        if kept:
            # The amount is the same for all spellings: that of the longest.
            weight, length = weights[text], max(map(len, kept)) - 2 * len(edge)
            is_total = options.weights_are_totals and weight is not None
            times = 1 if is_total else float(base[length])
            amount = follows.get(text, (1 if weight is None else weight) * times)
            # Multiples of a grain add up without rounding, so that credits cancel
            # exactly and the order of a list has no effect.
            by_text[text] = amount = round(amount / GRAIN) * GRAIN
            for spelling in kept:
                amounts[spelling] += amount
    # Numbers of states follow from the order, and decide ties.
    ordered = sorted(amounts)
    lengths = np.array([len(spelling) for spelling in ordered], np.int64)
    # The tree of sorted spellings.
    flat = np.fromiter(chain.from_iterable(ordered), np.int64, int(lengths.sum()))
    bad = flat[(flat < 0) | (flat >= num_labels)]
    if len(bad):
        raise BoostError(
            f"label {bad[0]} in a spelling, expected 0 to {num_labels - 1}"
        )
    splits = np.concatenate([[0], np.cumsum(lengths)])
    tree = _Tree(*grow_tree(flat.astype(np.int32), splits))
    worth = np.array([amounts[spelling] for spelling in ordered])
    paid = options.paid(longest)
    scale = worth / paid[lengths - 2 * len(edge)]
    depth = np.clip(tree.depth - len(edge), 0, longest)
    automaton = _assemble(tree, worth, scale, paid[depth])
    if boundary is not None:
        automaton = _bounded(automaton, boundary)
    return PhraseBoosts(automaton, unit, num_labels, unknown, by_text)


@functools.cache
def initial_states() -> PhraseBoosts:
    """Return empty phrases: one state, in which no label has an effect."""
    return compile_phrases({}, by_words({}), PhraseOptions(), "word", num_labels=1)


class _Tree(NamedTuple):
    parent: np.ndarray
    label: np.ndarray
    depth: np.ndarray
    ending: np.ndarray


def _between_boundaries(spelling: Spelling, boundary: int | None) -> Spelling:
    """Add a boundary before and after a spelling; merge runs of boundaries."""
    if boundary is None:
        return tuple(spelling)
    runs = groupby((boundary, *spelling, boundary))
    return tuple(chain.from_iterable([k] if k == boundary else run for k, run in runs))


def _bounded(automaton: Automaton, boundary: int) -> Automaton:
    """Put spellings between implied boundaries; runs of boundaries count as one."""
    if not len(automaton.arc_label):
        return automaton
    # A boundary after a boundary has no effect.
    loops = np.unique(automaton.arc_next[automaton.arc_label == boundary])
    counts = np.diff(automaton.state_arc_splits)
    source = np.repeat(np.arange(len(counts)), counts)
    labels = np.concatenate([automaton.arc_label, np.full_like(loops, boundary)])
    order = np.lexsort([labels, np.concatenate([source, loops])])
    counts[loops] += 1
    automaton = automaton._replace(
        state_arc_splits=np.concatenate([[0], np.cumsum(counts)]),
        arc_label=labels[order],
        arc_next=np.concatenate([automaton.arc_next, loops])[order],
        arc_cost=np.concatenate([automaton.arc_cost, np.zeros(len(loops))])[order],
    )
    states = np.arange(len(automaton.final_cost), dtype=np.int32)
    costs, nextstates = np.empty(len(states), np.float32), np.empty_like(states)
    models, labels = np.zeros_like(states), np.full_like(states, boundary)
    kernels.steps(automaton, models, states, labels, costs, nextstates)
    final_cost = costs + automaton.final_cost[nextstates]
    return frozen(automaton._replace(final_cost=final_cost, model_start=nextstates[:1]))


def _assemble(
    tree: _Tree, worth: np.ndarray, scale: np.ndarray, paid: np.ndarray
) -> Automaton:
    """Return the automaton: amounts and scales by spelling, payments by node."""
    by_depth = np.argsort(tree.depth, kind="stable")
    num_children = np.bincount(tree.parent[1:], minlength=len(by_depth))
    is_state = num_children > 0
    is_state[_ROOT] = True
    child = 1 + np.argsort(tree.parent[1:], kind="stable")
    splits = np.concatenate([[0], np.cumsum(num_children)])
    children = (splits, child, tree.label[child])
    # Amounts and scales of spellings, by their nodes; 0 at other nodes.
    own, ends = np.zeros((2, len(by_depth))), tree.ending >= 0
    own[:, ends] = worth[tree.ending[ends]], scale[tree.ending[ends]]
    nodes = tree.parent, tree.label, by_depth
    failure, nearest, done = _suffixes(*nodes, children, is_state, own[0])
    phi = np.round(_greatest_below(tree.parent, own[1]) * paid / GRAIN) * GRAIN
    states = by_depth[is_state[by_depth]]
    number = np.zeros(len(by_depth), np.int32)
    number[states] = np.arange(len(states))
    credit = phi[states]
    backoff_state = np.full(len(states), -1, np.int32)
    backoff_state[1:] = number[nearest[failure[states[1:]]]]
    # Nodes by depth are in the order of their parents, which is that of states, and
    # children in the order of their labels: these are the rows of arcs.
    arcs = by_depth[1:]
    source, target = number[tree.parent[arcs]], number[nearest[arcs]]
    automaton = Automaton(
        state_arc_splits=np.concatenate([[0], np.cumsum(num_children[states])]),
        arc_label=tree.label[arcs],
        arc_next=target,
        arc_cost=credit[source] - (credit[target] + done[arcs]),
        backoff_state=backoff_state,
        backoff_cost=np.where(backoff_state < 0, 0, credit - credit[backoff_state]),
        final_cost=credit,
        model_start=np.zeros(1),
        model_label_splits=np.zeros(2),
        model_default_cost=np.zeros(1),
        label_alias=np.zeros(0),
    )
    return frozen(automaton)


@jit
def _suffixes(parent, label, by_depth, children, is_state, amount):
    splits, child, child_label = children
    failure = np.full(len(parent), -1, np.int32)
    nearest, total = np.zeros(len(parent), np.int32), amount.copy()
    for node in by_depth[1:]:
        below = failure[parent[node]]
        failure[node] = _ROOT
        while below >= 0:
            end = splits[below + 1]
            found = kernels.find_arc(child_label, splits[below], end, label[node])
            if found < end and child_label[found] == label[node]:
                failure[node] = child[found]
                break
            below = failure[below]
        nearest[node] = node if is_state[node] else nearest[failure[node]]
        total[node] += total[failure[node]]
    return failure, nearest, total


@jit
def _greatest_below(parent, scale):
    """Return the greatest scale of spellings through each node, at least 0 [N]."""
    greatest = np.zeros(len(parent))
    # Nodes are numbered so that parents precede children.
    for node in range(len(parent) - 1, 0, -1):
        here = max(greatest[node], scale[node])
        greatest[parent[node]] = max(greatest[parent[node]], here)
    return greatest


def _without_containing(spelt: Sequence[Spelling]) -> list[Spelling]:
    different = dict.fromkeys(map(tuple, spelt))
    if len(set(map(len, different))) <= 1:
        return list(different)
    kept: dict[str, Spelling] = {}
    for spelling in sorted(different, key=len):
        written = f",{','.join(map(str, spelling))},"
        if not any(shorter in written for shorter in kept):
            kept[written] = spelling
    return list(kept.values())
