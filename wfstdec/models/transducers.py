"""Transducers as ONNX files, in published layouts.

    model = load_model("zipformer").net                # an `OnnxTransducer`
    hyps = TransducerDecoder(model).decode(frames)

    icefall   x [N, T, F], x_lens -> encoder_out [N, T', D], lengths
              y int64 [N, context] -> decoder_out [N, H]
              encoder_out [N, D], decoder_out [N, H] -> logit [N, V + 1]
    NeMo (sherpa-onnx): three files
              audio_signal [N, F, T], length -> outputs [N, D, T'], lengths
              targets [N, 1], target_length, two states [L, N, H] -> [N, H, 1], states
              encoder_outputs [N, D, 1], decoder_outputs [N, H, 1] -> [N, 1, 1, outputs]
    NeMo (its export, onnx-asr): predictor and joiner in one file
              encoder_outputs [N, D, 1], targets, target_length, two states
              -> [N, 1, 1, outputs], states

Outputs of a joiner after those of V tokens and the blank are durations (TDT). The
predictor of icefall takes the last tokens, initially (-1, ..., -1, blank), where -1 has
no embedding. NeMo's begins with zero states and the blank. `load_model` loads streaming
encoders; their frames can be decoded here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.errors import OptionError, ShapeError
from wfstdec.models.encoder import log_softmax
from wfstdec.models.onnx_asr_models import FLOATS, INTEGERS, metadata
from wfstdec.text.tokens import TokenTable

_SYMBOLS = 10  # Most tokens in a frame, as in NeMo; icefall trains with 1


class OnnxTransducer:
    """Transducer of onnxruntime sessions on the CPU, with or without encoder.

    Attributes:
        max_symbols: Most tokens in a frame, as in training.
    """

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        joiner: Any,
        tokens: TokenTable,
        *,
        durations: Sequence[int] | None = None,
        stride: int = 4,
        tokenizer: Any = None,
        max_symbols: int | None = None,
    ) -> None:
        self.tokenizer, self.stride = tokenizer, stride
        self._encoder, self._tables = encoder, tokens
        self.blank, names = tokens.blank, tokens.names
        self.tokens: Sequence[str] = names[: self.blank] + names[self.blank + 1 :]
        self._predictor = _predictor_of(decoder, joiner, self.blank)
        is_stateless = isinstance(self._predictor, _LastTokens)
        self.max_symbols = max_symbols or (1 if is_stateless else _SYMBOLS)
        self.frame_dim, self.input_dim = self._predictor.frame_dim, 0
        if encoder is not None:
            _check_inputs(encoder, "encoder", 2)
            [features] = _floats(encoder)
            # NeMo's features have the frames last.
            self._frames_last = features.name == "audio_signal"
            size = features.shape[1 if self._frames_last else 2]
            self.input_dim = size if isinstance(size, int) else 80
        num, found = len(self.tokens) + 1, self._num_outputs(encoder)
        self.durations: tuple[int, ...] = tuple(range(found - num))
        if durations is not None:
            self.durations = tuple(int(d) for d in durations)
        if found != num + len(self.durations):
            raise ShapeError(
                f"the joiner gives {found} outputs, expected "
                f"{num + len(self.durations)}: V={num - 1} tokens and the blank"
                + (f", {len(self.durations)} durations" if self.durations else "")
            )

    def _num_outputs(self, encoder: Any) -> int:
        """Return the number of outputs of the joiner, running it if unknown."""
        found = self._predictor.num_outputs
        if found is None:
            if self.frame_dim is None and encoder is not None:
                features = torch.zeros(1, 4 * self.stride, self.input_dim)
                lengths = torch.tensor([features.shape[1]])
                self.frame_dim = self.encode(features, lengths)[0].shape[2]
            frames = np.zeros((1, self.frame_dim or 1), np.float32)
            found = self._predictor.join(frames, self._predictor.start(1)[1]).shape[1]
        return found

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `EncoderModel.encode`."""
        if self._encoder is None:
            raise OptionError("no encoder, expected input='frames'")
        longest = int(lengths.max()) if len(lengths) else 0
        if longest == 0:
            return torch.zeros(len(lengths), 0, 1), torch.zeros_like(lengths)
        given = features[:, :longest].float().numpy()
        if self._frames_last:
            given = np.ascontiguousarray(given.transpose(0, 2, 1))
        counts = lengths.clamp(min=1).numpy()
        frames, found = run_parts(self._encoder, [given], counts=counts)
        if self._frames_last:
            frames = np.ascontiguousarray(frames.transpose(0, 2, 1))
        lengths_out = torch.from_numpy(np.asarray(found).astype(np.int64))
        return torch.from_numpy(frames), torch.where(lengths > 0, lengths_out, 0)

    def start(self, num: int) -> tuple[Any, Tensor]:
        """Implement `TransducerModel.start`."""
        return self._predictor.start(num)

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Implement `TransducerModel.predict`."""
        return self._predictor.predict(labels + (labels >= self.blank), state)

    def join(self, frames: Tensor, g: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Implement `TransducerModel.join`."""
        logits = self._predictor.join(frames.float().numpy(), g)
        parts = np.split(logits, [len(self.tokens) + 1], axis=1)
        # By NumPy: torch spreads even small rows over threads, with latency.
        tokens, durations = (torch.from_numpy(log_softmax(one)) for one in parts)
        return (tokens, durations) if self.durations else tokens


