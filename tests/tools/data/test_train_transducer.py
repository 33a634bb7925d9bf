"""Training of the small transducer, on a tiny set that is made here."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentencepiece")

from tools.data import train_transducer as training  # noqa: E402
from tools.data import transducer_data, transducer_greedy  # noqa: E402
from wfstdec.io.text import write_text  # noqa: E402
from wfstdec.text.files import read_lines  # noqa: E402
from wfstdec.transducer.torch_model import (  # noqa: E402
    HeadConfig,
    TorchTransducer,
    TransducerConfig,
    TransducerNet,
    load_net,
)

pytestmark = pytest.mark.share

TOKENS = "<blank> <wb> ɑ b k d".split()
WORDS = {"ab": "ɑ b", "cab": "k ɑ b", "bad": "b ɑ d", "dad": "d ɑ d", "a": "ɑ"}
ARPABET = {"ɑ": "AA1", "b": "B", "k": "K", "d": "D"}
SAID = {
    "10-1-0000": "a bad cab",
    "10-1-0001": "dad ab a",
    "20-1-0000": "cab dad bad ab",
    "1673-1-0000": "a cab ab dad a bad cab",
    "1673-1-0001": "dad bad",
}
LJ = {"LJ001-0001": "bad dad cab", "LJ001-0002": "zebra a"}


def posteriors(text, rng):
    """Peaks with blanks and separators between them: float16 [T, V]."""
    said = [0]
    for i, word in enumerate(text.split()):
        said += [1, 0] if i else []
        for phone in WORDS.get(word, "b ɑ").split():
            said += [TOKENS.index(phone)] + [0] * int(rng.integers(1, 4))
    probs = rng.uniform(0.001, 0.02, (len(said) + 1, len(TOKENS)))
    probs[np.arange(len(said)), said] += 1.0
    probs[-1, 0] += 1.0
    return np.log(probs / probs.sum(1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder like that of the development data."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(3)
    for name in "posteriors", "lexicon", "text":
        (folder / name).mkdir()
    lines = [f"{name} {i}\n" for i, name in enumerate(TOKENS)]
    (folder / "tokens.txt").write_text("".join(lines))
    for name, said in ("librispeech_dev", SAID), ("ljspeech", LJ):
        write_text(
            folder / "posteriors" / f"{name}.txt",
            {u: t.split() for u, t in said.items()},
        )
        rows = {u: posteriors(t, rng) for u, t in said.items()}
        np.savez(folder / "posteriors" / f"{name}.npz", **rows)
    entries = "".join(f"{w}\t{p}\n" for w, p in WORDS.items())
    (folder / "lexicon" / "lexicon_ipa.txt").write_text(entries)
    arpabet = [
        f"{w} {' '.join(ARPABET[phone] for phone in p.split())}\n"
        for w, p in {**WORDS, "dab": "d ɑ b"}.items()
    ]
    arpabet += ["dab(2) D AA1 D # a comment\n", "zoo Z UW1\n"]
    (folder / "lexicon" / "cmudict.dict").write_text("".join(arpabet))
    known = [*WORDS, "dab"]
    text = [" ".join(rng.choice(known, rng.integers(2, 8))) for _ in range(400)]
    text += ["bad a cab ab dad a bad ab", "a zoo"]
    (folder / "text" / training.BOOKS).write_text("\n".join(text) + "\n")
    return folder


@pytest.fixture(scope="module")
def speech(data):
    return transducer_data.load_speech(data)


def spell(word):
    return [ord(letter) - ord("a") for letter in word]


def make_source(speech, seed=1, **options):
    sentences = [["a", "bad", "cab"], ["dab"], ["dad", "ab", "cab", "bad"]]
    return transducer_data.Source(speech, sentences, spell, seed=seed, **options)


def test_held_out_speakers_are_apart(speech):
    assert speech.held_out == ["1673-1-0000", "1673-1-0001"]
    assert set(speech.training) == {"10-1-0000", "10-1-0001", "20-1-0000", "LJ001-0001"}
    assert set(make_source(speech).names) == set(speech.training)


@pytest.mark.parametrize("real", [0.0, 1.0])
def test_the_band_holds_the_alignment(speech, real):
    source = make_source(speech, real=real)
    examples = [source.example() for _ in range(20)]
    batch = transducer_data.collate(examples, stride=4)
    assert batch.features.shape[2] == len(TOKENS)
    starts, sizes, frames = (
        batch.lattice.starts,
        batch.lattice.sizes,
        batch.lattice.frames,
    )
    for b, one in enumerate(examples):
        assert len(one.targets) == sizes[b] == len(one.ends)
        assert one.ends == sorted(one.ends) and one.ends[-1] <= len(one.logprobs)
        own = starts[b, : frames[b]]
        assert own[0] == 0 and (own.diff() >= 0).all()
        assert own[-1] + batch.band > sizes[b]
        for t in range(int(frames[b])):
            over = sum(end <= 4 * t for end in one.ends)
            assert own[t] <= over < own[t] + batch.band


def small_net(letters="abcd"):
    heads = HeadConfig("rnnt", "lstm"), HeadConfig("tdt", "stateless", (0, 1, 2))
    config = TransducerConfig(
        tokens=tuple(letters),
        heads=heads,
        input_dim=len(TOKENS),
        encoder="conv",
        width=32,
        layers=1,
        kernel=3,
        dim=32,
        dropout=0.0,
    )
    torch.manual_seed(0)
    return TransducerNet(config)


def test_a_band_as_wide_as_the_sentence_is_the_whole_lattice(speech):
    """The band of short sentences is all of it: the losses do not depend on starts."""
    short = [["a", "cab"], ["dab"], ["ab", "bad"]]
    source = transducer_data.Source(speech, short, spell, seed=1, real=0.0)
    batch = transducer_data.collate([source.example() for _ in range(3)], stride=4)
    assert batch.lattice.sizes.max() < batch.band
    assert not batch.lattice.starts.any()
    net = small_net().eval()
    found = training.losses(net, batch)
    frames, _ = net.encoder(batch.features, batch.lengths)
    head = net.heads["rnnt"]
    g = head.predictor.sequence(batch.targets)
    cells = head.joiner(frames[:, :, None], g[:, None])
    lattice = transducer_data.Lattice(batch.lattice.frames, batch.lattice.sizes)
    whole = training.rnnt_loss(cells, batch.targets, lattice).sum()
    expected = (whole / batch.lattice.sizes.sum()).item()
    assert found["rnnt"].item() == pytest.approx(expected, rel=1e-5)


def test_training_makes_a_transducer_that_reads(speech, tmp_path, monkeypatch):
    quick = {"WARM_UP": 20, "PEAK_RATE": 0.01, "AVERAGE": 0.9, "BATCH_FRAMES": 600}
    for name, value in quick.items():
        monkeypatch.setattr(training, name, value)
    args = SimpleNamespace(steps=300, report=1000, check=1000, out=tmp_path)
    average = training.train(small_net(), make_source(speech), args)
    for head in "rnnt", "tdt":
        model = TorchTransducer(average, head)
        source = make_source(speech, seed=7, real=0.0)
        wrong = 0
        for _ in range(10):
            one = source.example()
            letters = "".join("abcd"[label] for label in one.targets)
            wrong += "".join(transducer_greedy.greedy(model, one.logprobs)) != letters
        assert wrong <= 3, head


class Scripted:
    """A model whose best symbols are written down, by frame and last token."""

    tokens, blank = ("▁a", "b"), 2

    def __init__(self, script):
        self.script = script

    def encode(self, features, lengths):
        return features[:, :, :1], lengths

    def start(self, num):
        return torch.zeros(1, 1), torch.full((1, 1), -1)

    def predict(self, labels, state):
        return labels[:, None], state

    def join(self, frames, g):
        label = self.script[int(frames[0, 0]), int(g[0, 0])]
        return torch.nn.functional.one_hot(torch.tensor([label]), 3).float()


def test_main_writes_a_recipe(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "PIECES", 12)
    monkeypatch.setattr(
        training,
        "ARCHITECTURE",
        {"encoder": "conv", "input_dim": 6, "width": 16, "layers": 1, "dim": 16},
    )
    options = ["--data", data, "--out", tmp_path, "--steps", "3", "--report", "1"]
    training.main([str(option) for option in options])
    net = load_net(tmp_path / "model.npz")
    names = [line.split()[0] for line in read_lines(tmp_path / "tokens.txt")]
    assert names == [*net.config.tokens, "<blank>"]
    assert len(names) == 13 and "<unk>" not in names
    notes = json.loads((tmp_path / "training.json").read_text())
    assert set(notes["greedy WER % on held-out speakers"]) == {"rnnt", "tdt"}
    kept = np.load(tmp_path / "logprobs.npz").files
    assert kept == ["1673-1-0000", "1673-1-0001"]
    assert "3 " in capsys.readouterr().out
