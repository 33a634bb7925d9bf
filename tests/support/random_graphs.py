"""Small random graphs, and all that a search on them takes: made to break it.

    rng = np.random.default_rng(17)
    graph = random_graph(rng)
    utterance = random_logprobs(rng, 6, len(graph.tokens))
    options, boosts = random_options(rng), random_boosts(rng, graph)
    phrases = random_phrases(rng, graph)

The graphs mean nothing. They have parallel arcs, equal costs, negative costs, costs of
0, chains and fans of epsilon arcs, words on every kind of arc, states that lead nowhere
and labels that come several times in a row.
"""

import dataclasses
import itertools
import tempfile

import numpy as np
from text_graphs import text_graph

from wfstdec import (
    CompiledBoosts,
    PackedGraph,
    PhraseCompiler,
    PhraseOptions,
    WfstOptions,
    from_openfst,
    to_openfst,
    token_table,
)
from wfstdec.boost.compiled import compile_word_boosts
from wfstdec.boost.kernels import max_credit_per_arc
from wfstdec.errors import GraphError
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.topology import compose_topology
from wfstdec.graph.arcs import FstArrays, GraphInfo
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.text.vocabulary import Pronunciations, Vocabulary

SMALL, SET_FULL, OVER_SET, LARGE = range(2, 6), 63, 64, 70
"""Numbers of tokens: few; the most that a set of 64 bits holds; one more; more."""


def random_graph(rng, num_tokens=None, **kinds):
    """A packed graph; see `random_fst` for the arguments."""
    while True:
        packed = random_fst(rng, num_tokens, **kinds)
        try:
            return PackedGraph.pack(*packed)
        except GraphError as error:
            assert "can be reached from the start" in str(error), error


def random_fst(
    rng, num_tokens=None, *, num_states=None, unique_labels=None, arcs_per_state=None
):
    """Draw arguments of `PackedGraph.pack`: an FST, its repeats, tables and facts."""
    if num_tokens is None:
        few = int(rng.choice(SMALL))
        num_tokens = int(rng.choice([few, 1, SET_FULL, OVER_SET, LARGE], p=WEIGHTS))
    num_states = num_states or int(rng.integers(1, 20))
    arcs_per_state = arcs_per_state or float(rng.uniform(1, 8))
    if unique_labels is None:
        unique_labels = bool(rng.random() < 0.5)
    vocabulary, info = random_tables(rng, num_tokens)
    state, ilabel, nextstate = _random_arcs(
        rng, num_tokens, num_states, int(arcs_per_state * num_states)
    )
    if unique_labels:
        keep = _first_of_each_label(state, ilabel)
        state, ilabel, nextstate = state[keep], ilabel[keep], nextstate[keep]
    order = np.argsort(state, kind="stable")
    state, ilabel, nextstate = state[order], ilabel[order], nextstate[order]
    has_word = rng.random(len(state)) < rng.choice([0, 0.3, 1])
    olabel = np.where(
        has_word, rng.integers(1, len(vocabulary.words), len(state)), EPSILON
    )
    final_cost = np.full(num_states, np.inf, np.float32)
    finals = rng.random(num_states) < rng.choice([0.1, 0.4, 1])
    final_cost[finals] = random_costs(rng, int(finals.sum()))
    fst = FstArrays(
        start=int(rng.integers(num_states)),
        final_cost=final_cost,
        state_arc_splits=np.searchsorted(state, np.arange(num_states + 1)),
        ilabel=ilabel.astype(np.int32),
        olabel=olabel.astype(np.int32),
        nextstate=nextstate.astype(np.int32),
        cost=random_costs(rng, len(state)),
    )
    repeat = (rng.random(len(state)) < 0.3) & (ilabel != EPSILON)
    return fst, repeat, vocabulary, info


WEIGHTS = (0.7, 0.02, 0.08, 0.08, 0.12)


def random_product(rng, num_tokens=None, topology="normal"):
    """A packed T o LG, its states in any order, of a random LG; see `random_fst`."""
    while True:
        try:
            return PackedGraph.pack(*random_tlg(rng, num_tokens, topology))
        except GraphError as error:
            assert "a start state" in str(error), error


def foreign_product(rng):
    """A random product as other tools write it: without the flags of repeats."""
    graph = random_product(rng, topology=str(rng.choice(["normal", "compact"])))
    with tempfile.TemporaryDirectory() as folder:
        to_openfst(graph, f"{folder}/tlg.fst")
        return from_openfst(f"{folder}/tlg.fst", tokens=graph.tokens, words=graph.words)


KINDS = (
    *("normal", "compact", "minimal", "normal-selfless"),
    *("compact-selfless", "random"),
)
"""T o LG of each topology, and graphs that are none."""


def random_of_kind(rng, kind, num_tokens=None):
    """A graph of one of `KINDS`."""
    if kind == "random":
        return random_graph(rng, num_tokens)
    return random_product(rng, num_tokens, kind)


