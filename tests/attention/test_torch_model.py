"""The net of our own: steps equal the whole, rows and batches do not matter."""

import itertools

import pytest
import torch

from wfstdec.attention.torch_model import AttentionNet, AttentionSizes, TorchAttention

SIZES = AttentionSizes(tokens=6, dim=16, frames=5, heads=2, layers=2, positions=12)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    net = AttentionNet(SIZES)
    return TorchAttention(net, [*"abcde", "</s>"], 5)


def frames_of(*lengths):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, 5, generator=generator) for n in lengths]


def test_steps_equal_the_whole_text_at_once(model):
    frames = frames_of(7, 4)
    batch = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
    lengths = torch.tensor([7, 4])
    labels = torch.tensor([[5, 0, 1, 2], [5, 3, 3, 4]])
    with torch.no_grad():
        whole = model.net(batch, lengths, labels).log_softmax(-1)
    state, logprobs = model.start(batch, lengths, labels[:, :1])
    for place in range(1, 4):
        assert torch.allclose(logprobs, whole[:, place - 1], atol=1e-5)
        logprobs, state = model.step(labels[:, place], state)
    assert torch.allclose(logprobs, whole[:, 3], atol=1e-5)


@pytest.mark.parametrize("rows", list(itertools.permutations(range(3))))
def test_rows_are_taken_in_any_order(model, rows):
    """Rows are taken in uneven numbers of each utterance's too."""
    frames = frames_of(7, 4, 6)
    batch = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
    prompts = torch.full((3, 1), 5)
    state, _ = model.start(batch, torch.tensor([7, 4, 6]), prompts)
    taken = model.take(state, torch.tensor([*rows, rows[0], rows[0]]))
    labels = torch.tensor([0, 1, 2, 3, 0])
    found, _ = model.step(labels, taken)
    for i, row in enumerate([*rows, rows[0], rows[0]]):
        alone, _ = model.start(
            frames[row][None], torch.tensor([len(frames[row])]), prompts[:1]
        )
        expected, _ = model.step(labels[i : i + 1], alone)
        assert torch.allclose(found[i], expected[0], atol=1e-5)


def test_cross_attention_is_copied_for_no_row(model):
    batch = torch.randn(2, 7, 5)
    state, _ = model.start(batch, torch.tensor([7, 4]), torch.full((2, 1), 5))
    taken = model.take(state, torch.tensor([0, 0, 1, 1, 1]))
    for (key, value), (same, too) in zip(state.memory, taken.memory, strict=True):
        assert key is same and value is too and len(key) == 2
