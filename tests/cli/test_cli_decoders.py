"""`wfstdec decode` with each decoder, n-best lists, and saved language models."""

import dataclasses
import json
import re

import pytest
from arpa_texts import arpa_of
from cli_files import SENTENCES, logprobs_of, wfstdec, write_files

import wfstdec as library
from wfstdec.cli import flags
from wfstdec.cli.main import main, make_parser
from wfstdec.errors import OptionError
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.wfst.options import BACKENDS as WFST_BACKENDS

WORDS = "utt2 ab c\nutt1 cab\nutt3 c\n"
TOKEN_ARPA = arpa_of(
    "-0.7 <wb>; -0.7 a -0.3; -0.7 b; -0.7 c; -99 <s> -0.3; -0.7 </s>", "-0.1 a c"
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "tokens.arpa").write_text(TOKEN_ARPA)
    return write_files(tmp_path)


def decode(folder, decoder, *more):
    given = ["--decoder", decoder, "--tokens", "tokens.txt", "--separator", "<wb>"]
    given += ["--logprobs", "x.npz", "--threads", "1", "--quiet", *more]
    return wfstdec(folder, "decode", *given)


LEXICAL = ["--lexicon", "lexicon.txt", "--lm", "lm.arpa"]


def test_the_trie_of_the_lexicon(files, capsys):
    given = ["--tokens", "tokens.txt", "--separator", "<wb>", "--logprobs", "x.npz"]
    assert wfstdec(files, "decode", "--decoder", "trie", *given, *LEXICAL) == 0
    out, err = capsys.readouterr()
    assert out == WORDS
    assert "warning: 1 of 4 lexicon words are not in the language model" in err
    assert "decoded 3 utterances, 0.5 s of audio in " in err
    assert "all reached a final state" in err


@pytest.mark.parametrize("lexicon", [LEXICAL, LEXICAL[2:]])
def test_open_words(lexicon, files, capsys):
    """Open words are spelled where they cost nothing, left out where they cost much."""
    texts = {}
    for cost in ("-9", "900"):
        given = ["--open-vocabulary", cost, "0", "--unk-cost", "5"]
        assert decode(files, "trie", *lexicon, *given) == 0
        texts[cost] = capsys.readouterr().out
    assert texts["900"] == WORDS
    assert texts["-9"] != WORDS
    assert decode(files, "trie", *lexicon, "--open-vocabulary", "0", "-1") == 1
    assert "token_cost=-1.0, expected a number of nats, 0" in capsys.readouterr().err


def test_open_words_in_a_graph(files, capsys):
    """Where they cost nothing they are cheaper than the words that they spell."""
    costs = {}
    for cost in ("-9", "900"):
        given = ["--tokens", "tokens.txt", "--separator", "<wb>", "--unk-cost", "5"]
        given += ["--open-vocabulary", cost, "0", "--output", "open.npz", "--quiet"]
        assert wfstdec(files, "build", *given, *LEXICAL) == 0
        given = ["--graph", "open.npz", "--logprobs", "x.npz", "--format", "jsonl"]
        assert wfstdec(files, "decode", *given) == 0
        read = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["text"] for one in read] == ["ab c", "cab", "c"]
        costs[cost] = sum(one["graph_cost"] for one in read)
    assert costs["-9"] < costs["900"] - 4
    assert wfstdec(files, "info", "open.npz") == 0
    assert " of letters, 0 nats a token" in capsys.readouterr().out


def test_flags_reach_the_decoder(files, capsys):
    """The costs are those of the library's decoder with the same options."""
    given = ["--beam-size", "3", "--merge", "sum", "--lm-scale", "0.5"]
    given += ["--lookahead", "none", "--format", "jsonl", "--frame-shift", "0.5"]
    given += ["--unk-cost", "2", "--separator-optional", "--backend", "reference"]
    assert decode(files, "trie", *LEXICAL, *given) == 0
    read = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    decoder = library.TrieDecoder(
        tokens=files / "tokens.txt",
        lexicon=files / "lexicon.txt",
        lm=files / "lm.arpa",
        unk_cost=2.0,
        separator="<wb>",
        separator_optional=True,
        options=library.TrieOptions(
            beam_size=3, merge="sum", lm_scale=0.5, lookahead="none"
        ),
        frame_shift_s=0.5,
        backend="reference",
    )
    hyps = decoder.decode([logprobs_of(text) for text in SENTENCES.values()])
    assert [one["total_cost"] for one in read] == [hyp.total_cost for hyp in hyps]
    assert read[0]["words"][1]["start_s"] == hyps[0].words[1].start_s