class _LastTokens:
    """Stateless predictor of icefall: its state is the last tokens."""

    def __init__(self, decoder: Any, joiner: Any, blank: int) -> None:
        self._decoder, self._joiner, self._blank = decoder, joiner, blank
        [labels] = decoder.get_inputs()
        self._size = labels.shape[1]
        if not isinstance(self._size, int):  # an axis of free size has a name
            self._size = int(metadata(decoder).get("context_size", 2))
        self.frame_dim, self.num_outputs = _sizes(joiner)

    def start(self, num: int) -> tuple[Tensor, Tensor]:
        context = torch.full((num, self._size), -1, dtype=torch.int64)
        context[:, -1] = self._blank
        return context, self._of(context)

    def predict(self, columns: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        context = torch.cat([state[:, 1:], columns[:, None]], 1)
        return self._of(context), context

    def join(self, frames: np.ndarray, g: Tensor) -> np.ndarray:
        return _joined(self._joiner, frames, g.numpy())

    def _of(self, context: Tensor) -> Tensor:
        (found,) = run_parts(self._decoder, [], context.numpy())
        return torch.from_numpy(found).flatten(1)


class _Recurrent:
    """NeMo's LSTM predictor: its state is two tensors, [N, L, H] each."""

    def __init__(self, decoder: Any, joiner: Any, blank: int) -> None:
        self._decoder, self._joiner, self._blank = decoder, joiner, blank
        self._shapes = _state_shapes(decoder, _floats(decoder))
        self.frame_dim, self.num_outputs = _sizes(joiner)

    def start(self, num: int) -> tuple[Any, Tensor]:
        states = tuple(torch.zeros(num, *shape) for shape in self._shapes)
        g, states = self.predict(torch.full((num,), self._blank), states)
        return states, g

    def predict(self, columns: Tensor, state: Any) -> tuple[Tensor, Any]:
        given = [_layers_first(one.numpy()) for one in state]
        g, *new = run_parts(self._decoder, given, columns[:, None].numpy())
        states = tuple(torch.from_numpy(_layers_first(one)) for one in new)
        return torch.from_numpy(g).flatten(1), states

    def join(self, frames: np.ndarray, g: Tensor) -> np.ndarray:
        return _joined(self._joiner, frames, g.numpy())


class _WithJoiner:
    """NeMo's predictor in the file of the joiner.

    Its g is a label and the states before it, in a row. The file returns the states
    after it for any frame.
    """

    def __init__(self, session: Any, blank: int) -> None:
        self._session, self._blank = session, blank
        self._shapes = _state_shapes(session, _floats(session)[1:])
        self._ends = np.cumsum([1, *(int(np.prod(shape)) for shape in self._shapes)])
        self.frame_dim, self.num_outputs = _sizes(session)
        self._known: dict[bytes, np.ndarray] = {}  # by the rows joined last

    def start(self, num: int) -> tuple[Tensor, Tensor]:
        g = torch.zeros(num, int(self._ends[-1]))
        g[:, 0] = self._blank
        return g, g

    def predict(self, columns: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        rows, known = state.numpy(), self._known
        keys = [row.tobytes() for row in rows]
        if any(key not in known for key in keys):
            frames = np.zeros((len(rows), self.frame_dim or 1), np.float32)
            known = self._run(frames, rows)[1]
        behind = np.array([known[key] for key in keys]).reshape(len(rows), -1)
        labels = columns[:, None].numpy().astype(np.float32)
        g = torch.from_numpy(np.concatenate([labels, behind], 1))
        return g, g

    def join(self, frames: np.ndarray, g: Tensor) -> np.ndarray:
        # A new dict: other threads may read the last.
        logits, self._known = self._run(frames, g.numpy())
        return logits

    def _run(
        self, frames: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, dict[bytes, np.ndarray]]:
        """Return logits of frames with rows of g, and the states after each g."""
        # Each g is run once, with all of its frames.
        places: dict[bytes, list[int]] = {}
        for i, row in enumerate(rows):
            places.setdefault(row.tobytes(), []).append(i)
        each = list(places.values())
        first, most = [one[0] for one in each], max(map(len, each), default=0)
        at = np.array([one + one[:1] * (most - len(one)) for one in each], np.int64)
        some = rows[first]
        spans = zip(self._ends, self._ends[1:], self._shapes, strict=False)
        states = [
            _layers_first(some[:, first:end].reshape(-1, *shape))
            for first, end, shape in spans
        ]
        given = frames[at.reshape(len(each), most)].transpose(0, 2, 1)
        labels = some[:, :1].astype(np.int64)
        outputs, *new = run_parts(self._session, [given, *states], labels)
        logits = np.empty((len(rows), outputs.shape[-1]), np.float32)
        logits[at.ravel()] = outputs.reshape(at.size, -1)
        behind = [_layers_first(one).reshape(len(each), -1) for one in new]
        return logits, dict(zip(places, np.concatenate(behind, 1), strict=True))


def _predictor_of(decoder: Any, joiner: Any, blank: int) -> Any:
    if joiner is None:
        _check_inputs(decoder, "decoder_joint", 5)
        return _WithJoiner(decoder, blank)
    _check_inputs(joiner, "joiner", 2)
    if len(decoder.get_inputs()) == 1:
        return _LastTokens(decoder, joiner, blank)
    _check_inputs(decoder, "decoder", 4, "1 (the last tokens) or 4 (NeMo's)")
    return _Recurrent(decoder, joiner, blank)


def run_parts(
    session: Any,
    floats: Sequence[np.ndarray],
    labels: np.ndarray | None = None,
    counts: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Run a session; inputs are assigned by type and rank, in order.

    `labels`: int [N, U]; their lengths are U. `counts`: int [N], those of the floats.
    Returns float outputs and, with `counts`, the integers after them.
    """
    feeds, given = {}, iter(floats)
    for one in session.get_inputs():
        if one.type in FLOATS:
            array = next(given).astype(FLOATS[one.type], copy=False)
            shape = array.shape + (1,) * (len(one.shape) - array.ndim)
            feeds[one.name] = array.reshape(shape)
        elif labels is not None and len(one.shape) == labels.ndim:
            feeds[one.name] = labels.astype(INTEGERS[one.type])
        else:
            if counts is None and labels is not None:
                counts = np.full(len(labels), labels.shape[1])
            assert counts is not None
            feeds[one.name] = counts.astype(INTEGERS[one.type])
    outputs = session.run(None, feeds)
    if labels is None and counts is not None:
        return outputs[:2]
    return [
        one.astype(np.float32, copy=False) for one in outputs if one.dtype.kind == "f"
    ]


def _joined(joiner: Any, frames: np.ndarray, g: np.ndarray) -> np.ndarray:
    (logits,) = run_parts(joiner, [frames, g])
    return logits.reshape(len(frames), -1)


def _layers_first(states: np.ndarray) -> np.ndarray:
    """Transpose [N, L, H] to [L, N, H], or back."""
    return np.ascontiguousarray(states.transpose(1, 0, 2))


def _floats(session: Any) -> list[Any]:
    return [one for one in session.get_inputs() if one.type in FLOATS]


def _state_shapes(session: Any, states: Sequence[Any]) -> list[tuple[int, int]]:
    """Return layers and width of each state, by metadata if the file lacks them."""
    own = metadata(session)
    known: Any = own.get("pred_rnn_layers"), own.get("pred_hidden")
    shapes = []
    for one in states:
        sizes = [
            size if isinstance(size, int) else known[i]
            for i, size in enumerate((one.shape[0], one.shape[2]))
        ]
        if None in sizes:
            expected = "expected fixed ones, or metadata pred_rnn_layers, pred_hidden"
            raise ShapeError(f"state {one.name!r} has sizes {one.shape}, {expected}")
        shapes.append((int(sizes[0]), int(sizes[1])))
    return shapes


def _sizes(joiner: Any) -> tuple[int | None, int | None]:
    sizes = _floats(joiner)[0].shape[1], joiner.get_outputs()[0].shape[-1]
    known = [size if isinstance(size, int) else None for size in sizes]
    return known[0], known[1]


def _check_inputs(session: Any, name: str, count: int, expected: str = "") -> None:
    if (found := len(session.get_inputs())) != count:
        raise ShapeError(
            f"the {name} takes {found} inputs, expected {expected or count}"
            + ("; streaming encoders have states" if name == "encoder" else "")
        )
