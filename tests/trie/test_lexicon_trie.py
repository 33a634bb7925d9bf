"""The trie of a lexicon: by hand, its definition on random lexicons, the errors."""

import naive_trie
import numpy as np
import pytest
from compiled import compiled

from wfstdec import Lexicon
from wfstdec.errors import LexiconError
from wfstdec.trie.lexicon_trie import build_trie, find_child, parents_of

find_child = compiled(find_child)

DTYPES = {name: np.int32 for name in ("node_child_splits", "child_token", "child_node")}
DTYPES |= {"node_child_bits": np.uint64, "node_token": np.int32}
DTYPES |= {"node_pron_splits": np.int32, "pron_word": np.int32, "pron_cost": np.float32}


def trie_of(*entries, ids=None):
    words = sorted({word for word, _, _ in entries})
    ids = {word: i for i, word in enumerate(words, 1)} if ids is None else ids
    return build_trie(naive_trie.lexicon_of(entries), ids)


def lists(trie):
    return {name: array.tolist() for name, array in trie._asdict().items()}


def by_definition(spoken):
    """The arrays, from the sorted prefixes."""
    nodes = naive_trie.nodes(spoken)
    number = {node: i for i, node in enumerate(nodes)}
    children = [[n for n in nodes if n and n[:-1] == node] for node in nodes]
    words = [sorted(word for spelt, word in spoken if spelt == node) for node in nodes]
    return {
        "node_child_splits": np.cumsum([0, *map(len, children)]).tolist(),
        "child_token": [node[-1] for row in children for node in row],
        "child_node": [number[node] for row in children for node in row],
        "node_child_bits": [
            sum(1 << bit for bit in {node[-1] % 64 for node in row}) for row in children
        ],
        "node_token": [node[-1] if node else -1 for node in nodes],
        "node_pron_splits": np.cumsum([0, *map(len, words)]).tolist(),
        "pron_word": [word for row in words for word in row],
        "pron_cost": [
            float(spoken[node, word])
            for node, row in zip(nodes, words, strict=True)
            for word in row
        ],
    }


def test_a_trie_by_hand():
    trie = trie_of(
        ("b", (5, 7), 0.5),  # 5 -> node 2, 5 7 -> node 4
        ("a", (5, 7), 0.0),
        ("c", (5,), 0.25),
        ("a", (5, 2), 1.0),
        ("d", (0,), 0.0),
    )
    assert lists(trie) == {
        "node_child_splits": [0, 2, 2, 4, 4, 4],
        "child_token": [0, 5, 2, 7],
        "child_node": [1, 2, 3, 4],
        "node_child_bits": [0b100001, 0, 0b10000100, 0, 0],
        "node_token": [-1, 0, 5, 2, 7],
        "node_pron_splits": [0, 0, 1, 2, 3, 5],
        "pron_word": [4, 3, 1, 1, 2],
        "pron_cost": [0.0, 0.25, 1.0, 0.0, 0.5],
    }
    assert parents_of(trie).tolist() == [-1, 0, 0, 2, 2]


@pytest.mark.parametrize("seed", range(60))
def test_tries_are_what_the_definition_says(seed):
    rng = np.random.default_rng(seed)
    entries, ids, *_ = naive_trie.random_case(rng)
    spoken = naive_trie.pronunciations(entries, ids)
    trie = build_trie(naive_trie.lexicon_of(entries), ids)
    assert lists(trie) == by_definition(spoken)
    assert {name: array.dtype for name, array in trie._asdict().items()} == DTYPES
    nodes = naive_trie.nodes(spoken)
    number = {node: i for i, node in enumerate(nodes)}
    for i, node in enumerate(nodes):
        assert parents_of(trie)[i] == (number[node[:-1]] if node else -1)
        for token in range(-1, naive_trie.NUM_TOKENS + 1):
            assert find_child(trie, i, token) == number.get((*node, token), -1)


def test_homophones_without_limit():
    words = [f"w{i}" for i in range(1000)]
    trie = trie_of(*((word, (3, 1), 0.0) for word in reversed(words)))
    assert trie.num_nodes == 3 and trie.pron_word.tolist() == list(range(1, 1001))
    assert trie.node_pron_splits.tolist() == [0, 0, 0, 1000]


def test_a_pronunciation_deeper_than_any_recursion():
    trie = trie_of(("a", (1,) * 50_000, 0.0), ("b", (1,) * 49_999 + (2,), 0.0))
    assert trie.num_nodes == 50_002
    assert parents_of(trie).tolist() == [*range(-1, 50_000), 49_999]


@pytest.mark.parametrize("entries", [(), (("a", (1,), 0.0),)])
def test_without_words_there_is_a_root(entries):
    trie = trie_of(*entries, ids={})
    assert lists(trie) == by_definition({})
    assert find_child(trie, 0, 1) == -1


def test_a_word_without_tokens():
    lexicon = Lexicon(("a", "b"), ((1,), ()), np.zeros(2, np.float32))
    with pytest.raises(LexiconError) as error:
        build_trie(lexicon, {"a": 1, "b": 2})
    assert str(error.value) == "'b' has no tokens, expected at least one"
    assert build_trie(lexicon, {"a": 1}).num_nodes == 2
