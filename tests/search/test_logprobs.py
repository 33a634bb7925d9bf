"""Log-probs of all shapes and types, and what is wrong with bad ones."""

import numpy as np
import pytest

from wfstdec.errors import InputError, LogprobError, ShapeError
from wfstdec.search.logprobs import as_utterances

INF = np.inf
EXACT = np.array([[-0.5, -1.25, -INF], [-2.0, -0.25, 0.0]])
"""Numbers that every type holds exactly."""


def lists(utterances):
    return [array.tolist() for array in utterances]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8", "longdouble"])
def test_types_of_numpy(dtype):
    batch = np.stack([EXACT, EXACT]).astype(dtype)
    for given in (batch, list(batch), tuple(batch)):
        utterances = as_utterances(given, None, 3)
        assert lists(utterances) == [EXACT.tolist()] * 2
        for array in utterances:
            assert array.dtype == np.float32 and array.dtype.isnative
            assert array.flags.c_contiguous


def test_layouts_of_numpy():
    wide = np.zeros((4, 6), np.float32)
    wide[::2, ::2] = EXACT
    read_only = EXACT.astype(np.float32)
    read_only.flags.writeable = False
    layouts = [wide[::2, ::2], np.asfortranarray(EXACT), read_only, EXACT[::-1][::-1]]
    utterances = as_utterances(layouts, None, 3)
    assert lists(utterances) == [EXACT.tolist()] * 4
    for array in utterances:  # in the one form that the kernels are compiled for
        assert array.flags.c_contiguous and array.flags.writeable


def test_what_needs_no_copy_is_not_copied():
    batch = np.zeros((2, 3, 4), np.float32)
    for array in as_utterances(batch, [3, 2], 4):
        assert np.shares_memory(array, batch)


def test_nested_lists_of_python():
    assert lists(as_utterances([EXACT.tolist()], None, 3)) == [EXACT.tolist()]


def test_utterances_of_different_lengths():
    arrays = [np.zeros((t, 3)) for t in (4, 0, 1)]
    assert [len(a) for a in as_utterances(arrays, None, 3)] == [4, 0, 1]


@pytest.mark.parametrize(
    "lengths",
    [[2, 0, 1], (2, 0, 1), np.array([2, 0, 1], np.int8), np.array([2, 0, 1], "u8")],
)
def test_lengths(lengths):
    batch = np.zeros((3, 2, 3), np.float32)
    assert [len(a) for a in as_utterances(batch, lengths, 3)] == [2, 0, 1]
    assert [len(a) for a in as_utterances(list(batch), lengths, 3)] == [2, 0, 1]


@pytest.mark.parametrize("lengths", [None, [], np.zeros(0, np.int64)])
def test_no_utterances(lengths):
    assert as_utterances([], lengths, 3) == []
    assert as_utterances(np.zeros((0, 5, 3)), lengths, 3) == []


@pytest.mark.parametrize("bad", [np.nan, INF, -INF, 1e30])
def test_padding_may_hold_anything(bad):
    batch = np.full((2, 4, 3), bad, np.float32)
    batch[0, :2] = EXACT
    assert lists(as_utterances(batch, [2, 0], 3)) == [EXACT.tolist(), []]


def test_masks_are_impossible_tokens():
    """Masks of large numbers make tokens as impossible as `-inf` does."""
    for dtype in (np.float32, np.float64):
        least = np.finfo(dtype).min
        given = np.array([[least, -1e30, -1e19], [0, -INF, 1e19]], dtype)
        before = given.tolist()
        (array,) = as_utterances([given], None, 3)
        assert array.tolist() == [
            [-INF, -INF, np.float32(-1e19)],
            [0, -INF, np.float32(1e19)],
        ]
        assert given.tolist() == before


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_types_of_torch(torch, dtype, needs_gradient):
    batch = torch.tensor(np.stack([EXACT, EXACT])).to(getattr(torch, dtype))
    batch.requires_grad_(needs_gradient)
    lengths = torch.tensor([2, 1])
    expected = [EXACT.tolist(), EXACT[:1].tolist()]
    assert lists(as_utterances(batch, lengths, 3)) == expected
    assert lists(as_utterances(list(batch), lengths.to(torch.int32), 3)) == expected
    assert batch.requires_grad == needs_gradient


