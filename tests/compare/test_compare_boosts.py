"""Boost lists in `wfstdec compare`: files of them, how they are scored, who takes none.

The words of each point are those of `wfstdec decode`, or of a decoder made here.
"""

import json

import numpy as np
import pytest
from cli_files import wfstdec
from noisy_files import BARE, SPEECH, TRIE, decoded, word_errors, write_noisy

import wfstdec as library
from wfstdec import PhraseOptions
from wfstdec.boost.phrases import by_lexicon, by_table
from wfstdec.compare import load_comparison
from wfstdec.compare.comparison import PhraseScore
from wfstdec.errors import BoostWarning, FormatError
from wfstdec.io import read_phrases, read_text

LINES = [
    {"boosts": {"ab c": 3.0, "cab": 0.5, "zebra": 1.0}},
    {"id": "utt2", "boosts": {"cab  cab": 6.0}},
    {"id": "utt3", "boosts": {}},
    {"id": "utt4", "boosts": {"c": -2.0, "cab ab c": 4.0, "ab": 1}},
]
LISTS = {"common.txt": "ab c\t3\ncab\t1.5\nc\t-0.5\n", "own.jsonl": ""}
LISTS["own.jsonl"] = "".join(json.dumps(line) + "\n" for line in LINES)
SEARCHES = {
    "WFST": ["--graph", "graph.npz", "--wfst", "beam=4,40"],
    "trie": [*TRIE, "--lm", "lm.arpa", "--trie", "beam_size=4,200"],
}
DECODERS = {
    "WFST": (["--graph", "graph.npz"], "--beam"),
    "trie": (["--decoder", "trie", *TRIE, "--lm", "lm.arpa"], "--beam-size"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_noisy(tmp_path_factory.mktemp("noisy"))
    for name, text in LISTS.items():
        (folder / name).write_text(text)
    return folder


def compare(folder, *more):
    given = ["--repeats", "1", "--json", "c.json"]
    assert wfstdec(folder, "compare", *SPEECH, *given, *more) == 0
    return load_comparison(folder / "c.json")


def phrase_score(folder, phrases, hypotheses):
    hits = in_references = in_hypotheses = 0
    for utterance, words in read_text(folder / "ref.txt").items():
        for phrase in phrases:
            r, h = (places(phrase, text) for text in (words, hypotheses[utterance]))
            hits += min(r, h)
            in_references += r
            in_hypotheses += h
    return PhraseScore(hits, in_references, in_hypotheses)


def places(phrase, words):
    padded, wanted = f" {' '.join(words)} ", f" {phrase} "
    return sum(padded.startswith(wanted, i) for i in range(len(padded)))


@pytest.mark.parametrize("name", SEARCHES)
def test_points_with_lists_are_what_decode_gives(files, name):
    comparison = compare(files, *SEARCHES[name], "--boost", *LISTS)
    points = [one for one in comparison.points if one.search == name]
    favoured = ["ab", "ab c", "cab", "cab ab c", "cab cab", "zebra"]  # above 0
    flags, width = DECODERS[name]
    errors = set()
    for one in points:
        [size] = one.setting.values()
        named = [file for file in LISTS if file.split(".")[0] == one.boosts]
        boost = ["--boost", *named] if named else []
        found = decoded(files, *flags, width, str(size), *boost)
        assert one.errors.total == word_errors(files, found)
        assert one.phrases == phrase_score(files, favoured, found)
        errors.add((one.boosts, one.errors.total))
    assert len(points) == 6 and comparison.lists == [None, "common", "own"]
    assert comparison.facts["key_phrases"] == len(favoured)
    assert [one.search_errors for one in points[1::2]] == [0.0] * 3
    assert len({total for _, total in errors}) > 2  # the lists do something


def test_a_list_that_favours_nothing_has_nothing_to_score(files, capsys):
    (files / "none.txt").write_text("cab\t-1\n")
    comparison = compare(files, *SEARCHES["WFST"], "--boost", "none.txt")
    assert all(one.phrases is None for one in comparison.points)
    given = ["--boost", "none.txt", "--phrases", "own.jsonl"]
    comparison = compare(files, *SEARCHES["WFST"], *given)
    assert comparison.facts["key_phrases"] == 7  # "c", below 0, too


def test_words_that_no_decoder_has_are_named(files, capsys):
    compare(files, *SEARCHES["WFST"], "--boost", "own.jsonl")
    assert "'zebra'" in capsys.readouterr().err


def token_compiler(tokens, speller, boundary):
    totals = PhraseOptions(weights_are_totals=True)
    return library.PhraseCompiler(speller, tokens, totals, boundary=boundary)


def decoded_with(folder, decoder, compiler):
    """The words of each utterance with its list of `LINES`, compiled."""
    with np.load(folder / "x.npz") as arrays:
        names, logprobs = zip(*arrays.items(), strict=True)
    own = {line.get("id"): line["boosts"] for line in LINES}
    lists = [own.get(name, own[None]) for name in names]
    with pytest.warns(BoostWarning, match="'zebra'"):
        boosts = [compiler.compile(one) if one else None for one in lists]
    found = decoder.decode(list(logprobs), boosts=boosts)
    return {u: one.text.split() for u, one in zip(names, found, strict=True)}


@pytest.mark.parametrize("kind", ["trie", "greedy"])
def test_decoders_of_bare_tokens_are_credited_by_tokens(files, kind):
    """Each phrase is worth its nats, spelt with the tokens, between separators."""
    lm = ["--lm", str(files / "pieces"), "--lm-scale", "0.5", "--trie", "beam_size=32"]
    given = [*BARE, *lm, "--boost", "own.jsonl", "--greedy"]
    comparison = compare(files, *given)
    tokens = {"tokens": files / "tokens.txt", "separator": "<wb>"}
    common = {**tokens, "lm": files / "pieces"}
    if kind == "trie":
        options = library.TrieOptions(beam_size=32, lm_scale=0.5)
        decoder = library.TrieDecoder(**common, options=options)
    else:
        options = library.GreedyOptions(lm_scale=0.5)
        decoder = library.GreedyDecoder(**common, options=options)
    speller = by_table(decoder.tokens, separator=1)
    words = decoded_with(files, decoder, token_compiler(decoder.tokens, speller, 1))
    plain, boosted = [one for one in comparison.points if one.search == kind]
    assert boosted.errors.total == word_errors(files, words) != plain.errors.total
    assert boosted.boosts == "own" and boosted.phrases is not None


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("boundary", [None, "<wb>"])
def test_decoders_of_words_may_be_credited_by_tokens(files, name, boundary):
    """All pronunciations; whole words, so that a phrase counts as it does by words."""
    given = [*SEARCHES[name], "--boost", "own.jsonl", "--phrase-unit", "token"]
    bound = [] if boundary is None else ["--phrase-boundary", boundary]
    comparison = compare(files, *given, *bound)
    paths = {"tokens": files / "tokens.txt", "lexicon": files / "lexicon.txt"}
    options = library.TrieOptions(beam_size=200)
    decoder = library.TrieDecoder(
        **paths, lm=files / "lm.arpa", separator="<wb>", options=options
    )
    speller = by_lexicon(decoder.lexicon, separator=1)
    compiler = token_compiler(decoder.tokens, speller, 1)
    if name == "WFST":
        graph = library.load_graph(files / "graph.npz")
        decoder = library.WfstDecoder(graph, library.WfstOptions(beam=40.0))
    words = decoded_with(files, decoder, compiler)
    by_words, *_, boosted = compare(files, *given[:-2]).points
    assert comparison.points[-1].errors.total == word_errors(files, words)
    assert comparison.points[0].errors == by_words.errors  # without any list
    assert comparison.points[-1].errors == boosted.errors


def test_phrases_to_score_are_read_from_lists_of_all_kinds(files, tmp_path):
    own = ["ab c", "cab", "zebra", "cab cab", "c", "cab ab c", "ab"]
    assert read_phrases(files / "own.jsonl") == own
    path = tmp_path / "phrases.jsonl"
    path.write_text('{"phrases": ["new  york"]}\n{"id": "u", "phrases": {"ab": 2}}\n')
    assert read_phrases(path) == ["new york", "ab"]
    path.write_text('{"id": "boosts", "phrases": {"boosts": 1, "ab": 2}}\n')
    assert read_phrases(path) == ["boosts", "ab"]
    path.write_text("# said\nnew  york\nab\t2\nab\n\n")
    assert read_phrases(path) == ["new york", "ab"]
    path.write_text("# names\n")
    with pytest.raises(FormatError, match="no phrases, expected one a line"):
        read_phrases(path)
