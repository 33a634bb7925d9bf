"""`wfstdec doctor` on the demo, and on the same with one thing broken at a time."""

import gzip
import shlex
import unicodedata

import numpy as np
import pytest
from arpa_texts import arpa_of
from real_speech import RECIPE

from wfstdec import doctor
from wfstdec.cli.main import main

LN10 = np.float32(np.log(10))
WORDS = 40
"""One in this many words of the demo's lexicon and model, with the references'."""


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The demo's files with fewer words: an examination takes a tenth of a second."""
    folder = tmp_path_factory.mktemp("demo")
    text = (RECIPE / "refs.txt").read_text("utf-8")
    counts = {word for line in text.splitlines() for word in line.split()[1:]}
    lines = gzip.decompress((RECIPE / "lexicon.txt.gz").read_bytes()).decode()
    kept = [
        line
        for i, line in enumerate(lines.splitlines())
        if i % WORDS == 0 or line.split("\t")[0] in counts
    ]
    words = sorted({line.split("\t")[0] for line in kept})
    (folder / "lexicon.txt").write_text("\n".join(kept) + "\n", "utf-8")
    unigrams = "; ".join(f"-3.5 {word}" for word in ["<s>", "</s>", *words])
    (folder / "lm.arpa").write_text(arpa_of(unigrams), "utf-8")
    (folder / "refs.txt").write_text(text, "utf-8")
    (folder / "tokens.txt").write_bytes((RECIPE / "tokens.txt").read_bytes())
    (folder / "x.npz").write_bytes((RECIPE / "logprobs.npz").read_bytes())
    return folder


@pytest.fixture(scope="session")
def arrays():
    with np.load(RECIPE / "logprobs.npz") as file:
        return {name: file[name].astype(np.float32) for name in file.files}


def examine(demo, **changes):
    given = {flag[2:]: demo / name for flag, name in FLAGS.items()}
    return doctor.examine(**given | {"separator": "<wb>"} | changes)


def statuses(report):
    return {found.name: found.status for found in report.findings}


def save(tmp_path, arrays, change):
    path = tmp_path / "changed.npz"
    np.savez(path, **{name: change(x) for name, x in arrays.items()})
    return path


def test_the_demo_is_in_order(demo):
    report = examine(demo)
    assert set(statuses(report).values()) == {"ok"} and not report.is_wrong
    assert report["blank"].text == "'<blank>', token 0, wins 69 % of the frames"
    assert report["row sums"].text == "exp of a row sums to 0.970 to 1.032"
    assert "0.02 s (the default) gives 2.7 words a second" in report["frame shift"].text
    assert "6.9 % of 1,075 tokens" in report["greedy token errors"].text
    build, tune, decode, score = report.commands
    assert shlex.split(build)[:2] == ["wfstdec", "build"]
    assert "--separator '<wb>'" in build and "--blank" not in build
    assert "--ref" in tune and "--graph graph.npz" in decode and "--hyp" in score


def test_the_commands_that_it_prints_can_be_run(demo, tmp_path, monkeypatch):
    """Commands run one after the other; but the tuning is cut short."""
    monkeypatch.chdir(tmp_path)
    for command in examine(demo).commands:
        program, name, *flags = shlex.split(command)
        more = ["--max-trials", "1"] if name == "tune" else []
        assert program == "wfstdec" and main([name, *flags, *more]) == 0, command
    assert (tmp_path / "hyp.txt").stat().st_size > 0


def test_all_that_is_printed(demo, capsys):
    files = {flag: str(demo / name) for flag, name in FLAGS.items()}
    line = [part for pair in files.items() for part in pair]
    assert main(["doctor", *line]) == 0
    page = capsys.readouterr().out
    assert all(len(row) <= 88 for row in page.split("\ntake:")[0].splitlines())
    rows = [row.split() for row in page.splitlines()]
    assert ["separator", "look", "'<wb>'", "is", "21"] in [row[:5] for row in rows]
    assert "take:\n  wfstdec build --tokens" in page
    assert main(["doctor", *line, "--blank", "t"]) == 1
    assert "fix what is wrong, then:" in capsys.readouterr().out


