"""Searches with added words: small graphs by hand, random cases."""

import dataclasses

import naive
import numpy as np
from naive_added import random_added_case
from oracle_cases import graph_by_files
from random_graphs import (
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
    random_product,
)

import wfstdec
from wfstdec import BoostEntry, CompiledBoosts, WfstDecoder
from wfstdec.boost.compiled import compile_word_boosts
from wfstdec.graph.arcs import OovExits
from wfstdec.text.vocabulary import OovWords, Pronunciations
from wfstdec.wfst.cpu.rows import row_graph_of

ARPA = (
    "\\data\\\nngram 1=5\n\n\\1-grams:\n-99 <s>\n-0.5 </s>\n-1 an\n-1 ban\n"
    "-2 <unk>\n\n\\end\\\n"
)


def small_graph(folder, topology="normal", separator=None, **options):
    """Words `an` and `ban` of the tokens a b n, and perhaps a separator."""
    texts = {
        "tokens": "<blk>\na\nb\nn\n|\n",
        "lexicon": "an a n\nban b a n\n",
        "lm": ARPA,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    files = {name: folder / name for name in texts}
    return wfstdec.build_graph(
        **files, topology=topology, separator=separator, **options
    )


def frames(text, names="_abn|"):
    """Log-probs that allow one token a frame."""
    x = np.full((len(text), len(names)), -np.inf, np.float32)
    x[np.arange(len(text)), [names.index(token) for token in text]] = 0
    return x


def boosts_of(case, listed):
    boosts = dict(case.boosts)
    for word, _, bonus in listed:
        prons = [one.tokens for one in listed if one.word == word]
        boosts[word] = BoostEntry(word, prons, bonus)
    return boosts


def with_phrases(rng, case, boosts):
    """The list with phrases of its words and the lexicon's, or of tokens."""
    words = [*boosts, *sorted(case.usable_words)]
    some = {
        " ".join(rng.choice(words, size=2)): float(rng.choice([1.5, 9.0, -1.0]))
        for _ in range(rng.integers(0, 4))
    }
    return boosts | some


def drawn_search(rng, folder):
    """A decoder of the reference, log-probs, and what is boosted."""
    topology = str(rng.choice(naive.TOPOLOGIES))
    case, listed = random_added_case(rng, topology=topology, num_frames=6)
    graph = graph_by_files(case, folder)
    x = random_logprobs(rng, int(rng.integers(0, 14)), len(graph.tokens))
    boosts = boosts_of(case, listed)
    if rng.random() < 0.5:
        boosts = with_phrases(rng, case, boosts)
    return WfstDecoder(graph, random_options(rng), "reference"), x, boosts


def random_calls_search(rng):
    """A random graph with random calls, log-probs, options, and words to add."""
    graph = random_calls_graph(rng)
    boosts = random_added_boosts(rng, graph)
    x = random_logprobs(rng, int(rng.integers(0, 9)), len(graph.tokens))
    return graph, random_options(rng), x, boosts


def with_exits(rng, graph, topology, states, return_state):
    """The graph with OOV exits at some states."""
    oov_exits = OovExits(
        state=states.astype(np.int32),
        last=rng.choice([0, *units_of(graph)], len(states)).astype(np.int32),
        cost=rng.choice([0.5, 2.0, -1.0], len(states)).astype(np.float32),
        return_state=return_state,
        word_cost=1.0,
    )
    info = dataclasses.replace(graph.info, topology=topology)
    return dataclasses.replace(graph, info=info, oov_exits=oov_exits)


def random_calls_graph(rng):
    graph = random_graph(rng)
    while len(graph.tokens) < 2:
        graph = random_graph(rng)
    num_labels, units = len(graph.tokens) + 1, units_of(graph)
    states = rng.random(graph.num_states) < 0.6
    states[rng.integers(graph.num_states)] = True
    return_state = np.full(num_labels, -1, np.int32)
    return_state[units] = rng.integers(-1, graph.num_states, len(units))
    topology = str(rng.choice(naive.TOPOLOGIES))
    return with_exits(rng, graph, topology, np.flatnonzero(states), return_state)


def units_of(graph):
    """The input labels of tokens that are not the blank."""
    count = len(graph.tokens)
    return [token + 1 for token in range(count) if token != graph.tokens.blank]


def random_added_boosts(rng, graph):
    """Words to add to a search of a graph, boosted words, perhaps phrases."""
    units = units_of(graph)
    known, texts = len(graph.words), ("p", "q", "r")
    rows = {
        (
            int(known + rng.integers(3)),
            tuple((rng.choice(units, rng.integers(1, 5)) - 1).tolist()),
        )
        for _ in range(rng.integers(1, 9))
    }
    rows = sorted(rows)
    bonus = rng.choice([0.0, 1.5, 6.0, 40.0, -1.0], 3)
    prons = Pronunciations.from_lists(rows)
    oov = OovWords(
        *(prons.word, prons.splits, prons.tokens, prons.cost),
        words=texts,
        num_known=known,
        bonus=bonus[prons.word - known].astype(np.float32),
    )
    words, _ = compile_word_boosts(random_boosts(rng, graph), graph.word_ids)
    phrases = random_phrases(rng, graph) if rng.random() < 0.5 else None
    return CompiledBoosts(words, phrases, oov)


def random_calls_product(rng):
    """A random T o LG with random exits; OOV words leave from states of their token."""
    topology = str(rng.choice(["normal", "compact"]))
    graph = random_product(rng, topology=topology)
    rows = row_graph_of(graph)
    token, state = rows.records["token"][:-1], rows.state_of_record
    return_state = np.full(len(graph.tokens) + 1, -1, np.int32)
    of_token = np.flatnonzero(
        (token < len(graph.tokens)) & (rng.random(len(token)) < 0.7)
    )
    return_state[token[of_token] + 1] = state[of_token]
    states = np.flatnonzero(rng.random(graph.num_states) < rng.choice([0.2, 0.6, 1]))
    return with_exits(rng, graph, topology, states, return_state)
