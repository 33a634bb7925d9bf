"""Pieces that are bytes, against SentencePiece's own `encode` and `decode`."""

import numpy as np
import pytest

from wfstdec import (
    GreedyDecoder,
    OpenVocabulary,
    TrieDecoder,
    WfstDecoder,
    build_graph,
    spelling_lexicon,
)
from wfstdec.text.tokens import token_table

KNOWN = ("ab", "bad cab", "cab ab")
TEXTS = ("ab naïve 日本 cab", "日", "ab 👍🏽 bad", "ñ ñandú", "cab")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A model of few letters that falls back on bytes, and its tokens with a blank."""
    sentencepiece = pytest.importorskip("sentencepiece")
    prefix = tmp_path_factory.mktemp("pieces") / "pieces"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(KNOWN * 20),
        model_prefix=str(prefix),
        vocab_size=280,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    names = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    return model, token_table([*names, "<blank>"])


def rows_of(ids, num_tokens):
    x = np.full((2 * len(ids), num_tokens), -12.0, np.float32)
    x[1::2, -1] = 0
    x[np.arange(len(ids)) * 2, ids] = 0
    return x - np.log(np.exp(x).sum(1, keepdims=True))


@pytest.fixture(scope="module")
def decoders(pieces, tmp_path_factory):
    _, tokens = pieces
    given = {"tokens": tokens, "separator": None}
    arpa = tmp_path_factory.mktemp("lm") / "lm.arpa"
    grams = "".join(f"-1 {word}\n" for word in ("<s>", "</s>", "<unk>", "ab", "cab"))
    arpa.write_text(f"\\data\\\nngram 1=5\n\n\\1-grams:\n{grams}\n\\end\\\n")
    words = given | {"lm": arpa, "lexicon": spelling_lexicon(["ab", "cab"], tokens)}
    opened = words | {"open_vocabulary": OpenVocabulary(3.0, 0.5)}
    return {
        "greedy": GreedyDecoder(**given),
        "trie of tokens": TrieDecoder(**given),
        "trie of words": TrieDecoder(**opened),
        "wfst": WfstDecoder(build_graph(**opened)),
    }


@pytest.mark.parametrize("name", ["greedy", "trie of tokens", "trie of words", "wfst"])
def test_bytes_are_read_as_characters(pieces, decoders, name):
    model, tokens = pieces
    rows = [rows_of(model.encode(text), len(tokens)) for text in TEXTS]
    for found, text in zip(decoders[name].decode(rows), TEXTS, strict=True):
        assert found.text == text
        ends = [word.end_frame for word in found.words]
        # from the first byte to the last: two frames a token
        lengths = [2 * len(model.encode(word)) for word in text.split()]
        assert np.all(np.abs(np.array(ends) - np.cumsum(lengths)) <= 1)


def test_bytes_that_are_no_character_become_its_replacement(pieces, decoders):
    model, tokens = pieces
    ids = [*model.encode("ab"), *model.encode("日")[:-1], *model.encode("b")]
    for name in ("greedy", "trie of tokens", "trie of words", "wfst"):
        [found] = decoders[name].decode([rows_of(ids, len(tokens))])
        assert found.text == model.decode(ids).replace("\ufffd\ufffd", "\ufffd")


@pytest.mark.parametrize("name", ["greedy", "trie of tokens"])
def test_phrases_are_spelled_with_bytes(pieces, decoders, name):
    model, tokens = pieces
    decoder = decoders[name]
    for text in TEXTS:
        boosts = decoder.phrase_compiler(unit="token").compile([text])
        [found] = decoder.decode(
            [rows_of(model.encode(text), len(tokens))], boosts=boosts
        )
        assert found.text == text and found.boost_cost < 0


def test_words_are_spelled_as_the_model_does(pieces):
    model, tokens = pieces
    words = [word for text in TEXTS for word in text.split()]
    lexicon = spelling_lexicon(words, tokens)
    for word, spelled in zip(lexicon.words, lexicon.pronunciations, strict=True):
        assert model.decode(list(spelled)) == word
        assert len(spelled) <= len(model.encode(word))
