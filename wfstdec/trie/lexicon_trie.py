"""Lexicon trie: words with a common prefix share nodes; open words.

    trie = build_trie(lexicon, {word: i for i, word in enumerate(words)})
    node = find_child(trie, node, token)                       # -1 without one
    ending = slice(*trie.node_pron_splits[node : node + 2])    # pronunciations, by row
    trie.pron_word[ending], trie.pron_cost[ending]             # and their words

Nodes are in preorder: the root is 0, and children follow their parent in the order of
their tokens, each followed by its descendants.

Open words are spelled by tokens, outside the trie or where no word ends:

    a node of the trie where no word ends     the tokens that lead there may be a word
    after the trie                            node = open_node(...), by number of tokens
                                              and the last of them; its text is a hash

So each sequence of tokens has one place: lexicon words are read as pronounced, and an
open word leaves the trie at the first missing child. An open word that is spelled like
a word of the table is this word, at the language model's cost. One that is spelled like
an OOV word of the utterance is invalid.

Texts are hashes extended by tokens, and a table maps them to words:

    text = extended(texts, EMPTY_TEXT, token)     # uint64, token by token
    word = find_text(table, text)                 # the id, -1 without one

A text has one hash for any tokenisation: a polynomial of its characters, modulo 2^64.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.errors import LexiconError
from wfstdec.jit import inlined, jit, read_only
from wfstdec.jit.arrays import grow_tree
from wfstdec.lm.kernels import find_arc
from wfstdec.search.options import OpenVocabulary
from wfstdec.text.lexicon import Lexicon, Pronunciation
from wfstdec.text.vocabulary import OpenSpelling


class LexiconTrie(NamedTuple):
    """Trie of N nodes for P pronunciations, for the kernels; read-only."""

    node_child_splits: np.ndarray  # int32 [N + 1], the row of each node's children
    child_token: np.ndarray  # int32 [N - 1], increasing in each row
    child_node: np.ndarray  # int32 [N - 1]
    # uint64 [N], the tokens of each node's children, modulo 64
    node_child_bits: np.ndarray
    node_token: np.ndarray  # int32 [N], the token that leads there; -1 at the root
    node_pron_splits: np.ndarray  # int32 [N + 1], pronunciations that end at each node
    # int32 [P], the word id of each pronunciation; increasing in each row
    pron_word: np.ndarray
    pron_cost: np.ndarray  # float32 [P], nats

    @property
    def num_nodes(self) -> int:
        """The number of nodes, N; at least the root."""
        return len(self.node_token)


def build_trie(lexicon: Lexicon, word_ids: Mapping[str, int]) -> LexiconTrie:
    """Build the trie of the entries whose words have an id."""
    # Only the least cost of equal entries counts. The order of entries has no effect.
    costs = lexicon.costs.tolist()
    everything = zip(lexicon.pronunciations, lexicon.words, costs, strict=True)
    entries = sorted(
        (spelt, word_ids[word], cost)
        for spelt, word, cost in everything
        if word in word_ids
    )
    if entries and not entries[0][0]:
        word = lexicon.words[lexicon.pronunciations.index(())]
        raise LexiconError(f"{word!r} has no tokens, expected at least one")
    before = [None, *(entry[:2] for entry in entries)]
    pairs = zip(entries, before, strict=False)
    return trie_of([entry for entry, last in pairs if entry[:2] != last])


def trie_of(entries: Sequence[tuple[Pronunciation, int, float]]) -> LexiconTrie:
    """Build the trie of entries: tokens, word id, cost; sorted, each pair once."""
    counts = Counter(spelt for spelt, _, _ in entries)  # sorted, as the entries are
    tokens = np.array([token for spelt in counts for token in spelt], np.int32)
    splits = np.cumsum([0, *map(len, counts)])
    parent, node_token, _, ending = grow_tree(tokens, splits)
    prons = np.array([*counts.values()], np.int64)
    pron_node = np.repeat(np.flatnonzero(ending >= 0), prons)
    num_nodes = len(parent)
    children = 1 + np.argsort(parent[1:], kind="stable")
    child_bits = np.zeros(num_nodes, np.uint64)
    bits = np.uint64(1) << (node_token[1:] % 64).astype(np.uint64)
    np.bitwise_or.at(child_bits, parent[1:], bits)
    return LexiconTrie(
        node_child_splits=_splits_of(parent[1:], num_nodes),
        child_token=read_only(np.array(node_token[children], np.int32)),
        child_node=read_only(np.array(children, np.int32)),
        node_child_bits=read_only(child_bits),
        node_token=read_only(np.array(node_token, np.int32)),
        node_pron_splits=_splits_of(pron_node, num_nodes),
        pron_word=read_only(np.array([word for _, word, _ in entries], np.int32)),
        pron_cost=read_only(np.array([cost for _, _, cost in entries], np.float32)),
    )


@inlined
def find_child(trie, node, token):
    """Return the child of a node by a token, or -1."""
    begin = np.int64(trie.node_child_splits[node])
    end = np.int64(trie.node_child_splits[node + 1])
    child = find_arc(trie.child_token, begin, end, token)
    if child < end and trie.child_token[child] == token:
        return np.int64(trie.child_node[child])
    return np.int64(-1)


@jit
def least_below(values, pron_splits, parent):
    """Return the least value of pronunciations below each node, float32 [N], or inf."""
    least = np.full(len(parent), np.inf, np.float32)
    for node in range(len(parent) - 1, -1, -1):
        for pron in range(pron_splits[node], pron_splits[node + 1]):
            least[node] = min(least[node], values[pron])
        if node > 0:
            least[parent[node]] = min(least[parent[node]], least[node])
    return least


def root_children(trie: LexiconTrie, num_tokens: int) -> np.ndarray:
    """Return the child of the root by each token, int32 [V]; -1 for none."""
    child, count = np.full(num_tokens, -1, np.int32), trie.node_child_splits[1]
    child[trie.child_token[:count]] = trie.child_node[:count]
    return read_only(child)


def parents_of(trie: LexiconTrie) -> np.ndarray:
    """Return the parent of each node, int32 [N]; -1 for the root."""
    parent = np.full(trie.num_nodes, -1, np.int32)
    counts = np.diff(trie.node_child_splits)
    parent[trie.child_node] = np.repeat(np.arange(trie.num_nodes), counts)
    return parent


def pron_lengths(trie: LexiconTrie) -> np.ndarray:
    """Count the tokens of each pronunciation, int32 [P]."""
    depth = np.zeros(trie.num_nodes, np.int32)
    for node, parent in enumerate(parents_of(trie).tolist()):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    return np.repeat(depth, np.diff(trie.node_pron_splits))


def _splits_of(rows: np.ndarray, num_rows: int) -> np.ndarray:
    counts = np.bincount(rows, minlength=num_rows)
    return read_only(np.array(np.concatenate([[0], np.cumsum(counts)]), np.int32))


EMPTY_TEXT = 0x6A09E667F3BCC909
"""The hash of no text."""
_FACTOR = 0x5851F42D4C957F2D
_ALL = (1 << 64) - 1
_LOW_63 = uint64((1 << 63) - 1)
_ONE = uint64(1)


class TokenTexts(NamedTuple):
    """Factors and offsets by which tokens extend a hash: `hash * factor + offset`."""

    factor: np.ndarray  # uint64 [V]
    offset: np.ndarray  # uint64 [V]


class TextTable(NamedTuple):
    """Word ids by the hash of their text: open addressing, linear probing."""

    keys: np.ndarray  # uint64 [H], 0 if empty; H is a power of two
    ids: np.ndarray  # int32 [H]


def token_texts(texts: Sequence[str]) -> TokenTexts:
    """Return the hash factors and offsets of tokens with these texts."""
    factors = [pow(_FACTOR, len(text), 1 << 64) for text in texts]
    offsets = [_hash_from(0, text) for text in texts]
    return TokenTexts(_frozen(factors), _frozen(offsets))


def text_table(texts: Sequence[str], ids: Sequence[int]) -> TextTable:
    """Return the table of words: texts, and the id of each."""
    size = 1 << max(1, (2 * len(texts)).bit_length())
    table = TextTable(np.zeros(size, np.uint64), np.full(size, -1, np.int32))
    hashes = np.array([_hash_from(EMPTY_TEXT, text) for text in texts], np.uint64)
    _fill_table(table, hashes, np.array(ids, np.int32))
    return TextTable(*map(read_only, table))


@inlined
def extended(texts, text, token):
    """Return the hash of a text extended by a token, uint64."""
    return uint64(uint64(text) * texts.factor[token] + texts.offset[token])


@inlined
def find_text(table, text):
    """Return the word id of a text, -1 where the table has none."""
    mask = uint64(len(table.keys) - 1)
    slot = label_of(text) & mask
    while table.keys[slot] != uint64(0):  # ends: at most half of the slots are taken
        if table.keys[slot] == text:
            return int64(table.ids[slot])
        slot = (slot + _ONE) & mask
    return int64(-1)


@inlined
def label_of(text):
    """Return a hash in place of a word id: mixed, and of 63 bits."""
    mixed = uint64(text)
    mixed ^= mixed >> uint64(32)
    mixed *= uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> uint64(32)
    return mixed & _LOW_63


@jit
def _fill_table(table, hashes, ids):
    mask = uint64(len(table.keys) - 1)
    for i in range(len(hashes)):
        slot = label_of(hashes[i]) & mask
        while table.keys[slot] != uint64(0) and table.keys[slot] != hashes[i]:
            slot = (slot + _ONE) & mask
        table.keys[slot], table.ids[slot] = hashes[i], ids[i]


def _hash_from(before: int, text: str) -> int:
    found = before
    for character in text:
        found = (found * _FACTOR + ord(character)) & _ALL
    return found


def _frozen(values: Sequence[int]) -> np.ndarray:
    return read_only(np.array(values, np.uint64))


class OpenWords(NamedTuple):
    """Open words for the kernels; empty arrays without open words."""

    is_open: bool  # whether there are open words
    word_cost: np.float32  # nats
    token_cost: np.float32  # nats
    begins: np.ndarray  # bool [V], tokens that may begin an open word
    extends: np.ndarray  # bool [V], tokens that may continue one
    texts: TokenTexts  # hash extension by tokens
    node_text: np.ndarray  # uint64 [N], the text that leads to each node of the trie
    node_length: np.ndarray  # int32 [N], its tokens; 0 if they cannot be an open word
    node_word: np.ndarray  # int32 [N], the word of the table that they spell, or -1
    words: TextTable  # the word table by text; empty if tokens are phones


def no_open_words(num_nodes: int = 1) -> OpenWords:
    """Return placeholder arrays without open words."""
    nothing = read_only(np.zeros(0, np.bool_))
    return OpenWords(
        is_open=False,
        word_cost=np.float32(0),
        token_cost=np.float32(0),
        begins=nothing,
        extends=nothing,
        texts=token_texts(()),
        node_text=read_only(np.zeros(num_nodes, np.uint64)),
        node_length=read_only(np.zeros(num_nodes, np.int32)),
        node_word=read_only(np.full(num_nodes, -1, np.int32)),
        words=text_table((), ()),
    )


def open_words(
    vocabulary: OpenVocabulary,
    spelling: OpenSpelling,
    trie: LexiconTrie,
    words: Sequence[str],
) -> OpenWords:
    """Return the open words of a trie."""
    texts = token_texts(spelling.texts)
    begins, extends = read_only(spelling.begins), read_only(spelling.extends)
    node_text = np.full(trie.num_nodes, EMPTY_TEXT, np.uint64)
    node_length = np.zeros(trie.num_nodes, np.int32)
    node_word = np.full(trie.num_nodes, -1, np.int32)
    named = words[1:] if spelling.is_spelled else ()
    table = text_table(named, range(1, len(named) + 1))
    nodes = node_text, node_length, node_word
    _walk(trie, texts, begins, extends, table, nodes)
    return OpenWords(
        is_open=True,
        word_cost=np.float32(vocabulary.word_cost),
        token_cost=np.float32(vocabulary.token_cost),
        begins=begins,
        extends=extends,
        texts=texts,
        node_text=read_only(node_text),
        node_length=read_only(node_length),
        node_word=read_only(node_word),
        words=table,
    )


@inlined
def spelling_cost(open_words, unk_cost, length):
    """Return the cost of an open word of `length` tokens, or of its prefix, float32."""
    # It never falls with the length: not by rounding either.
    tokens = float32(float32(length) * open_words.token_cost)
    return float32(float32(unk_cost + open_words.word_cost) + tokens)


@inlined
def open_node(first, length, token, num_tokens):
    """Return the node of an open word after those of the trie, int64."""
    return int64(first) + int64(length) * int64(num_tokens) + int64(token)


@inlined
def open_length(first, node, num_tokens):
    """Return the number of tokens of an open word's node."""
    return (int64(node) - int64(first)) // int64(num_tokens)


@inlined
def open_token(first, node, num_tokens):
    """Return the last token of an open word's node."""
    return (int64(node) - int64(first)) % int64(num_tokens)


@jit
def _walk(trie, texts, begins, extends, table, nodes):
    splits, (node_text, node_length, node_word) = trie.node_child_splits, nodes
    for node in range(len(trie.node_token)):
        if node_length[node] > 0:
            node_word[node] = find_text(table, node_text[node])
        for at in range(splits[node], splits[node + 1]):
            child, token = trie.child_node[at], trie.child_token[at]
            node_text[child] = extended(texts, node_text[node], token)
            if node == 0 and begins[token]:
                node_length[child] = 1
            elif node_length[node] > 0 and extends[token]:
                node_length[child] = node_length[node] + 1
