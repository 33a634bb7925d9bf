"""`--decoder transducer`, and transducers in `compare` and `tune`, on small files."""

import json

import numpy as np
import pytest
from arpa_texts import LETTERS_ARPA
from cli_files import SENTENCES, logprobs_of, wfstdec, write_files

from wfstdec.compare.comparison import load_comparison

torch = pytest.importorskip("torch")

from wfstdec import TransducerDecoder, TransducerOptions, load_transducer  # noqa: E402
from wfstdec.transducer.torch_model import (  # noqa: E402
    HeadConfig,
    TorchTransducer,
    TransducerConfig,
    TransducerNet,
)

LETTERS = ("<wb>", "a", "b", "c")
SPEECH = ["--logprobs", "x.npz", "--ref", "ref.txt"]


@pytest.fixture
def files(tmp_path):
    torch.manual_seed(3)
    heads = (HeadConfig("rnnt"), HeadConfig("tdt", "lstm", (0, 1, 2)))
    sizes = {"input_dim": 5, "width": 16, "dim": 16, "layers": 1}
    net = TransducerNet(TransducerConfig(LETTERS, heads, **sizes))
    with torch.no_grad():
        for head in net.heads.values():
            head.joiner.tokens.weight *= 8
    net.save(tmp_path / "model.npz")
    (tmp_path / "letters.arpa").write_text(LETTERS_ARPA)
    return write_files(tmp_path)


def rows_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("head", ["rnnt", "tdt"])
@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
def test_decode_says_what_the_decoder_says(files, capsys, strategy, head):
    given = ["--decoder", "transducer", "--model", "model.npz", "--head", head]
    given += ["--strategy", strategy, "--beam-size", "3", "--no-blank-scored"]
    given += ["--lm", "letters.arpa", "--separator", "<wb>", "--lm-scale", "0.4"]
    given += ["--logprobs", "x.npz", "--format", "jsonl", "--quiet"]
    assert wfstdec(files, "decode", *given) == 0
    found = rows_of(capsys)
    decoder = TransducerDecoder(
        load_transducer(files / "model.npz", head),
        lm=files / "letters.arpa",
        separator="<wb>",
        input="features",
        options=TransducerOptions(
            strategy=strategy, beam_size=3, blank_scored=False, lm_scale=0.4
        ),
    )
    logprobs = np.load(files / "x.npz")
    for row in found:
        (hyp,) = decoder.decode([logprobs[row["id"]]])
        assert row["text"] == hyp.text
        assert row["total_cost"] == pytest.approx(hyp.total_cost, rel=1e-4)
    assert len(found) == 3


def test_audio_is_counted_in_frames_of_features(files, capsys):
    given = ["--decoder", "transducer", "--model", "model.npz", "--logprobs", "x.npz"]
    assert wfstdec(files, "decode", *given, "--output", "hyp.txt") == 0
    frames = sum(len(logprobs_of(text)) for text in SENTENCES.values())
    assert f"3 utterances, {0.02 * frames:.1f} s of audio" in capsys.readouterr().err


def test_nbest_and_phrases(files, capsys):
    (files / "phrases.txt").write_text("cab\t5\n")
    given = ["--decoder", "transducer", "--model", "model.npz", "--nbest", "2"]
    given += ["--phrases", "phrases.txt", "--separator", "<wb>", "--quiet"]
    given += ["--logprobs", "x.npz", "--format", "jsonl"]
    assert wfstdec(files, "decode", *given) == 0
    assert {row["id"] for row in rows_of(capsys)} == {"utt1", "utt2", "utt3"}


@pytest.mark.parametrize(
    "given, message",
    [
        ([], "--decoder transducer without --model, expected both"),
        (["--model", "model.npz", "--head", "ctc"], "expected one of the model's"),
        (["--model", "model.npz", "--beam", "8"], "--beam is for --decoder wfst"),
        (["--model", "ref.txt"], "not a readable transducer"),
        (["--model", "model.npz", "--backend", "no"], "expected 'auto' or a device"),
        (["--model", "model.npz", "--max-symbols", "0"], "max_symbols=0"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(files, capsys, given, message):
    given = ["--decoder", "transducer", "--logprobs", "x.npz", *given]
    assert wfstdec(files, "decode", *given) == 1
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("wfstdec decode: ") and message in line


def test_features_of_another_size_name_the_utterance(files, capsys):
    np.savez(files / "y.npz", wide=np.zeros((4, 7), np.float32))
    given = ["--decoder", "transducer", "--model", "model.npz", "--quiet"]
    assert wfstdec(files, "decode", *given, "--logprobs", "y.npz") == 1
    message = capsys.readouterr().err
    assert "'wide'" in message and "F=7" in message and "F=5" in message


def test_a_transducer_stands_in_one_table_with_the_others(files, capsys):
    tokens = ["--tokens", "tokens.txt", "--separator", "<wb>", "--no-peers"]
    given = ["--trie", "beam_size=20", "--model", "model.npz", "--transducer-lm"]
    given += ["letters.arpa", "--transducer", "strategy=alsd,aes", "beam_size=2,4"]
    given += ["--repeats", "1", "--json", "c.json", "--lm-scale", "0.3"]
    assert wfstdec(files, "compare", *SPEECH, *tokens, *given) == 0
    out = capsys.readouterr().out
    assert "model s" in out and "search s" in out
    comparison = load_comparison(files / "c.json")
    series = [(one.series, one.label) for one in comparison.points]
    assert series == [
        ("trie", "beam_size 20"),
        ("transducer, strategy alsd", "beam_size 2"),
        ("transducer, strategy alsd", "beam_size 4"),
        ("transducer, strategy aes", "beam_size 2"),
        ("transducer, strategy aes", "beam_size 4"),
    ]
    trie, *others = comparison.points
    assert trie.model_s == ()
    for one in others:
        assert 0 < one.model_s[0] < one.cpu_s[0]
    facts = comparison.searches["transducer, strategy aes"]
    assert facts.inputs.keys() == {"transducer", "lm"}
    assert facts.options["lm_scale"] == 0.3


def test_a_transducer_alone_and_without_a_model(files, capsys):
    alone = ["--model", "model.npz", "--repeats", "1"]
    assert wfstdec(files, "compare", *SPEECH, *alone) == 0
    assert "transducer" in capsys.readouterr().out
    assert wfstdec(files, "compare", *SPEECH, "--transducer", "beam_size=2") == 1
    assert "--transducer without --model" in capsys.readouterr().err


def test_tuning_a_transducer(files, capsys):
    given = ["--transducer", "beam_size=2", "--model", "model.npz", "--max-trials", "9"]
    given += ["--transducer-lm", "letters.arpa"]
    assert wfstdec(files, "tune", *SPEECH, *given) == 0
    default, first, *_ = capsys.readouterr().out.splitlines()
    assert default.startswith("lm_scale 1, token_insertion 0: %WER ")
    assert first.startswith("lm_scale 0.2, token_insertion -4: %WER ")


def test_what_was_saved_is_what_is_loaded(files):
    model = load_transducer(files / "model.npz", "tdt")
    assert isinstance(model, TorchTransducer)
    assert (tuple(model.tokens), model.durations) == (LETTERS, (0, 1, 2))
    features = torch.from_numpy(logprobs_of("a b | c"))[None]
    frames, lengths = model.encode(features, torch.tensor([features.shape[1]]))
    assert frames.shape == (1, 3, 16) and lengths.tolist() == [3]
