"""Transducers and attention decoders: in `decode`, `compare` and `tune`."""

import json

import numpy as np
import pytest
from arpa_texts import LETTERS_ARPA
from cli_files import wfstdec, write_files

from wfstdec.compare import load_comparison

torch = pytest.importorskip("torch")

from wfstdec import (  # noqa: E402
    AttentionDecoder,
    AttentionOptions,
    TransducerDecoder,
    TransducerOptions,
    load_attention,
    load_transducer,
)
from wfstdec.attention.torch_model import AttentionSizes, JointNet  # noqa: E402
from wfstdec.transducer.torch_model import (  # noqa: E402
    HeadConfig,
    TransducerConfig,
    TransducerNet,
)

LETTERS = ("<wb>", "a", "b", "c")
SPEECH = ["--logprobs", "x.npz", "--ref", "ref.txt"]


@pytest.fixture
def files(tmp_path):
    torch.manual_seed(3)
    sizes = {"input_dim": 5, "width": 16, "dim": 16, "layers": 1}
    heads = (HeadConfig("rnnt"), HeadConfig("tdt", "lstm", (0, 1, 2)))
    transducer = TransducerNet(TransducerConfig(LETTERS, heads, **sizes))
    torch.manual_seed(3)
    net = JointNet(
        TransducerConfig(LETTERS, (), **sizes),
        AttentionSizes(5, 16, 16, heads=2, layers=1, positions=40),
    )
    with torch.no_grad():
        for head in transducer.heads.values():
            head.joiner.tokens.weight *= 8
        net.attention.embed.weight *= 3
        net.attention.norm.bias -= 1.4 * net.attention.embed.weight[-1]  # few ends
    transducer.save(tmp_path / "transducer.npz")
    net.save(tmp_path / "attention.npz")
    (tmp_path / "letters.arpa").write_text(LETTERS_ARPA)
    return write_files(tmp_path)


def decode(folder, decoder, *more):
    given = ["--decoder", decoder, "--model", f"{decoder}.npz", "--logprobs", "x.npz"]
    return wfstdec(folder, "decode", *given, *more)


def rows_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("decoder", "flags"),
    [
        *(
            ("transducer", f"--head {head} --strategy {strategy} --beam-size 3")
            for strategy in ("greedy", "alsd", "aes")
            for head in ("rnnt", "tdt")
        ),
        ("attention", ""),
        ("attention", "--beam-size 1"),
        ("attention", "--beam-size 3 --length-norm mean --stop full"),
        ("attention", "--length-norm gnmt --gnmt-alpha 0.9 --max-tokens-per-s 9"),
        ("attention", "--ctc-weight 0.3 --pre-beam 2"),
        ("attention", "--no-repeat-ngram 2 --token-insertion -1"),
    ],
)
def test_decode_says_what_the_decoder_says(files, capsys, decoder, flags):
    given = [*flags.split(), "--lm", "letters.arpa", "--separator", "<wb>"]
    given += ["--lm-scale", "0.4", "--format", "jsonl", "--quiet"]
    given += ["--no-blank-scored"] if decoder == "transducer" else []
    assert decode(files, decoder, *given) == 0
    found = rows_of(capsys)
    words = iter(flags.split())
    options = {flag[2:].replace("-", "_"): value_of(next(words)) for flag in words}
    path, options["lm_scale"] = files / f"{decoder}.npz", 0.4
    more = {"lm": files / "letters.arpa", "separator": "<wb>", "input": "features"}
    if decoder == "transducer":
        model = load_transducer(path, options.pop("head"))
        options["blank_scored"] = False
        made = TransducerDecoder(model, options=TransducerOptions(**options), **more)
    else:
        more["frame_shift_s"] = 0.08
        options = AttentionOptions(**options)
        made = AttentionDecoder(load_attention(path), options=options, **more)
    logprobs = np.load(files / "x.npz")
    for row in found:
        (hyp,) = made.decode([logprobs[row["id"]]])
        assert row["text"] == hyp.text
        assert row["total_cost"] == pytest.approx(hyp.total_cost, rel=1e-4)
    assert len(found) == 3
    if flags == "--beam-size 1":
        assert any(row["text"] for row in found)


def value_of(word):
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


@pytest.mark.parametrize("rule", [None, "closed", "none"])
def test_nbest_and_phrases(files, capsys, rule):
    (files / "phrases.txt").write_text("cab\t12\n")
    given = ["--nbest", "2", "--phrases", "phrases.txt", "--separator", "<wb>"]
    given += ["--format", "jsonl", "--quiet"]
    decoder = "attention" if rule else "transducer"
    if rule:
        given += ["--end-rule", rule]
    assert decode(files, decoder, *given) == 0
    rows = rows_of(capsys)
    assert {row["id"] for row in rows} == {"utt1", "utt2", "utt3"}
    if rule:
        assert all(len(row["nbest"]) == 2 for row in rows)
        assert any("cab" in one["text"] for row in rows for one in row["nbest"])


