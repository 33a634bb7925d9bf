"""`wfstdec decode --phrases`, and the files that it reads."""

import json

import numpy as np
import pytest
from cli_files import TOKENS, build, logprobs_of, wfstdec, write_files

import wfstdec as library
from wfstdec.errors import BoostError
from wfstdec.io import read_phrase_weights

WFST = ["--graph", "graph.npz"]
TRIE = ["--decoder", "trie", "--tokens", "tokens.txt", "--separator", "<wb>"]
TRIE += ["--lexicon", "lexicon.txt", "--lm", "lm.arpa"]
BARE = ["--decoder", "trie", "--tokens", "tokens.txt", "--separator", "<wb>"]
GREEDY = ["--decoder", "greedy", "--tokens", "tokens.txt", "--separator", "<wb>"]


@pytest.fixture
def files(tmp_path, capsys):
    folder = write_files(tmp_path)
    assert build(folder) == 0
    flat = np.full((12, len(TOKENS)), np.log(0.225), np.float32)
    flat[:, TOKENS.index("<blank>")] = np.log(0.1)
    np.savez(folder / "x.npz", flat=flat, ab=logprobs_of("a b"))
    capsys.readouterr()
    return folder


def decode(folder, capsys, *more):
    given = ["--logprobs", "x.npz", "--threads", "1", "--quiet", "--format", "jsonl"]
    assert wfstdec(folder, "decode", *given, *more) == 0
    read = map(json.loads, capsys.readouterr().out.splitlines())
    return {one["id"]: (one["text"], one["boost_cost"]) for one in read}


@pytest.mark.parametrize("decoder", [WFST, TRIE], ids=["wfst", "trie"])
@pytest.mark.parametrize(("unit", "weight"), [("word", 3), ("token", 1)])
def test_a_phrase_is_favoured(decoder, unit, weight, files, capsys):
    """Where all tokens are as probable, what is listed is found."""
    (files / "phrases.txt").write_text(f"# names\ncab  c\t{weight}\n")
    plain = decode(files, capsys, *decoder)
    assert "cab c" not in plain["flat"][0]
    given = ["--phrases", "phrases.txt", "--phrase-unit", unit]
    found = decode(files, capsys, *decoder, *given)
    assert "cab c" in found["flat"][0]
    assert found["flat"][1] < -3
    assert found["ab"] == plain["ab"] == ("ab", 0.0)


@pytest.mark.parametrize("unit", ["word", "token"])
@pytest.mark.parametrize("decoder", [WFST, TRIE], ids=["wfst", "trie"])
def test_totals_are_nats_for_a_phrase(decoder, unit, files, capsys):
    """However long it is, and whatever it is credited by."""
    (files / "phrases.txt").write_text("cab c\t30\n")
    given = ["--phrases", "phrases.txt", "--phrase-unit", unit]
    if unit == "token":
        given += ["--phrase-boundary", "<wb>"]
    text, cost = decode(files, capsys, *decoder, *given, "--phrase-totals")["flat"]
    occurrences = f" {text.replace(' ', '  ')} ".count(" cab  c ")
    assert occurrences > 0
    assert cost == pytest.approx(-30 * occurrences)
    assert decode(files, capsys, *decoder, *given)["flat"][1] < cost - 1


@pytest.mark.parametrize("decoder", [BARE, GREEDY], ids=["trie", "greedy"])
def test_phrases_of_tokens_without_words(decoder, files, capsys):
    """Spelt with the tokens; whole words, since a separator is between them."""
    x = logprobs_of("c a c")
    x[6:8] = np.log([0.05, 0.01, 0.01, 0.43, 0.5])
    np.savez(files / "x.npz", one=x, two=logprobs_of("a b"))
    assert decode(files, capsys, *decoder)["one"] == ("cac", 0.0)
    (files / "phrases.txt").write_text("cab\t0.5\nb\t0.5\n")
    found = decode(files, capsys, *decoder, "--phrases", "phrases.txt")
    assert found["one"] == ("cab", pytest.approx(-3.396, abs=1e-3))
    assert found["two"] == ("ab", 0.0)
    given = ["--phrases", str(files / "phrases.txt"), "--phrase-unit", "word"]
    given += ["--logprobs", str(files / "x.npz")]
    assert wfstdec(files, "decode", *decoder, *given) == 1
    assert "unit='word', expected 'token'" in capsys.readouterr().err


