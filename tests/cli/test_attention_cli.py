"""`--decoder attention`, and attention decoders in `compare` and `tune`."""

import json

import numpy as np
import pytest
from arpa_texts import LETTERS_ARPA
from cli_files import SENTENCES, logprobs_of, wfstdec, write_files

from wfstdec.compare import load_comparison

torch = pytest.importorskip("torch")

from wfstdec import AttentionDecoder, AttentionOptions, load_attention  # noqa: E402
from wfstdec.attention.joint_net import JointNet  # noqa: E402
from wfstdec.attention.torch_model import AttentionSizes  # noqa: E402
from wfstdec.transducer.torch_model import (  # noqa: E402
    HeadConfig,
    TransducerConfig,
    TransducerNet,
)

LETTERS = ("<wb>", "a", "b", "c")
SPEECH = ["--logprobs", "x.npz", "--ref", "ref.txt"]
DECODE = ["--decoder", "attention", "--model", "model.npz", "--logprobs", "x.npz"]


@pytest.fixture
def files(tmp_path):
    torch.manual_seed(3)
    sizes = {"input_dim": 5, "width": 16, "dim": 16, "layers": 1}
    net = JointNet(
        TransducerConfig(LETTERS, (), **sizes),
        AttentionSizes(5, 16, 16, heads=2, layers=1, positions=40),
    )
    with torch.no_grad():
        net.attention.embed.weight *= 3
        net.attention.norm.bias -= 1.4 * net.attention.embed.weight[-1]  # few ends
    net.save(tmp_path / "model.npz")
    TransducerNet(TransducerConfig(LETTERS, (HeadConfig(),), **sizes)).save(
        tmp_path / "transducer.npz"
    )
    (tmp_path / "letters.arpa").write_text(LETTERS_ARPA)
    return write_files(tmp_path)


def rows_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--beam-size", "1"], {"beam_size": 1}),
        (
            ["--beam-size", "3", "--length-norm", "mean", "--stop", "full"],
            {"beam_size": 3, "length_norm": "mean", "stop": "full"},
        ),
        (
            ["--length-norm", "gnmt", "--gnmt-alpha", "0.9", "--max-tokens-per-s", "9"],
            {"length_norm": "gnmt", "gnmt_alpha": 0.9, "max_tokens_per_s": 9.0},
        ),
        (
            ["--ctc-weight", "0.3", "--pre-beam", "2"],
            {"ctc_weight": 0.3, "pre_beam": 2},
        ),
        (
            ["--no-repeat-ngram", "2", "--token-insertion", "-1"],
            {"no_repeat_ngram": 2, "token_insertion": -1.0},
        ),
    ],
)
def test_decode_says_what_the_decoder_says(files, capsys, flags, options):
    given = [*DECODE, *flags, "--lm", "letters.arpa", "--separator", "<wb>"]
    given += ["--lm-scale", "0.4", "--format", "jsonl", "--quiet"]
    assert wfstdec(files, "decode", *given) == 0
    found = rows_of(capsys)
    decoder = AttentionDecoder(
        load_attention(files / "model.npz"),
        lm=files / "letters.arpa",
        separator="<wb>",
        input="features",
        frame_shift_s=0.08,
        options=AttentionOptions(lm_scale=0.4, **options),
    )
    logprobs = np.load(files / "x.npz")
    for row in found:
        (hyp,) = decoder.decode([logprobs[row["id"]]])
        assert row["text"] == hyp.text
        assert row["total_cost"] == pytest.approx(hyp.total_cost, rel=1e-4)
    assert len(found) == 3
    if options == {"beam_size": 1}:
        assert any(row["text"] for row in found)


def test_audio_is_counted_in_frames_of_features(files, capsys):
    assert wfstdec(files, "decode", *DECODE, "--output", "hyp.txt") == 0
    frames = sum(len(logprobs_of(text)) for text in SENTENCES.values())
    assert f"3 utterances, {0.02 * frames:.1f} s of audio" in capsys.readouterr().err


@pytest.mark.parametrize("rule", ["closed", "compensated", "none"])
def test_nbest_and_phrases(files, capsys, rule):
    (files / "phrases.txt").write_text("cab\t5\n")
    given = [*DECODE, "--nbest", "2", "--phrases", "phrases.txt", "--separator", "<wb>"]
    given += ["--end-rule", rule, "--final-eos-score", "0.5", "--format", "jsonl"]
    assert wfstdec(files, "decode", *given, "--quiet") == 0
    rows = rows_of(capsys)
    assert {row["id"] for row in rows} == {"utt1", "utt2", "utt3"}
    assert all(len(row["nbest"]) == 2 for row in rows)
    assert any("cab" in one["text"] for row in rows for one in row["nbest"])