@pytest.mark.parametrize(
    ("decoder", "flags", "message"),
    [
        ("transducer", "", "--decoder transducer without --model, expected both"),
        ("transducer", "--model transducer.npz --head ctc", "expected one of the mo"),
        ("transducer", "--model transducer.npz --beam 8", "--beam is for --decoder wf"),
        ("transducer", "--model ref.txt", "not a readable transducer"),
        ("transducer", "--model transducer.npz --backend no", "expected 'auto' or a d"),
        ("transducer", "--model transducer.npz --max-symbols 0", "max_symbols=0"),
        ("attention", "", "--decoder attention without --model, expected both"),
        ("attention", "--model attention.npz --head ctc", "--head is for --decoder tr"),
        ("attention", "--model attention.npz --strategy aes", "--strategy is for --d"),
        ("attention", "--model transducer.npz", "not a readable attention model"),
        ("attention", "--model attention.npz --backend no", "expected 'auto' or a dev"),
        ("attention", "--model attention.npz --beam-size 0", "beam_size=0"),
        ("transducer", "--model transducer.npz --length-norm gnmt", "length_norm="),
    ],
)
def test_what_cannot_be_decoded_is_one_line(files, capsys, decoder, flags, message):
    given = ["--decoder", decoder, "--logprobs", "x.npz", *flags.split()]
    assert wfstdec(files, "decode", *given) == 1
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("wfstdec decode: ") and message in line


def test_a_norm_that_no_decoder_has_is_refused(files, capsys):
    with pytest.raises(SystemExit):
        decode(files, "attention", "--length-norm", "sum")
    assert "invalid choice" in capsys.readouterr().err


def test_features_of_another_size_name_the_utterance(files, capsys):
    np.savez(files / "x.npz", wide=np.zeros((4, 7), np.float32))
    assert decode(files, "transducer", "--quiet") == 1
    message = capsys.readouterr().err
    assert "'wide'" in message and "F=7" in message and "F=5" in message


def test_all_families_stand_in_one_table(files, capsys):
    given = ["--tokens", "tokens.txt", "--separator", "<wb>"]
    given += ["--trie", "beam_size=20", "--model", "transducer.npz", "--transducer-lm"]
    given += ["letters.arpa", "--transducer", "strategy=alsd,aes", "beam_size=2,4"]
    given += ["--attention-model", "attention.npz", "--attention-lm", "letters.arpa"]
    given += ["--attention", "end_rule=closed,none", "beam_size=1,3"]
    given += ["--repeats", "1", "--json", "c.json", "--lm-scale", "0.3"]
    assert wfstdec(files, "compare", *SPEECH, *given) == 0
    out = capsys.readouterr().out
    assert "model s" in out and "search s" in out
    comparison = load_comparison(files / "c.json")
    assert [(one.series, one.label) for one in comparison.points] == [
        ("trie", "beam_size 20"),
        ("transducer, strategy alsd", "beam_size 2"),
        ("transducer, strategy alsd", "beam_size 4"),
        ("transducer, strategy aes", "beam_size 2"),
        ("transducer, strategy aes", "beam_size 4"),
        ("attention, end_rule closed", "beam_size 1"),
        ("attention, end_rule closed", "beam_size 3"),
        ("attention, end_rule none", "beam_size 1"),
        ("attention, end_rule none", "beam_size 3"),
    ]
    trie, *others = comparison.points
    assert trie.model_s == ()
    for one in others:
        assert 0 < one.model_s[0] < one.cpu_s[0]
    for series, decoder in (
        ("transducer, strategy aes", "transducer"),
        ("attention, end_rule none", "attention"),
    ):
        facts = comparison.searches[series]
        assert facts.inputs.keys() == {decoder, "lm"}
        assert facts.options["lm_scale"] == 0.3


@pytest.mark.parametrize(
    ("decoder", "flag"), [("transducer", "--model"), ("attention", "--attention-model")]
)
def test_a_model_alone_with_a_list_and_a_grid_without_a_model(
    files, capsys, decoder, flag
):
    (files / "names.txt").write_text("cab\t2\n")
    alone = [flag, f"{decoder}.npz", "--repeats", "1", "--boost", "names.txt"]
    assert wfstdec(files, "compare", *SPEECH, *alone) == 0
    assert decoder in capsys.readouterr().out
    assert wfstdec(files, "compare", *SPEECH, f"--{decoder}", "beam_size=2") == 1
    assert f"--{decoder} without {flag}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("decoder", "flag", "more"),
    [
        ("transducer", "--model", []),
        ("attention", "--attention-model", ["length_norm=mean"]),
    ],
)
def test_tuning_a_model_and_the_command_that_comes_of_it(
    files, capsys, decoder, flag, more
):
    given = [f"--{decoder}", "beam_size=2", *more, "--max-trials", "9"]
    given += [flag, f"{decoder}.npz", f"--{decoder}-lm", "letters.arpa"]
    assert wfstdec(files, "tune", *SPEECH, *given) == 0
    default, first, *_, last = capsys.readouterr().out.splitlines()
    assert default.startswith("lm_scale 1, token_insertion 0: %WER ")
    assert first.startswith("lm_scale 0.2, token_insertion -4: %WER ")
    text, (program, name, *command) = last, last.split()
    assert (program, name) == ("wfstdec", "decode")
    paths = files / f"{decoder}.npz", files / "letters.arpa"
    assert "--decoder {} --model {} --lm {}".format(decoder, *paths) in text
    assert "--beam-size 2" in text
    assert ("--length-norm mean" in text) == (decoder == "attention")
    assert wfstdec(files, "decode", *command, "--quiet") == 0