def random_tlg(rng, num_tokens=None, topology="normal"):
    """Draw arguments of `PackedGraph.pack`, as `random_fst`, of a random T o LG."""
    if num_tokens is None:
        few = int(rng.choice([3, 4, 6]))
        num_tokens = int(rng.choice([few, SET_FULL, OVER_SET, LARGE, 130]))
    lg, _, vocabulary, info = random_fst(
        rng,
        num_tokens,
        num_states=int(rng.integers(1, 9)),
        unique_labels=bool(rng.random() < 0.7),
    )
    blank = ilabel_of(vocabulary.tokens.blank)
    cost = np.where(lg.ilabel == blank, np.float32(np.inf), lg.cost)
    labels = LabelSpace(vocabulary.tokens, vocabulary.words)
    tlg = compose_topology(topology, dataclasses.replace(lg, cost=cost), labels)
    order = rng.permutation(tlg.num_states)  # a state's place by its number
    arcs = np.argsort(order[tlg.arc_state()], kind="stable")
    counts = np.diff(tlg.state_arc_splits)[np.argsort(order)]
    ilabel, repeat = labels.split_repeats(tlg.ilabel[arcs])
    tlg = FstArrays(
        start=int(order[tlg.start]) if tlg.num_states else 0,
        final_cost=tlg.final_cost[np.argsort(order)],
        state_arc_splits=np.concatenate([[0], np.cumsum(counts)]),
        ilabel=ilabel,
        olabel=tlg.olabel[arcs],
        nextstate=order[tlg.nextstate[arcs]].astype(np.int32),
        cost=tlg.cost[arcs],
    )
    return tlg, repeat, vocabulary, GraphInfo("", marks_repeats=True)