def test_nbest_lists_in_json_lines(files, capsys):
    assert decode(files, "trie", *LEXICAL, "--nbest", "3", "--format", "jsonl") == 0
    lists = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert decode(files, "trie", *LEXICAL, "--format", "jsonl") == 0
    alone = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for one, best in zip(lists, alone, strict=True):
        nbest = one.pop("nbest")
        assert one == best
        assert nbest[0] == {key: best[key] for key in nbest[0]}
        assert len({other["text"] for other in nbest}) == len(nbest) == 3
        costs = [other["total_cost"] for other in nbest]
        assert costs == sorted(costs)


@pytest.mark.parametrize("form", ["text", "ctm"])
def test_nbest_lists_do_not_fit_everywhere(form, files, capsys):
    assert decode(files, "trie", *LEXICAL, "--nbest", "2", "--format", form) == 1
    assert capsys.readouterr().err == (
        f"wfstdec decode: nbest=2 with format={form!r}, expected format 'jsonl', which "
        "can hold them\n"
    )
    assert decode(files, "trie", *LEXICAL, "--nbest", "1", "--format", form) == 0


INPUTS = {
    "wfst": ["--graph", "g"],
    "trie": ["--tokens", "t"],
    "greedy": ["--tokens", "t"],
    "transducer": ["--model", "m"],
    "attention": ["--model", "m"],
}
CHANGES = {
    "wfst": ("--max-active none --beam-delta 2", {"max_active": None, "beam_delta": 2}),
    "trie": ("--token-top-k 9 --merge sum", {"token_top_k": 9, "merge": "sum"}),
    "greedy": ("--token-insertion -1", {"token_insertion": -1.0}),
    "transducer": (
        "--strategy aes --no-prefix-search --nbest 3",
        {"strategy": "aes", "prefix_search": False, "nbest": 3},
    ),
    "attention": (
        "--length-norm gnmt --max-tokens-per-s 7.5 --end-rule none",
        {"length_norm": "gnmt", "max_tokens_per_s": 7.5, "end_rule": "none"},
    ),
}


def parsed(decoder, *more):
    argv = ["decode", "--logprobs", "x", "--decoder", decoder, *INPUTS[decoder], *more]
    return make_parser().parse_args(argv)


@pytest.mark.parametrize("decoder", flags.DECODERS)
def test_search_flags_have_the_defaults_of_the_library(decoder):
    kind = flags.DECODERS[decoder]
    assert flags.search_options(parsed(decoder)) == kind()
    given, changes = CHANGES[decoder]
    args = parsed(decoder, *given.split(), "--lm-scale", "0.8")
    assert flags.search_options(args) == kind(lm_scale=0.8, **changes)


