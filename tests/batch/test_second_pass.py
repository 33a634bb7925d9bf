"""`wfstdec rescore --model`: the order of `rescore` on the audio's own frames."""

import shlex
from types import SimpleNamespace

import naive_transducer
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cli_files import logprobs_of, small_decoder, write_files  # noqa: E402
from spoken import write_wav  # noqa: E402
from table_attention import TableAttention  # noqa: E402
from table_transducers import TableTransducer  # noqa: E402

from wfstdec import lattice_hypotheses, rescore  # noqa: E402
from wfstdec.attention.rescoring import reweighed, text_log_probs  # noqa: E402
from wfstdec.batch.second_pass import SecondPass  # noqa: E402
from wfstdec.cli.main import main  # noqa: E402
from wfstdec.errors import AudioError, InputError, OptionError  # noqa: E402
from wfstdec.lattice.file import LatticeWriter  # noqa: E402
from wfstdec.transducer.forward import TextModel  # noqa: E402

RATE = 16000


class TransducerSpeech:
    """A `SpeechModel` of a table, a transducer."""

    def __init__(self, durations, seed=5):
        rng = np.random.default_rng(seed)
        sizes = {"num_tokens": 3, "longest": 5, "num_frames": 4}
        self.net = TableTransducer(rng, durations=durations, **sizes)
        self.net.tokenizer = lambda text: list(text.replace(" ", ""))
        self.spec = SimpleNamespace(family="transducer", sample_rate=RATE)

    def encode(self, waveforms):
        return [self.net.frames() for _ in waveforms]


class TableSpeech:
    """A `SpeechModel` of a table: a sample of 0.5 or more says the utterance is 1."""

    def __init__(self, seed=0):
        self.net = TableAttention(np.random.default_rng(seed), 3, longest=9)
        self.net.num_utterances = 1
        self.net.tokenizer = lambda text: list(text.replace(" ", ""))
        self.spec = SimpleNamespace(family="attention", sample_rate=RATE)
        self.lengths = []

    def encode(self, waveforms):
        self.lengths += map(len, waveforms)
        return [self.net.frames(0, 9).numpy() for _ in waveforms]


@pytest.fixture(scope="module")
def lattice(tmp_path_factory):
    decoder = small_decoder(write_files(tmp_path_factory.mktemp("small")))
    noise = np.random.default_rng(2).normal(0, 2, logprobs_of("a b | c").shape)
    rows = (logprobs_of("a b | c") + noise).astype(np.float32)
    [found] = decoder.decode_lattice([rows])
    assert len(lattice_hypotheses(found, 16)) > 2
    return found


@pytest.mark.parametrize("weight", [0.0, 0.5, 5.0])
def test_texts_come_in_the_order_of_both_passes(lattice, weight):
    model = TableSpeech()
    audio = {"u1": np.zeros(3 * RATE, np.float32)}
    reading = SecondPass(nbest=3, model=model, recordings=audio, weight=weight)
    found = [hyp.text for hyp in reading("u1", lattice)]
    texts = lattice_hypotheses(lattice, 16)
    frames = [torch.from_numpy(model.encode([audio["u1"]])[0])]

    def spell(text):
        tokens = [ord(letter) - ord("a") for letter in text.replace(" ", "")]
        return tokens if len(tokens) < model.net.longest else None

    [again] = rescore(model.net, frames, [texts], weight=weight, spell=spell)
    assert found == [one.hypothesis.text for one in again[:3]]
    if not weight:
        assert found == [hyp.text for hyp in texts[:3]]


@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_a_transducer_counts_all_alignments(lattice, durations):
    model = TransducerSpeech(durations)
    reading = SecondPass(nbest=3, model=model, recordings={"u1": np.zeros(RATE)})
    texts = lattice_hypotheses(lattice, 16)
    joint = model.net.joint()
    want = naive_transducer.totals(joint, 4, durations=durations)
    costs = {}
    for hyp in texts:
        letters = tuple(ord(letter) - ord("a") for letter in hyp.text.replace(" ", ""))
        model_cost = -want.get(letters, -np.inf)
        costs[hyp.text] = hyp.total_cost + reading.weight * model_cost
    found = [hyp.text for hyp in reading("u1", lattice)]
    assert found == sorted(costs, key=costs.__getitem__)[:3]
    net, frames = TextModel(model.net), model.net.frames()
    given = [hyp.text for hyp in texts]
    ours = text_log_probs(net, frames, reading._spell)(given)
    wanted = [(hyp.total_cost - costs[hyp.text]) / reading.weight for hyp in texts]
    np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-4)
    with pytest.raises(OptionError, match="with a transducer, expected 0"):
        rescore(net, [frames], [texts], weight=1.0, ctc_weight=0.3)


def test_tune_finds_the_weight(lattice, tmp_path, monkeypatch, capsys):
    """What a search over weights finds, by the command that it prints."""
    names = [f"u{i}" for i in range(6)]
    with LatticeWriter(tmp_path / "x.lat") as file:
        for name in names:
            file(name, lattice)
    audio, first = np.zeros(RATE, np.float32), lattice_hypotheses(lattice, 1)[0].text
    best, seed = first, 0
    while best == first:
        seed += 1
        model = TransducerSpeech((), seed)
        reading = SecondPass(model=model, recordings={"u": audio})
        known = reading.rescored("u", lattice_hypotheses(lattice, 16))
        best = reweighed([known], weight=2.0)[0][0].hypothesis.text
    (tmp_path / "ref.txt").write_text("".join(f"{name} {best}\n" for name in names))
    (tmp_path / "in").mkdir()
    for name in names:
        write_wav(tmp_path / f"in/{name}.wav", audio)
    monkeypatch.setattr("spoken.encoder", model, raising=False)
    monkeypatch.setattr("wfstdec.cli.decode.load_model", lambda *_, **__: model)
    given = ["--lattices", f"{tmp_path}/x.lat", "--audio", f"{tmp_path}/in"]
    given += ["--ref", f"{tmp_path}/ref.txt", "--model", "spoken:encoder", "--quiet"]
    assert main(["tune", *given, "--trie", "beam_size=8"]) == 1
    assert "--trie with --lattices, expected one of them" in capsys.readouterr().err
    assert main(["tune", *given]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("wfstdec rescore ") and "--model-weight" in line
    assert main(shlex.split(line)[1:]) == 0
    assert set(capsys.readouterr().out.splitlines()) == {f"{n} {best}" for n in names}


def raising(waveforms):
    raise AudioError("too long", 0)


def test_pieces_of_recordings_are_cut_out(lattice):
    model = TableSpeech()
    reading = SecondPass(model=model, recordings={"a-1": np.zeros(5 * RATE)})
    reading("a-1-0000100-0000350", lattice)
    assert model.lengths == [round(2.5 * RATE)]
    with pytest.raises(InputError, match="no recording 'b'"):
        reading("b", lattice)
    model.encode = raising
    with pytest.raises(AudioError, match="utterance 'a-1-0000100-0000350': too long"):
        reading("a-1-0000100-0000350", lattice)
    model.spec.family = "ctc"
    with pytest.raises(OptionError, match="family 'ctc', expected 'attention' or"):
        SecondPass(model=model, recordings={})
