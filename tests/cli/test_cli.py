"""The commands, in this process, on small real files."""

import argparse
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import kaldiio
import numpy as np
import pytest
from cli_files import (
    SENTENCES,
    TOKENS,
    build,
    logprobs_of,
    recipe_of,
    wfstdec,
    write_files,
)

from wfstdec.cli import flags
from wfstdec.cli.decode import choose_decoder
from wfstdec.cli.main import COMMANDS, command_named, main, make_parser
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.grammar import build_grammar
from wfstdec.fst.openfst import FstContent, write_fst
from wfstdec.metrics import count_errors
from wfstdec.recipes import find_recipe
from wfstdec.text.arpa import read_arpa
from wfstdec.text.tokens import read_tokens


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def commands_in(text):
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip()]


def command_parser(name):
    [commands] = make_parser(name)._subparsers._group_actions
    return commands.choices[name]


def decode(folder, *more):
    given = ["--graph", "graph.npz", "--logprobs", "x.npz", "--threads", "1"]
    return wfstdec(folder, "decode", *given, *more)


def test_from_text_files_to_a_word_error_rate(files, capsys):
    assert build(files) == 0
    err = capsys.readouterr().err
    assert "G: " in err and "T o LG: " in err
    assert "warning: 1 of 4 lexicon words are not in the language model" in err
    assert decode(files, "--output", "hyp.txt") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "decoded 3 utterances, 0.5 s of audio in " in err
    assert "all reached a final state" in err
    assert (files / "hyp.txt").read_text() == "utt2 ab c\nutt1 cab\nutt3 c\n"
    assert wfstdec(files, "score", "--ref", "ref.txt", "--hyp", "hyp.txt") == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "%WER 0.00 [ 0 / 4, 0 ins, 0 del, 0 sub ]",
        "%SER 0.00 [ 0 / 3 ]",
        "Scored 3 utterances, 0 without a hypothesis",
    ]


def test_results_go_to_standard_output_in_every_format(files, capsys):
    build(files, "--quiet")
    assert capsys.readouterr().err == ""
    assert decode(files, "--quiet") == 0
    assert capsys.readouterr() == ("utt2 ab c\nutt1 cab\nutt3 c\n", "")
    assert decode(files, "--quiet", "--output", "-", "--format", "ctm") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "utt2 1 0.000 0.100 ab"
    assert len(lines) == 4
    assert decode(files, "--quiet", "--format", "jsonl", "--frame-shift", "0.04") == 0
    read = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["id"] for one in read] == list(SENTENCES)
    assert read[0]["words"][0] == {"word": "ab", "start_s": 0.0, "end_s": 0.2}
    assert read[0]["reached_final"] is True
    total = read[0]["acoustic_cost"] + read[0]["graph_cost"]
    assert read[0]["total_cost"] == pytest.approx(total)


def test_phrases_may_be_the_only_vocabulary(files, capsys):
    np.savez(files / "x.npz", one=logprobs_of("a b"), other=logprobs_of("c"))
    build(files)
    (files / "only.txt").write_text("ab\n\n[unk]\n")
    assert decode(files, "--quiet", "--only-phrases", "only.txt") == 0
    assert capsys.readouterr().out == "one ab\nother [unk]\n"
    given = ["--tokens", files / "tokens.txt", "--logprobs", files / "x.npz"]
    given += ["--only-phrases", files / "only.txt", "--decoder", "greedy"]
    assert main(["decode", *map(str, given)]) == 1
    assert "--only-phrases with --decoder greedy" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(), ("--exact-boosts",)])
def test_boosts_match_in_any_case_unless_they_are_exact(files, capsys, flags):
    """Words that the decoder does not know are named."""
    np.savez(files / "x.npz", utt=logprobs_of("a b"))
    (files / "boosts.jsonl").write_text(
        '{"id": "utt", "boosts": {"C": 19.0, "zebra": 1.0}}\n'
    )
    build(files)
    assert decode(files, "--quiet", "--beam", "inf") == 0
    assert capsys.readouterr().out == "utt ab\n"
    assert decode(files, "--boost", "boosts.jsonl", "--beam", "inf", *flags) == 0
    out, err = capsys.readouterr()
    assert ("c" in out.split()[1:]) != bool(flags)
    assert ("'C' (fits 'c')" if flags else "'C' as 'c'") in err
    assert "boosted words are not in the decoder's table" in err and "'zebra'" in err