FLAGS = {
    "--tokens": "tokens.txt",
    "--lexicon": "lexicon.txt",
    "--lm": "lm.arpa",
    "--logprobs": "x.npz",
    "--ref": "refs.txt",
}


def test_without_lexicon_model_or_references(demo):
    report = examine(demo, lexicon=None, lm=None, ref=None, separator=None)
    assert not report.is_wrong
    assert report["separator"].status == "look"
    assert "words a second" in report["frame shift"].text  # separators count as words
    assert report.commands[0].startswith("wfstdec decode --decoder greedy --tokens")


def test_a_forgotten_separator(demo):
    report = examine(demo, separator=None)
    assert report["separator"].text == (
        "'<wb>' is 21 % of the spoken tokens and no word has it; --separator '<wb>'"
    )
    assert "--separator '<wb>'" in report.commands[0]


def test_a_separator_that_is_none(demo):
    report = examine(demo, separator="<other>")
    assert report["separator"].status == "look"
    assert statuses(examine(demo, separator="<w>"))["separator"] == "wrong"


def test_a_wrong_blank(demo):
    report = examine(demo, blank="t")
    assert report["blank"].status == "wrong" and report.is_wrong
    assert report["blank"].text.endswith("--blank 0?")
    assert "--blank 0" in report.commands[0]


def test_a_wrong_blank_whose_index_is_a_name(demo, tmp_path):
    names = [line.split()[0] for line in (demo / "tokens.txt").open(encoding="utf-8")]
    names[names.index("<other>")] = "0"
    path = tmp_path / "tokens.txt"
    path.write_text("\n".join(names) + "\n", "utf-8")
    report = examine(demo, tokens=path, blank="t")
    assert report["blank"].text.endswith("--blank <blank>?")
    assert "--blank '<blank>'" in report.commands[0]


def upper_words(text):
    head, grams = text.split("1-grams:")
    upper = grams.upper().replace("<S>", "<s>").replace("</S>", "</s>")
    return f"{head}1-grams:{upper}".replace("\\END\\", "\\end\\")


def upper_references(text):
    pairs = [line.split(" ", 1) for line in text.splitlines()]
    return "".join(f"{utterance} {words.upper()}\n" for utterance, words in pairs)


def permuted(text):
    names = [row.split()[0] for row in text.splitlines()]
    return "\n".join([*names[:2], *names[41:1:-1], *names[42:]]) + "\n"


@pytest.mark.parametrize(
    ("name", "change", "wrong", "texts"),
    [
        (
            *("tokens", lambda text: text.replace("<blank> 0", "<nil> 0")),
            *(("tokens",), {"tokens": "choose by blank= (--blank)"}),
        ),
        (
            *("tokens", lambda text: text[: text[:-1].rindex("\n") + 1]),
            *((), {"log-probs": "--blank 42"}),
        ),
        ("tokens", permuted, ("greedy token errors",), {}),
        (*("lm", upper_words, ("case", "lexicon in LM")), {"case": "LM UPPER CASE"}),
        ("ref", upper_references, ("case", "references in lexicon"), {}),
        (
            *("lexicon", lambda text: "hello HH AH0 L OW1\nworld W ER1 L D\n"),
            *(("lexicon",), {"lexicon": "2 of 2 entries use 7 tokens that the token"}),
        ),
        (
            *("ref", lambda text: text.replace("-", "_"), ("references",)),
            {"references": "1272_128104_0012"},
        ),
    ],
    ids=[
        *("a blank that no name tells", "a blank behind all names", "other tokens"),
        *("a model in upper case", "references in upper case"),
        *("a lexicon of other tokens", "references of other utterances"),
    ],
)
def test_a_file_that_does_not_fit(demo, tmp_path, name, change, wrong, texts):
    text = (demo / FLAGS[f"--{name}"]).read_text("utf-8")
    (tmp_path / "changed").write_text(change(text), "utf-8")
    report = examine(demo, **{name: tmp_path / "changed"})
    assert {*wrong} <= {f.name for f in report.findings if f.status == "wrong"}
    for finding, part in texts.items():
        assert part in report[finding].text


