"""Open words in the trie search: spelled by tokens, off the trie or where none ends.

    a node of the trie where no word ends     the tokens that lead there may be a word
    behind the trie                           node = open_node(...), by tokens and the
                                              last of them; its text is a hash

So each sequence of tokens has one place: what the lexicon has is read as the lexicon
says, and an open word leaves the trie where that goes no further. An open word that is
spelled like a word of the table is this word, at the language model's cost; one that is
spelled like an OOV word of the utterance is none.

Texts are hashes that grow by what tokens add, and a table finds words by them:

    text = extended(spelling, EMPTY_TEXT, token)      # uint64, token by token
    word = find_text(table, text)                     # the id, -1 where there is none

However a text is cut into tokens, it has one hash: a polynomial of its characters,
modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.jit import inlined, jit, read_only
from wfstdec.search.options import OpenVocabulary
from wfstdec.text.vocabulary import OpenSpelling
from wfstdec.trie.lexicon_trie import LexiconTrie

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

    keys: np.ndarray  # uint64 [H], 0 where there is none; H is a power of two
    ids: np.ndarray  # int32 [H]


def token_texts(texts: Sequence[str]) -> TokenTexts:
    """Make the hash factors and offsets of tokens that add these texts."""
    factors = [pow(_FACTOR, len(text), 1 << 64) for text in texts]
    offsets = [_hash_from(0, text) for text in texts]
    return TokenTexts(_frozen(factors), _frozen(offsets))


def text_table(texts: Sequence[str], ids: Sequence[int]) -> TextTable:
    """The table of some words: texts, and the id of each."""
    size = 1 << max(1, (2 * len(texts)).bit_length())
    table = TextTable(np.zeros(size, np.uint64), np.full(size, -1, np.int32))
    hashes = np.array([_hash_from(EMPTY_TEXT, text) for text in texts], np.uint64)
    _fill(table, hashes, np.array(ids, np.int32))
    return TextTable(*map(read_only, table))


@inlined
def extended(texts, text, token):
    """The hash of a text with what a token adds, uint64."""
    return uint64(uint64(text) * texts.factor[token] + texts.offset[token])


@inlined
def find_text(table, text):
    """The word id of a text, -1 where the table has none."""
    mask = uint64(len(table.keys) - 1)
    slot = label_of(text) & mask
    while table.keys[slot] != uint64(0):  # ends: at most half of the slots are taken
        if table.keys[slot] == text:
            return int64(table.ids[slot])
        slot = (slot + _ONE) & mask
    return int64(-1)


@inlined
def label_of(text):
    """A hash in the place of a word id: mixed, and of 63 bits."""
    mixed = uint64(text)
    mixed ^= mixed >> uint64(32)
    mixed *= uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> uint64(32)
    return mixed & _LOW_63


@jit
def _fill(table, hashes, ids):
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
    """Open words as kernels take them; empty arrays where there are none."""

    is_open: bool  # whether there are open words
    word_cost: np.float32  # nats
    token_cost: np.float32  # nats
    begins: np.ndarray  # bool [V], tokens that may begin an open word
    extends: np.ndarray  # bool [V], tokens that may follow inside one
    texts: TokenTexts  # what tokens add to the text
    node_text: np.ndarray  # uint64 [N], the text that leads to each node of the trie
    node_length: np.ndarray  # int32 [N], its tokens; 0 where they are no open word
    node_word: np.ndarray  # int32 [N], the word of the table that they spell, or -1
    words: TextTable  # the word table by text; empty where tokens are phones


def no_open_words(num_nodes: int = 1) -> OpenWords:
    """Stand-in for the arrays of open words where there are none."""
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
    """The open words of a trie."""
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
    """The cost of an open word of `length` tokens, or of its beginning, float32."""
    # It never falls with the length: not by rounding either.
    tokens = float32(float32(length) * open_words.token_cost)
    return float32(float32(unk_cost + open_words.word_cost) + tokens)


@inlined
def open_node(first, length, token, num_tokens):
    """The node of an open word behind the trie, int64."""
    return int64(first) + int64(length) * int64(num_tokens) + int64(token)


@inlined
def open_length(first, node, num_tokens):
    """How many tokens an open word behind the trie has."""
    return (int64(node) - int64(first)) // int64(num_tokens)


@inlined
def open_token(first, node, num_tokens):
    """Last token of an open word's node."""
    return (int64(node) - int64(first)) % int64(num_tokens)


@jit
def _walk(trie, texts, begins, extends, table, nodes):
    """Fill in texts, lengths and words, the parents first."""
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