def test_info_says_what_a_graph_holds(files, capsys):
    build(files, "--topology", "compact")
    capsys.readouterr()
    assert wfstdec(files, "info", "graph.npz") == 0
    out = capsys.readouterr().out
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert facts["topology"] == "compact"
    assert facts["blank"] == "'<blank>', token 0"
    assert facts["words"] == "3, 3 pronunciations"
    assert "'<wb>'" in out


def test_small_graphs_are_drawn_and_large_ones_are_not(files, capsys, monkeypatch):
    build(files)
    capsys.readouterr()
    assert wfstdec(files, "info", "graph.npz", "--draw", "-") == 0
    out = capsys.readouterr().out
    assert out.startswith("digraph wfstdec {") and out.endswith("}\n")
    assert "a:ab" in out or "b:ab" in out
    assert wfstdec(files, "info", "graph.npz", "--draw", "graph.dot") == 0
    assert (files / "graph.dot").read_text() == out
    monkeypatch.setattr("wfstdec.io.lattices.MOST_ARCS", 3)
    assert wfstdec(files, "info", "graph.npz", "--draw", "-") == 1
    assert "arcs, expected at most 3 to draw" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["const", "vector", "text", None])
def test_a_graph_goes_to_openfst_and_back(form, files, capsys):
    """In a form that is asked for, or by the name of the file."""
    build(files)
    names = "".join(f"{t} {i}\n" for i, t in enumerate(["<eps>", "ab", "cab", "c"]))
    (files / "words.txt").write_text(names)
    form_flags = ["--to", form] if form else []
    assert wfstdec(files, "convert", "graph.npz", "x.fst", *form_flags) == 0
    assert (b"const" in (files / "x.fst").read_bytes()[:16]) == (
        form in ("const", None)
    )
    tables = ["--tokens", "tokens.txt", "--words", "words.txt"]
    assert wfstdec(files, "convert", "x.fst", "back.npz", *tables) == 0
    capsys.readouterr()
    assert decode(files, "--graph", "back.npz", "--quiet") == 0
    assert capsys.readouterr().out == "utt2 ab c\nutt1 cab\nutt3 c\n"
    assert wfstdec(files, "info", "back.npz") == 0
    assert "topology          unknown" in capsys.readouterr().out


def test_score_tells_the_best_that_was_kept(files, capsys):
    build(files)
    given = ["--graph", "graph.npz", "--quiet", "--beam", "30", "--lattice-beam", "30"]
    lists = ["--nbest", "9", "--format", "jsonl", "--output", "lists.jsonl"]
    assert decode(files, *given, *lists) == 0
    assert decode(files, *given, "--lattices", "x.lat", "--output", "hyp.txt") == 0
    spoken = {"utt1": "cab", "utt2": "c ab", "utt3": "ab c", "utt9": "ab"}
    text = "".join(f"{name} {words}\n" for name, words in spoken.items())
    (files / "ref.txt").write_text(text)
    capsys.readouterr()
    kept = ["--nbest-lists", "lists.jsonl", "--lattices", "x.lat"]
    assert wfstdec(files, "score", "--ref", "ref.txt", "--hyp", "hyp.txt", *kept) == 0
    first, *_, of_lists, of_lattices = capsys.readouterr().out.splitlines()
    lines = (files / "lists.jsonl").read_text().splitlines()
    fewest = {}
    for line in map(json.loads, lines):
        texts = [one["text"].split() for one in line["nbest"]]
        words = spoken[line["id"]].split()
        fewest[line["id"]] = min(count_errors(words, text).total for text in texts)
    errors = sum(fewest.values()) + 1  # nothing of utt9
    assert of_lists.startswith(f"%WER {100 * errors / 6:.2f} [ {errors} / 6 ] of the")
    least = float(of_lattices.split()[1])
    assert least <= float(of_lists.split()[1]) < float(first.split()[1])
    assert of_lattices.endswith("of the best in lattices")
    (files / "lists.jsonl").write_text("hello\n")
    assert wfstdec(files, "score", "--ref", "ref.txt", "--hyp", "hyp.txt", *kept) == 1
    assert "lists.jsonl:1: not a readable" in capsys.readouterr().err


