"""Common face of all decoders: the same verbs, the same manners."""

import numpy as np
import pytest
from cli_files import TOKENS, logprobs_of, write_files

import wfstdec as library
from wfstdec.errors import OptionError, ShapeError

KINDS = ("wfst", "trie", "tokens", "greedy")
CHANGES = {"lm_scale": 0.25, "acoustic_scale": 0.5, "blank_penalty": 1.0}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("decoders"))


def make(kind, files, **options):
    tokens = files / "tokens.txt"
    words = {"lexicon": files / "lexicon.txt", "separator": "<wb>"}
    if kind == "wfst":
        graph = library.build_graph(tokens=tokens, lm=files / "lm.arpa", **words)
        return library.WfstDecoder(graph, library.WfstOptions(**options))
    if kind == "greedy":
        made = library.GreedyOptions(**options)
        return library.GreedyDecoder(tokens=tokens, options=made, separator="<wb>")
    made = library.TrieOptions(**options)
    if kind == "tokens":
        return library.TrieDecoder(tokens=tokens, options=made, separator="<wb>")
    return library.TrieDecoder(
        tokens=tokens, lm=files / "lm.arpa", options=made, **words
    )


def batch():
    rng = np.random.default_rng(0)
    x = logprobs_of("a b | c") + rng.normal(size=(12, len(TOKENS))).astype(np.float32)
    return [x, x[:5], x[:0]]


@pytest.mark.parametrize("kind", KINDS)
def test_other_options(kind, files):
    """A decoder with other options is as if made with them; the old one stays."""
    decoder = make(kind, files)
    before = decoder.decode(batch())
    found = decoder.with_options(**CHANGES).decode(batch())
    assert found == make(kind, files, **CHANGES).decode(batch()) != before
    assert decoder.decode(batch()) == before
    with pytest.raises(OptionError, match="lm_scale=-1"):
        decoder.with_options(lm_scale=-1)


def test_words_stay_unknown_without_a_lexicon(files):
    with pytest.raises(OptionError, match="word_insertion=1.0 without a lexicon"):
        make("tokens", files).with_options(word_insertion=1.0)


@pytest.mark.parametrize("kind", ["wfst", "trie", "greedy"])
def test_a_mapping_gives_results_by_id_in_its_order(kind, files, tmp_path):
    decoder, (first, *_) = make(kind, files), batch()
    given = {"z": first, "a": first[:4]}
    np.savez(tmp_path / "x.npz", **given)
    expected = dict(
        zip(given, decoder.decode(list(given.values()), [4, 3]), strict=True)
    )
    with np.load(tmp_path / "x.npz") as loaded:
        for mapping in (given, loaded):
            found = decoder.decode(mapping, [4, 3])
            assert list(found) == ["z", "a"] and found == expected
    if kind != "greedy":
        assert decoder.decode_lattice(given)["a"].num_frames == 4
    with pytest.raises(ShapeError, match="utterance 'a': logprobs has"):
        decoder.decode({"z": first, "a": first[:, 1:]})


def test_subtitles_of_a_hypothesis(files):
    [hypothesis] = make("trie", files).decode(batch()[:1])
    assert hypothesis.text in hypothesis.to_srt().split("\n")