def test_lists_by_utterance_words_besides_and_costs(files, capsys):
    """Command and library give the same costs with lists."""
    lines = [{"id": "ab", "phrases": {"ab c": 2.0}}, {"phrases": ["c c", "cab ab"]}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (files / "phrases.jsonl").write_text(text)
    (files / "boosts.txt").write_text("ab\t0.5\n")
    given = ["--phrases", "phrases.jsonl", "--boost", "boosts.txt", "--beam", "30"]
    found = decode(files, capsys, *WFST, *given)
    graph = library.load_graph(files / "graph.npz")
    decoder = library.WfstDecoder(graph, library.WfstOptions(beam=30.0))
    speller = library.boost.phrases.by_words(graph.word_ids)
    compiler = library.PhraseCompiler(speller, graph.words)
    automatic = decoder.phrase_compiler()
    with np.load(files / "x.npz") as arrays:
        batch = [arrays["flat"], arrays["ab"]]
    lists = [automatic.compile(["c c", "cab ab"]), compiler.compile({"ab c": 2.0})]
    boosts = [library.Boosts({"ab": 0.5}, one) for one in lists]
    hyps = decoder.decode(batch, boosts=boosts)
    assert list(found.values()) == [(hyp.text, hyp.boost_cost) for hyp in hyps]


@pytest.mark.parametrize("decoder", [WFST, TRIE], ids=["wfst", "trie"])
def test_phrases_of_tokens_are_whole_words(decoder, files, capsys):
    """`c` is in `cab`; between separators it is not."""
    np.savez(files / "x.npz", cab=logprobs_of("c a b"))
    (files / "phrases.txt").write_text("c\t1\n")
    token = ["--phrases", "phrases.txt", "--phrase-unit", "token"]
    assert decode(files, capsys, *decoder, *token)["cab"] == ("cab", 0.0)
    if decoder is WFST:
        assert build(files, "--separator-optional") == 0
        capsys.readouterr()
    else:
        decoder = [*decoder, "--separator-optional"]
    assert decode(files, capsys, *decoder, *token)["cab"] == ("cab", -1.0)
    bounded = decode(files, capsys, *decoder, *token, "--phrase-boundary", "<wb>")
    assert bounded["cab"] == ("cab", 0.0)


TOKEN_LIST = ["--phrases", "list.txt", "--phrase-unit", "token"]
WORD_LIST = ["--phrases", "list.txt", "--phrase-boundary", "<wb>"]


@pytest.mark.parametrize(
    ("decoder", "flags", "message"),
    [
        (WFST, [*TOKEN_LIST, "--phrase-boundary", "|"], "'|'"),
        (WFST, ["--phrase-unit", "word"], "--phrase-unit without --phrases"),
        (WFST, ["--phrase-boundary", "a"], "--phrase-boundary without --phrases"),
        (WFST, ["--phrase-totals"], "--phrase-totals without --phrases"),
        (WFST, WORD_LIST, "boundary='<wb>' with phrases of words"),
        (TRIE, WORD_LIST, "boundary='<wb>' with phrases of words"),
        (
            WFST,
            [*TOKEN_LIST, "--sentencepiece-model", "bpe.model"],
            "its lexicon spells phrases",
        ),
    ],
)
def test_flags_that_do_not_go_together(decoder, flags, message, files, capsys):
    (files / "list.txt").write_text("c\t2\n")
    given = [*decoder, "--logprobs", "x.npz", *flags]
    assert wfstdec(files, "decode", *given) == 1
    assert message in capsys.readouterr().err


def test_weights_and_their_absence(tmp_path):
    path = tmp_path / "p"
    path.write_text("# names\nnew  york\t0.5\n\nsan jose\nrio\t\n")
    expected = {"new york": 0.5, "san jose": None, "rio": None}
    assert read_phrase_weights(path).of("any") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t1\t2\n", r"p:1: found 'a\\t1\\t2', expected 'phrase<TAB>weight'"),
        ("\t1\n", r"p:1: found '\\t1'"),
        ("a b\na  b\t2\n", r"p:2: 'a b' a second time"),
        ("a\tone\n", r"p:1: the weight of 'a' is 'one', expected a number$"),
        ('{"boosts": {}}\n', r"p:1: found .*expected \{\"id\": utterance, \"phrases\""),
        ('{"phrases": "a"}\n', r"p:1: found"),
        ('{"phrases": ["a", " "]}\n', r"p:1: found ' ' in the list, expected words"),
        ('{"phrases": {"a": true}}\n', r"p:1: the weight of 'a' is True"),
    ],
)
def test_bad_lists(text, message, tmp_path):
    (tmp_path / "p").write_text(text)
    with pytest.raises(BoostError, match=message):
        read_phrase_weights(tmp_path / "p")


def test_pieces_as_a_sentencepiece_model_cuts_them(tmp_path, capsys):
    """Not in the fewest pieces, which is what there is without one."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["low low low lower newest newest"] * 5),
        model_prefix=str(tmp_path / "bpe"),
        vocab_size=15,
        model_type="bpe",
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "bpe.model"))
    cut = model.encode_as_pieces("wol")
    names = ["<blank>", *model.id_to_piece(list(range(len(model)))), "\u2581wol"]
    (tmp_path / "tokens.txt").write_text("".join(f"{name}\n" for name in names))
    x = np.full((2 * len(cut), len(names)), np.log(0.01), np.float32)
    x[1::2, 0] = x[range(0, len(x), 2), [names.index(piece) for piece in cut]] = -0.1
    np.savez(tmp_path / "x.npz", wol=x)
    (tmp_path / "phrases.txt").write_text("wol\t0.01\n")
    bare = ["--decoder", "greedy", "--tokens", "tokens.txt"]
    bare += ["--phrases", "phrases.txt"]
    assert decode(tmp_path, capsys, *bare)["wol"] == ("wol", 0.0)
    found = decode(tmp_path, capsys, *bare, "--sentencepiece-model", "bpe.model")
    worth = library.PhraseOptions().base(len(cut))[-1]
    assert found["wol"] == ("wol", pytest.approx(-0.01 * worth, abs=1e-4))