def _random_arcs(rng, num_tokens, num_states, num_arcs):
    """States, ilabels and nextstates; epsilon arcs only go onwards in some order."""
    state = rng.integers(0, num_states, num_arcs)
    nextstate = rng.integers(0, num_states, num_arcs)
    ilabel = ilabel_of(rng.integers(0, num_tokens, num_arcs))
    if rng.random() < 0.3:  # a few labels again and again
        ilabel = rng.choice(ilabel_of(rng.integers(0, num_tokens, 2)), num_arcs)
    position = rng.permutation(num_states)
    forward = position[state] < position[nextstate]
    ilabel[forward & (rng.random(num_arcs) < rng.choice([0, 0.4, 0.9]))] = EPSILON
    parts = [(state, ilabel, nextstate)]
    if rng.random() < 0.2:  # a chain of epsilon arcs through all states
        chain = np.argsort(position)
        parts.append((chain[:-1], np.zeros(num_states - 1, int), chain[1:]))
    if rng.random() < 0.3:  # a row with every label
        labels = ilabel_of(np.arange(num_tokens))
        source = np.full(num_tokens, rng.integers(num_states))
        parts.append((source, labels, rng.integers(0, num_states, num_tokens)))
    if rng.random() < 0.3:  # parallel arcs
        again = rng.integers(0, max(num_arcs, 1), num_arcs // 3)
        parts.append((state[again], ilabel[again], nextstate[again]))
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def _first_of_each_label(state, ilabel):
    """Positions of the arcs to keep so that no row has a token label twice."""
    seen, keep = set(), []
    for i, key in enumerate(zip(state.tolist(), ilabel.tolist(), strict=True)):
        if key[1] == EPSILON or key not in seen:
            keep.append(i)
        seen.add(key)
    return np.array(keep, int)


def random_costs(rng, count):
    """Costs float32; coarse ones tie often."""
    kind = rng.choice(5, p=[0.23, 0.23, 0.26, 0.23, 0.05])
    if kind == 0:
        return np.zeros(count, np.float32)
    if kind == 1:
        return (rng.integers(-4, 9, count) / 4).astype(np.float32)
    low = rng.choice([0, -1])
    costs = rng.uniform(low, 3, count) * {3: 100, 4: 1e7}.get(kind, 1)
    return costs.astype(np.float32)


def random_tables(rng, num_tokens, num_words=None):
    """A vocabulary with the blank anywhere, and facts of a graph."""
    num_words = num_words or int(rng.integers(1, 7))
    blank = int(rng.integers(num_tokens))
    names = [f"t{i}" for i in range(num_tokens)]
    names[blank] = "<blank>"
    others = [i for i in range(num_tokens) if i != blank]
    entries = []
    if others:
        for _ in range(int(rng.integers(0, 3 * num_words))):
            labels = rng.choice(others, size=int(rng.integers(1, 4))).tolist()
            entries.append((int(rng.integers(1, num_words + 1)), tuple(labels)))
    fillers = [i for i in others if rng.random() < 0.2]
    vocabulary = Vocabulary(
        tokens=token_table(names),
        words=("<eps>", *(f"w{i}" for i in range(1, num_words + 1))),
        entries=Pronunciations.from_lists(
            entries, rng.integers(0, 3, len(entries)).tolist()
        ),
        separators=tuple(fillers),
        separated=len(fillers) == 1,
    )
    topology = str(rng.choice(["", "normal"]))
    return vocabulary, GraphInfo(topology, marks_repeats=bool(rng.random() < 0.7))


def random_logprobs(rng, num_frames, num_tokens):
    """Log-probs float32 [T, V]: fine, coarse, equal, above 0, many of them masked."""
    x = rng.uniform(-5, 0, (num_frames, num_tokens))
    kind = rng.integers(5)
    if kind == 0:
        x = np.round(2 * x) / 2
    elif kind == 1:
        x[:] = 0
    elif kind == 2:
        x += 4
    elif kind == 3:
        x *= rng.choice([1e-3, 50])
    impossible = rng.choice([-np.inf, -np.inf, -1e20, -1e4])
    x[rng.random(x.shape) < rng.choice([0, 0.1, 0.5])] = impossible
    return x.astype(np.float32)


def random_options(rng):
    """Options of every kind, the extremes among them."""
    max_active = [None, 1, 2, 3, 5, 100][rng.integers(6)]
    beam = float(rng.choice([0, 0.5, 1, 3, 8, 30, np.inf]))
    rng.integers(1, 9), rng.integers(4)  # tests name seeds that need these draws
    return WfstOptions(
        beam=beam,
        max_active=max_active,
        acoustic_scale=float(rng.choice([1, 1, 0, 0.3, 2.5])),
        lm_scale=float(rng.choice([1, 1, 0, 0.8, 2.5])),
        word_insertion=float(rng.choice([0, 0, 0.7, -0.5])),
        blank_penalty=float(rng.choice([0, 0, 1.5, -1])),
        blank_skip_threshold=[None, None, 1.0, 0.9, 0.1][rng.integers(5)],
        beam_delta=[None, None, 0.0, 0.5, 4.0][rng.integers(5)],
    )


def random_boosts(rng, graph):
    """A bonus, now and then negative or large, for some words; or None."""
    if rng.random() < 0.4:
        return None
    bonuses = rng.choice([0.5, 2.25, -1.0, 0.0, 40.0, 1e6], size=len(graph.words))
    drawn = rng.random(len(graph.words)) < 0.5
    pairs = zip(graph.words[1:], bonuses[1:].tolist(), drawn[1:].tolist(), strict=True)
    return {word: bonus for word, bonus, take in pairs if take}


def random_words(rng, graph, options):
    """Compiled words, or none; mostly such as a search pays at once."""
    boosts = random_boosts(rng, graph)
    if boosts is not None and rng.random() < 0.8:
        most = float(max_credit_per_arc(options.beam))
        boosts = {word: min(bonus, most) for word, bonus in boosts.items()}
    return CompiledBoosts(compile_word_boosts(boosts, graph.word_ids)[0])


def random_compiled(rng, graph, options):
    """Compiled words and phrases, or one of them, or none."""
    boosts = random_words(rng, graph, options)
    if rng.random() < 0.4:
        return boosts
    return dataclasses.replace(boosts, phrases=random_phrases(rng, graph))


def random_phrases(rng, graph, unit=None):
    """Compiled phrases of few labels; of tokens where the graph marks repeats."""
    compile_them, phrases = phrases_of_graph(rng, graph, unit)
    return compile_them(phrases)


def phrases_of_graph(rng, graph, unit=None):
    """Maker of a graph's phrase compiler, each time anew; and such phrases."""
    if unit is None:
        unit = "token" if graph.info.marks_repeats and rng.random() < 0.5 else "word"
    labels = graph.tokens if unit == "token" else graph.words
    few = rng.integers(unit == "word", len(labels), 3)
    options = PhraseOptions(
        uniform=bool(rng.random() < 0.5), weights_are_totals=bool(rng.random() < 0.5)
    )

    def spell(phrases):
        return [[tuple(few[int(i)] for i in spelt.split())] for spelt in phrases]

    weights = rng.choice([[1, 2, 0.3], [1, 0, -1], [0, 0, 0], [5, -2, 1e5]])
    phrases = {
        " ".join(map(str, rng.integers(0, 3, rng.integers(1, 5)))): rng.choice(weights)
        for _ in range(rng.integers(1, 9))
    }
    boundary = int(few[0]) if unit == "token" and rng.random() < 0.2 else None
    amounts = {
        phrase: weight
        for phrase, weight in phrases.items()
        if any(few[int(i)] != boundary for i in phrase.split())
    }

    def compile_them(phrases):
        return PhraseCompiler(spell, labels, options, boundary).compile(phrases)

    return compile_them, amounts


def dense_graph(rng, num_states=25):
    """Every state leads to every other by some token, so that no search dies."""
    lines = [
        f"{s} {d} {rng.choice(['_', 'a', 'b'])} {rng.choice(['-', '-', 'A'])} "
        f"{rng.integers(0, 8) / 4}"
        for s, d in itertools.product(range(num_states), repeat=2)
    ]
    chain = [f"{s} {s + 3} - - 0.5" for s in range(num_states - 3)]
    return text_graph("\n".join([*lines, *chain, f"{num_states - 1} 0"]))