def test_layouts_of_torch(torch):
    batch = torch.tensor(np.stack([EXACT, EXACT])).permute(2, 0, 1).contiguous()
    batch = batch.permute(1, 2, 0)
    assert not batch.is_contiguous()
    assert lists(as_utterances(batch, None, 3)) == [EXACT.tolist()] * 2
    conjugate = torch.tensor(EXACT, dtype=torch.float32)
    assert lists(as_utterances([conjugate.conj()], None, 3)) == [EXACT.tolist()]


def test_inference_mode_of_torch(torch):
    with torch.inference_mode():
        batch = torch.tensor(EXACT[None])
        assert lists(as_utterances(batch, None, 3)) == [EXACT.tolist()]


class OtherArray:
    """An array of a library that knows DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    batch = np.stack([EXACT, EXACT]).astype(np.float32)
    assert lists(as_utterances(OtherArray(batch), None, 3)) == [EXACT.tolist()] * 2
    assert lists(as_utterances([OtherArray(batch[0])], None, 3)) == [EXACT.tolist()]


ZERO = np.zeros((2, 4, 3), np.float32)
BAD_SHAPES = {
    "four axes": ((ZERO[None], None), "logprobs has 4 axes (1, 2, 4, 3), expected [B,"),
    "a number": ((1.0, None), "logprobs has 0 axes (), expected [B, T, V], a list"),
    "nothing": ((None, None), "logprobs has 0 axes (), expected [B, T, V], a list"),
    "list of vectors": ((list(ZERO[0]), None), "utterance 0: logprobs has 1 axes (3,)"),
    "text": (("ab", None), "utterance 0: logprobs has 0 axes (), expected [T, V]"),
    "another V": (([ZERO[0], ZERO[0, :, :2]], None), "utterance 1: logprobs has V=2"),
    "another V without frames": ((np.zeros((1, 0, 4)), None), "V=4 tokens, expected"),
    "integers": ((ZERO.astype(int), None), "logprobs is int64, expected a floating"),
    "complex": ((ZERO.astype(complex), None), "logprobs is complex128, expected a fl"),
    "objects": (([ZERO[0].astype(object)], None), "logprobs is object, expected a flo"),
    "bools": ((ZERO.astype(bool), None), "logprobs is bool, expected a floating-point"),
    "length over T": ((ZERO, [4, 5]), "utterance 1: length 5, expected 0 to 4 (T of"),
    "negative length": ((ZERO, [-1, 4]), "utterance 0: length -1, expected 0 to 4"),
    "few lengths": ((ZERO, [4]), "lengths is int64 (1,), expected integers (2,), one"),
    "no lengths": ((ZERO, []), "lengths is float64 (0,), expected integers (2,)"),
    "one length": ((ZERO, 4), "lengths is int64 (), expected integers (2,), one per"),
    "square lengths": ((ZERO, [[4], [4]]), "lengths is int64 (2, 1), expected integ"),
    "shares of T": ((ZERO, [1.0, 0.5]), "lengths is float64 (2,), expected integers"),
    "masks": ((ZERO, [True, False]), "lengths is bool (2,), expected integers (2,)"),
}


@pytest.mark.parametrize(("given", "message"), BAD_SHAPES.values(), ids=BAD_SHAPES)
def test_bad_shapes(given, message):
    with pytest.raises(ShapeError) as error:
        as_utterances(*given, 3)
    assert message in str(error.value)
    assert isinstance(error.value, InputError) and isinstance(error.value, ValueError)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (INF, "inf")])
def test_numbers_that_are_no_log_probs(dtype, value, shown):
    batch = np.zeros((2, 4, 3), dtype)
    batch[0, 2:] = batch[1, 1:, 1:] = value
    with pytest.raises(LogprobError, match=f"has {shown} in frame 1") as error:
        as_utterances(batch, [2, 4], 3)
    assert error.value.utterance == 1


def test_numbers_that_are_absurdly_large():
    """Sums of them would be no numbers."""
    for value in (1e21, 3e38, 1e300):
        with pytest.raises(
            LogprobError, match="utterance 0: logprobs has .* in frame 0"
        ):
            as_utterances([[[0.0, value, -INF]]], None, 3)