@pytest.mark.parametrize(
    "given, message",
    [
        ([], "--decoder attention without --model, expected both"),
        (["--model", "model.npz", "--head", "ctc"], "--head is for --decoder trans"),
        (["--model", "model.npz", "--strategy", "aes"], "--strategy is for --decoder"),
        (["--model", "transducer.npz"], "not a readable attention model"),
        (["--model", "model.npz", "--backend", "no"], "expected 'auto' or a device"),
        (["--model", "model.npz", "--beam-size", "0"], "beam_size=0"),
        (["--model", "model.npz", "--length-norm"], "length_norm=True"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(files, capsys, given, message):
    given = ["--decoder", "attention", "--logprobs", "x.npz", *given]
    assert wfstdec(files, "decode", *given) == 1
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("wfstdec decode: ") and message in line


@pytest.mark.parametrize("given", [["--length-norm", "sum"], ["--no-length-norm=mean"]])
def test_a_norm_that_nobody_has_is_refused(files, capsys, given):
    with pytest.raises(SystemExit):
        wfstdec(files, "decode", *DECODE, *given)
    assert "invalid choice" in capsys.readouterr().err


def test_all_families_stand_in_one_table(files, capsys):
    tokens = ["--tokens", "tokens.txt", "--separator", "<wb>", "--no-peers"]
    given = ["--trie", "beam_size=20", "--model", "transducer.npz", "--transducer"]
    given += ["beam_size=2", "--attention-model", "model.npz", "--attention-lm"]
    given += ["letters.arpa", "--attention", "end_rule=closed,none", "beam_size=1,3"]
    given += ["--repeats", "1", "--json", "c.json", "--lm-scale", "0.3"]
    (files / "names.txt").write_text("cab\t2\n")
    assert wfstdec(files, "compare", *SPEECH, *tokens, *given) == 0
    out = capsys.readouterr().out
    assert "model s" in out and "search s" in out
    comparison = load_comparison(files / "c.json")
    assert [(one.series, one.label) for one in comparison.points] == [
        ("trie", "beam_size 20"),
        ("transducer", "beam_size 2"),
        ("attention, end_rule closed", "beam_size 1"),
        ("attention, end_rule closed", "beam_size 3"),
        ("attention, end_rule none", "beam_size 1"),
        ("attention, end_rule none", "beam_size 3"),
    ]
    trie, *others = comparison.points
    assert trie.model_s == ()
    for one in others:
        assert 0 < one.model_s[0] < one.cpu_s[0]
    facts = comparison.searches["attention, end_rule none"]
    assert facts.inputs.keys() == {"attention", "lm"}
    assert facts.options["lm_scale"] == 0.3


def test_an_attention_decoder_alone_with_a_list_and_without_a_model(files, capsys):
    (files / "names.txt").write_text("cab\t2\n")
    alone = ["--attention-model", "model.npz", "--repeats", "1", "--boost", "names.txt"]
    assert wfstdec(files, "compare", *SPEECH, *alone) == 0
    assert "attention" in capsys.readouterr().out
    assert wfstdec(files, "compare", *SPEECH, "--attention", "beam_size=2") == 1
    assert "--attention without --attention-model" in capsys.readouterr().err


def test_tuning_an_attention_decoder_and_the_command_that_comes_of_it(files, capsys):
    given = ["--attention", "beam_size=2", "length_norm=mean", "--max-trials", "9"]
    given += ["--attention-model", "model.npz", "--attention-lm", "letters.arpa"]
    assert wfstdec(files, "tune", *SPEECH, *given) == 0
    default, first, *others = capsys.readouterr().out.splitlines()
    assert default.startswith("lm_scale 1, token_insertion 0: %WER ")
    assert first.startswith("lm_scale 0.2, token_insertion -4: %WER ")
    program, name, *command = others[-1].split()
    assert (program, name) == ("wfstdec", "decode")
    text = " ".join(command)
    start = "--decoder attention --model %s --lm %s"
    paths = files / "model.npz", files / "letters.arpa"
    assert text.startswith(start % paths)
    assert "--length-norm mean" in text and "--beam-size 2" in text
    assert wfstdec(files, "decode", *command, "--quiet") == 0