def test_the_help_says_whose_flags_and_defaults_they_are(capsys):
    with pytest.raises(SystemExit):
        main(["decode", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: 13.0 for wfst, 14.0 for trie)" in text
    [listed] = re.findall(r"auto \(the CPU\), ([a-z, ]+) \(default: auto\)", text)
    backends = {*WFST_BACKENDS, *TRIE_BACKENDS, *GREEDY_BACKENDS}
    assert set(listed.split(", ")) == backends
    for title in ("for all decoders", "for --decoder wfst or trie"):
        assert f"{title}: --" in text


CHOICES = {"merge": "max", "lookahead": "none", "strategy": "aes"}
CHOICES |= {"end_rule": "none", "stop": "full", "length_norm": "mean"}
SWITCHES = ("blank_scored", "prefix_search")


@pytest.mark.parametrize("decoder", flags.DECODERS)
def test_flags_of_another_decoder_are_an_error_that_says_whose_they_are(decoder):
    asked = 0
    for kind in flags.DECODERS.values():
        for field in dataclasses.fields(kind):
            owners = list(flags.search_defaults(field.name))
            if decoder in owners:
                continue
            flag = "--" + field.name.replace("_", "-")
            with pytest.raises(OptionError) as error:
                value = CHOICES.get(field.name, "1")
                more = [flag] if field.name in SWITCHES else [flag, value]
                flags.search_options(parsed(decoder, *more))
            assert str(error.value) == (
                f"{flag} with --decoder {decoder}, expected flags of that decoder; "
                f"{flag} is for --decoder {' or '.join(owners)}"
            )
            asked += 1
    assert asked > 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "--decoder wfst without --graph, expected both"),
        ("--decoder trie", "--decoder trie without --tokens, expected both"),
        ("--decoder greedy", "--decoder greedy without --tokens, expected both"),
        ("--tokens t", "wfst without --graph, expected both, or a --lexicon"),
        ("--lexicon l", "--decoder wfst without --tokens, expected both"),
        ("--graph g --tokens t", "a graph and tokens given, expected the graph alone"),
        ("--decoder trie --graph g", "--graph is for --decoder wfst"),
        ("--decoder greedy --tokens t --lexicon l", "--lexicon is for --decoder wfst"),
        ("--decoder trie --tokens t --beam-size 0", "beam_size=0, expected 1 to"),
        ("--decoder trie --tokens tokens.txt --word-insertion 1", "word_insertion=1.0"),
        (
            "--decoder greedy --tokens tokens.txt --backend cuda",
            "backend 'cuda', expected one of 'auto', 'cpu'",
        ),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(arguments, message, files, capsys):
    assert wfstdec(files, "decode", "--logprobs", "x.npz", *arguments.split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("wfstdec decode: ") and message in line


def saved(folder, *more, output="saved.lm"):
    return wfstdec(folder, "build-lm", *more, "--output", output, "--quiet")


def test_a_saved_model_decodes_as_its_arpa_file_does(files, capsys):
    """`rare` is not in the model: it is dropped with either."""
    words = ["--tokens", "tokens.txt", "--separator", "<wb>"]
    assert saved(files, *words, *LEXICAL[:2], "--arpa", "lm.arpa") == 0
    given = ["--format", "jsonl", "--lexicon", "lexicon.txt"]
    assert decode(files, "trie", *given, "--lm", "lm.arpa") == 0
    expected = capsys.readouterr().out
    assert decode(files, "trie", *given, "--lm", "saved.lm") == 0
    assert capsys.readouterr() == (expected, "")
    assert saved(files, "--tokens", "tokens.txt", "--arpa", "tokens.arpa") == 0
    for decoder in ("trie", "greedy"):
        assert decode(files, decoder, *given[:2], "--lm", "tokens.arpa") == 0
        expected = capsys.readouterr().out
        assert decode(files, decoder, *given[:2], "--lm", "saved.lm") == 0
        assert capsys.readouterr().out == expected


def test_a_model_over_the_words_of_a_graph(files, capsys):
    words = ["--tokens", "tokens.txt", "--separator", "<wb>", *LEXICAL]
    assert wfstdec(files, "build", *words, "--output", "graph.npz", "--quiet") == 0
    assert saved(files, "--graph", "graph.npz", "--arpa", "lm.arpa") == 0
    given = ["--lexicon", "lexicon.txt", "--lm", "saved.lm"]
    assert decode(files, "trie", *given) == 0
    assert capsys.readouterr() == (WORDS, "")


def test_info_says_what_a_saved_model_holds(files, capsys):
    assert saved(files, "--tokens", "tokens.txt", "--arpa", "tokens.arpa") == 0
    assert wfstdec(files, "info", "saved.lm") == 0
    lines = capsys.readouterr().out.splitlines()
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in lines)
    assert facts["states"] == "3"  # "", "<s>", "a"
    assert facts["arcs"] == "7"  # 5 tokens and <unk>, "a c"
    assert facts["tokens"].startswith("5, fingerprint ")
    assert facts["blank"] == "'<blank>', token 0"
    assert facts["cost of </s>"] == "2.30 nats after <s>"
    assert wfstdec(files, "info", "saved.lm", "--draw", "-") == 1
    assert "--draw with a language model, expected a graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "neither --graph nor --tokens, expected one of them"),
        ("--graph g --tokens t", "both --graph and --tokens, expected one of them"),
        ("--tokens none.txt", "none.txt: cannot read"),
        ("--tokens tokens.txt --lexicon lexicon.txt --nemo-tokens", "nemo_tokens with"),
    ],
)
def test_models_that_cannot_be_built(arguments, message, files, capsys):
    given = ["--arpa", "lm.arpa", "--separator", "<wb>", *arguments.split()]
    assert saved(files, *given) == 1
    assert message in capsys.readouterr().err
    assert not (files / "saved.lm").exists()