def test_score_names_missing_and_worst_utterances(files, capsys):
    (files / "hyp.txt").write_text("utt1 ab\nutt2 ab c\nutt9 c\n")
    given = ["--ref", "ref.txt", "--hyp", "hyp.txt", "--worst", "1"]
    assert wfstdec(files, "score", *given) == 0
    assert capsys.readouterr().out.splitlines() == [
        "%WER 50.00 [ 2 / 4, 0 ins, 1 del, 1 sub ]",
        "%SER 66.67 [ 2 / 3 ]",
        "95 % interval of the WER: 0.00 to 100.00 (bootstrap over 3 utterances)",
        "Scored 3 utterances, 1 without a hypothesis",
        "counted as deletions: utt3",
        "without a reference, left out: utt9",
        "utt1: 1 errors / 1 words",
        "  ref cab",
        "  hyp ab",
    ]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--beam", "-1"], "beam=-1.0, expected"),
        (["--backend", "gpu"], "backend 'gpu', expected one of"),
        (["--boost", "none.txt"], "none.txt: cannot read"),
        (["--graph", "lm.arpa"], "lm.arpa: not a readable graph file"),
        (["--logprobs", "none.npz"], "none.npz: no such file"),
        (["--output", "nowhere/hyp.txt"], "hyp.txt: cannot write"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(arguments, message, files, capsys):
    build(files, "--quiet")
    assert decode(files, *arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("wfstdec decode: ") and message in line


def test_a_faulty_lexicon_leaves_no_graph(files, capsys):
    (files / "lexicon.txt").write_text("ab\ta x\n")
    assert build(files) == 1
    assert "lexicon.txt:1: 'ab' uses token 'x', which" in capsys.readouterr().err
    assert not (files / "graph.npz").exists()


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["decode", "--graph", "g.npz"],
        ["build", "--topology", "round"],
        ["decode", "--graph", "g", "--logprobs", "x", "--beam", "wide"],
        ["decode", "--graph", "g", "--logprobs", "x", "--max-act", "5"],
        ["decode", "--graph", "g", "--logprobs", "x", "--threads", "-1"],
        ["decode", "--graph", "g", "--logprobs", "x", "--frame-shift", "0"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit) as error:
        main(argv)
    assert error.value.code == 2
    assert "usage: wfstdec" in capsys.readouterr().err


def test_every_flag_is_defined_once_and_used():
    used = set()
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        command_named(name).add_arguments(parser)
        used |= {s for action in parser._actions for s in action.option_strings}
    used -= {flag for flag in used if flag.replace("--no-", "--", 1) in flags.FLAGS} - (
        flags.FLAGS.keys()
    )  # the opposites of switches
    assert flags.FLAGS.keys() == used & flags.FLAGS.keys()
    assert used - flags.FLAGS.keys() == {"-h", "--help"}


@pytest.mark.parametrize(
    "name, rare",
    [
        ("decode", ("--phrase-depth", "--prefix-search")),
        ("transcribe", ("--phrase-depth", "--lookahead")),
        ("serve", ("--max-unread-s", "--lookahead")),
    ],
)
def test_help_of_long_commands_is_short(name, rare, capsys):
    """The common flags, some 20 lines; README's test runs the examples."""
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([name, flag])
        assert ended.value.code == 0
    text = capsys.readouterr().out
    text = text[: len(text) // 2]
    lines = text.splitlines()
    assert len(lines) <= 22 and max(map(len, lines)) <= 88
    assert text.count(f"\n  wfstdec {name} ") == 2
    assert f"wfstdec {name} --help-all" in text
    with pytest.raises(SystemExit):
        main([name, "--help-all"])
    whole = capsys.readouterr().out
    for flag in re.findall(r"^  (--[a-z-]+)", text, re.M):
        assert flag in flags.FLAGS and f"{flag} " in whole, flag
    for flag in (*rare, "--help-all"):
        assert flag in whole and f"  {flag}" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_has_an_example(name, capsys):
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([name, flag])
        assert ended.value.code == 0
    text = capsys.readouterr().out
    lines = text[: len(text) // 2].splitlines()
    assert len(lines) <= 32 and max(map(len, lines)) <= 88
    examples = commands_in(command_named(name).examples)
    assert examples and name in shlex.split(examples[-1])
    for example in (one for one in examples if one.startswith("wfstdec ")):
        words = shlex.split(example.partition(" > ")[0])
        make_parser(words[1]).parse_args(words[1:])


def test_examples_of_help_run_one_after_the_other(tmp_path, monkeypatch):
    """In a copy of the demo's folder; those with models and sound: README's test."""
    shutil.copytree(find_recipe(), tmp_path / "demo")
    monkeypatch.chdir(tmp_path / "demo")
    first = ("doctor", "build", "decode")
    others = "info build-lm align format rescore score compare tune convert".split()
    for name in (*first, *others):
        for example in commands_in(command_named(name).examples):
            words = shlex.split(example)
            if words[0] == "wfstdec":
                assert main([*words[1:], "--quiet"]) == 0, example


@pytest.mark.parametrize(
    "argv, message",
    [
        (["decod"], "no command 'decod'; nearest: decode"),
        (["xyzzy"], "no command 'xyzzy'\n"),
        (["decode", "--logprob=x"], "no flag --logprob; nearest: --logprobs"),
        (["build", "--no-minimise"], "no flag --no-minimise; nearest: --no-minimize"),
        (["score", "--qqqq"], "no flag --qqqq\n"),
    ],
)
def test_names_with_typos_get_the_nearest(argv, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_completion_of_bash(capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    script += "COMP_WORDS=(wfstdec decode --lm-s); COMP_CWORD=2\n"
    script += '_shtab_wfstdec wfstdec --lm-s decode; echo "${COMPREPLY[@]}"\n'
    found = subprocess.run(["bash"], input=script, capture_output=True, text=True)
    assert found.stdout.split() == ["--lm-scale"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_flags_that_the_command_has(name):
    """Flags are the command's own, or quoted with the command that has them."""
    parser = command_parser(name)
    known = parser._option_string_actions
    texts = {"/".join(a.option_strings) or a.dest: a.help for a in parser._actions}
    for where, text in texts.items():
        own = re.sub("`wfstdec .*?`", "", text or "")
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", own):
            assert flag in known, f"{name}, help of {where} names {flag}"


@pytest.mark.parametrize("name", ["transcribe", "serve"])
def test_commands_of_audio_take_the_decoder_of_the_model(name, capsys):
    """They refuse another family's; tokens and blank are the model's."""
    files = ["a.wav"] if name == "transcribe" else []
    if name == "serve":
        pytest.importorskip("starlette")
    assert main([name, "model.onnx", *files, "--decoder", "transducer"]) == 1
    expected = "transducer for a model of the family 'ctc', expected wfst or trie or"
    assert expected in capsys.readouterr().err
    given = [name, "model.onnx", *files, "--tokens", "t", "--blank", "-1"]
    for decoder in (["--graph", "g"], ["--decoder", "trie", "--lexicon", "l"]):
        args = make_parser(name).parse_args([*given, *decoder])
        choose_decoder(args)
        assert flags.search_options(args).lm_scale == 1.0


@pytest.fixture
def open_folder():
    """A folder that anybody may read, and its owner alone may write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_no_kernel(flag, open_folder):
    """Issue 24: installed by root, run by another user without a HOME."""
    code = f"""if True:
        import contextlib, os, sys
        def run():
            from wfstdec.cli.main import main
            with contextlib.suppress(SystemExit):
                main(["{flag}"])
        run()  # the standard library may lie where root alone may read
        for name in [name for name in sys.modules if name.startswith("wfstdec")]:
            del sys.modules[name]
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        run()
        print("imported", *{{"numba", "numpy", "tqdm"}} & set(sys.modules))"""
    package = open_folder / "wfstdec"
    shutil.copytree(
        Path(main.__code__.co_filename).parents[1],
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for path in (package, *package.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    run = subprocess.run(
        [sys.executable, "-SB", "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={"HOME": "/nonexistent", "PYTHONPATH": str(open_folder)},
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("imported\n")
    expected = "wfstdec 0." if flag == "--version" else "  demo "
    assert run.stdout.count(expected) == 2


def program(files, *before):
    """The words of a program that decodes, and runs these lines of Python first."""
    build(files, "--quiet")
    lines = ["import sys", *before, "from wfstdec.cli.main import main"]
    lines += ["sys.exit(main())"]
    argv = [sys.executable, "-c", "; ".join(lines), "decode", "--quiet", "--graph"]
    return [*argv, str(files / "graph.npz"), "--logprobs", str(files / "x.npz")]


def lang_folder(files):
    """Kaldi's lang folder of the small files, with symbols in addition to theirs."""
    lang = files / "lang"
    lang.mkdir()
    table = read_tokens(files / "tokens.txt")
    words = ("<eps>", "ab", "cab", "c")
    labels = LabelSpace(table, words)
    grammar = build_grammar(read_arpa(files / "lm.arpa"), labels)
    write_fst(lang / "G.fst", FstContent(grammar), "vector")
    for name, symbols in (
        ("words.txt", [*words, "#0", "<s>", "</s>"]),
        ("phones.txt", ["<eps>", *TOKENS, "#0", "#1", "#2"]),
    ):
        lines = [f"{symbol} {i}\n" for i, symbol in enumerate(symbols)]
        (lang / name).write_text("".join(lines))
    entries = "ab 1.0 a b #1\ncab 1.0 c a b\nc 1.0 c #2\nrare 0.5 b b\n"
    (lang / "lexiconp_disambig.txt").write_text(entries)
    return lang


def test_a_lang_folder_of_kaldi_decodes_as_lexicon_and_lm_do(files, capsys):
    lang = lang_folder(files)
    texts = []
    (files / "words").write_text((lang / "words.txt").read_text())
    lexicon = ["--lexicon", "lexicon.txt", "--tokens", "tokens.txt"]
    grammar = ["--grammar", str(lang / "G.fst"), "--words", str(files / "words")]
    lm = ["--lm", "lm.arpa"]
    for given in ([*lexicon, *lm], ["--lang", str(lang)], [*lexicon, *grammar]):
        more = ["--separator", "<wb>", "--output", "graph.npz", "--quiet"]
        assert wfstdec(files, "build", *given, *more) == 0
        assert decode(files, "--quiet") == 0
        texts.append(capsys.readouterr().out)
    assert texts == [texts[0]] * 3 and texts[0].startswith("utt2 ab c\n")
    (lang / "words.txt").unlink()
    for given, message in (
        (["--lang", str(lang)], "no symbol table, expected one that names the words"),
        (lexicon, "neither --lm nor --grammar given, expected one, or --lang"),
        (["--lang", str(files)], "neither --lm nor --grammar given"),
    ):
        assert wfstdec(files, "build", *given, "--output", "g.npz") == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--boost", "--logprobs", "--ref"])
def test_standard_input_is_read_by_one_flag(flag, files, capsys, monkeypatch):
    build(files, "--quiet")
    texts = {"--boost": b"c\t2\n", "--ref": (files / "ref.txt").read_bytes()}
    kaldiio.save_ark(str(files / "x.ark"), dict(np.load(files / "x.npz")))
    texts["--logprobs"] = (files / "x.ark").read_bytes()
    stdin = io.TextIOWrapper(io.BytesIO(texts[flag]))
    monkeypatch.setattr("sys.stdin", stdin)
    if flag == "--ref":
        decode(files, "--output", "h.txt")
        assert wfstdec(files, "score", "--hyp", "h.txt", "--ref", "-") == 0
        assert "%WER 0.00" in capsys.readouterr().out
        return
    given = {"--graph": "graph.npz", "--logprobs": "x.npz"} | {flag: "-"}
    given = [word for pair in given.items() for word in pair]
    assert wfstdec(files, "decode", *given) == 0
    assert capsys.readouterr().out == "utt2 ab c\nutt1 cab\nutt3 c\n"
    for more, message in (
        (["--phrases", "ark:-"], "standard input for "),
        (["--resume", "--output", "h.txt"], f"--resume with {flag} from a pipe"),
    ):
        assert wfstdec(files, "decode", *given, *more) == 1
        assert message in capsys.readouterr().err


def test_words_of_the_lm_that_the_lexicon_lacks_are_counted(files, capsys):
    (files / "lexicon.txt").write_text("ab a b\nc c\n")
    assert build(files) == 0
    found = "1 of 3 words of the language model are not in the lexicon: 'cab'"
    assert found in capsys.readouterr().err


def test_the_output_may_be_cut_off_by_its_reader(files):
    argv = program(files)
    run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait() == 1


def test_decoding_needs_no_fst_engine(files):
    argv = program(files, "sys.modules.update(kaldifst=None, pynini=None, torch=None)")
    run = subprocess.run(argv, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "utt2 ab c\nutt1 cab\nutt3 c\n"


def test_the_demo_builds_decodes_scores_and_boosts(files, capsys):
    recipe = str(recipe_of(files))
    assert main(["demo", "--recipe", recipe, "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert "T o LG: " in err
    assert "%WER 0.00 [ 0 / 4, 0 ins, 0 del, 0 sub ]" in out
    assert "with boosts in nats: c 2" in out
    (files / "tokens.txt").write_text("".join(f"{t}\n" for t in [*TOKENS, "d"]))
    assert main(["demo", "--recipe", recipe]) == 1  # the log-probs have one token less