def test_accents_that_are_written_in_two_ways(demo, tmp_path):
    """Every `e` becomes `é`: one character in the lexicon, two elsewhere."""
    files = {}
    for name, form in (("lexicon", "NFC"), ("lm", "NFD"), ("ref", "NFD")):
        text = (demo / FLAGS[f"--{name}"]).read_text("utf-8")
        before, mark, words = (
            text.rpartition("-grams:") if name == "lm" else ("", "", text)
        )
        lines = words.splitlines()
        if name == "ref":
            lines = [" ".join((u, *w)) for u, *w in map(str.split, lines)]
        if name == "lexicon":
            entries = (line.split(maxsplit=1) for line in lines)
            lines = [f"{word.replace('e', 'é')}\t{rest}" for word, rest in entries]
        else:
            lines = [line.replace("e", "é") for line in lines]
        changed = "\n".join(lines).replace("\\énd\\", "\\end\\")
        files[name] = tmp_path / name
        made = unicodedata.normalize(form, before + mark + changed)
        files[name].write_text(made + "\n", "utf-8")
    report = examine(demo, **files)
    assert not [one for one in report.findings if one.status == "wrong"]


@pytest.mark.parametrize(
    ("change", "name", "remedy"),
    [
        (lambda x: x.T, "log-probs", "transpose them"),
        (lambda x: x / LN10, "row sums", "multiply them by ln 10"),
        (np.exp, "row sums", "take the log"),
        (lambda x: x + np.arange(len(x))[:, None], "row sums", "take log_softmax"),
        (lambda x: x + np.linspace(1, 9, x.shape[1]), "row sums", "priors"),
        (lambda x: x / np.log(2), "row sums", "multiply them by ln 2"),
    ],
    ids=["transposed", "log10", "probabilities", "logits", "priors", "log2"],
)
def test_numbers_that_are_no_log_probs(demo, tmp_path, arrays, change, name, remedy):
    report = examine(demo, logprobs=save(tmp_path, arrays, change))
    assert report[name].status == "wrong" and remedy in report[name].text
    assert [f.name for f in report.findings if f.status == "wrong"] == [name]


@pytest.mark.parametrize("pair", [(5, 20), (3, 30)])
def test_columns_that_are_exchanged(demo, tmp_path, arrays, pair):
    """Two of 43: the error rate alone stays below what a poor model has."""
    columns = np.arange(43)
    columns[[*pair]] = pair[::-1]
    report = examine(demo, logprobs=save(tmp_path, arrays, lambda x: x[:, columns]))
    names = (demo / "tokens.txt").read_text("utf-8").split("\n")
    first, second = (names[one].split()[0] for one in pair)
    assert report["token order"].status == "wrong"
    either = f"{first!r} as {second!r}", f"{second!r} as {first!r}"
    assert any(one in report["token order"].text for one in either)


def test_frames_of_another_length(demo, tmp_path, arrays):
    halved = save(tmp_path, arrays, lambda x: x[::4])
    report = examine(demo, logprobs=halved)
    assert report["frame shift"].status == "look"
    assert "--frame-shift 0.08 gives 2.6" in report["frame shift"].text
    assert "--frame-shift 0.08" in report.commands[2]
    right = examine(demo, logprobs=halved, frame_shift_s=0.08)
    assert right["frame shift"].status == "ok"
    for wrong in (0.01, 0.04):  # with log-probs of 0.02
        assert examine(demo, frame_shift_s=wrong)["frame shift"].status == "look"


def test_files_that_are_not_there(demo, tmp_path):
    for name in ("tokens", "logprobs", "lexicon", "lm", "ref"):
        report = examine(demo, **{name: tmp_path / "none.npz"})
        assert report.is_wrong and "none.npz" in str(report)


def test_a_frame_shift_in_milliseconds_on_the_command_line(capsys):
    line = ["decode", "--logprobs", "x.npz", "--graph", "g.npz", "--frame-shift", "20"]
    with pytest.raises(SystemExit) as stop:
        main(line)
    assert stop.value.code == 2
    assert "20.0, expected seconds, at most 1; milliseconds? then 0.02" in (
        capsys.readouterr().err
    )
