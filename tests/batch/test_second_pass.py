"""`wfstdec rescore --model`: the order of `rescore` on the audio's own frames."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cli_files import logprobs_of, small_decoder, write_files  # noqa: E402
from table_attention import TableAttention  # noqa: E402

from wfstdec import lattice_hypotheses, rescore  # noqa: E402
from wfstdec.batch.second_pass import SecondPass  # noqa: E402
from wfstdec.errors import InputError, OptionError  # noqa: E402

RATE = 16000


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


def test_pieces_of_recordings_are_cut_out(lattice):
    model = TableSpeech()
    reading = SecondPass(model=model, recordings={"a-1": np.zeros(5 * RATE)})
    reading("a-1-0000100-0000350", lattice)
    assert model.lengths == [round(2.5 * RATE)]
    with pytest.raises(InputError, match="no recording 'b'"):
        reading("b", lattice)
    model.spec.family = "transducer"
    with pytest.raises(OptionError, match="family 'transducer', expected 'attention'"):
        SecondPass(model=model, recordings={})
