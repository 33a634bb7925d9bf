"""Protocol of a transducer model, for RNN-T and TDT.

    frames, lengths = model.encode(features, lengths)     # with an encoder
    state, g = model.start(num)                           # before the first token
    g, state = model.predict(labels, state)               # one token further
    logprobs = model.join(frames, g)                      # RNN-T
    logprobs, durations = model.join(frames, g)           # TDT

`TransducerNet` heads and ONNX exports implement it, as may any object with these names.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from wfstdec.attention.model import tree_map
from wfstdec.errors import LogprobError, OptionError, ShapeError, WfstdecError
from wfstdec.text.tokens import BLANK_NAME, TokenTable, token_table

Joined: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Output of `join`: log-probs, and for TDT also those of the durations."""


@runtime_checkable
class TransducerModel(Protocol):
    """A predictor and a joiner; N rows at a time, all on one device.

    Attributes:
        tokens: The V output tokens, the blank not among them.
        blank: Position of the blank among the joiner's V + 1 outputs.
        durations: For TDT, the number of frames of each output of the duration head:
            values, not positions. Empty for RNN-T.

    A model may have two more attributes: `frame_dim`, D of the frames that it joins,
    and `tokenizer`, a function that splits text into token names, so that phrases are
    tokenised as in training (see `wfstdec.attention.model_decoder`).
    """

    tokens: Sequence[str]
    blank: int
    durations: tuple[int, ...]

    def start(self, num: int) -> tuple[Any, Tensor]:
        """Return the predictor's state and output before the first token.

        Args:
            num: N rows.

        Returns:
            The state, a pytree of tensors with N rows each, and g, [N, ...].
        """

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Step the predictor by one token.

        Args:
            labels: int64 [N], positions in `tokens`: 0..V-1.
            state: As returned by `start` or `predict`.

        Returns:
            g, [N, ...], and the new state.
        """

    def join(self, frames: Tensor, g: Tensor) -> Joined:
        """Return log-probs of the next symbol.

        Args:
            frames: [N, D], of the encoder.
            g: [N, ...], of the predictor.

        Returns:
            Natural log-probs [N, V + 1], each row a distribution; for TDT also those
            of the durations, [N, len(durations)].
        """


def leaves(tree: Any) -> list[Any]:
    """Return all elements of a pytree in order, tensors or not."""
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def take_rows(tree: Any, rows: Tensor) -> Any:
    """Take rows, int64 [M], of all tensors of a pytree."""
    return tree_map(lambda tensor: torch.index_select(tensor, 0, rows), tree)


def choose_rows(mask: Tensor, there: Any, here: Any) -> Any:
    """Select rows of `there` where the mask is true, else of `here`; bool [N]."""

    def choose(new: Tensor, old: Tensor) -> Tensor:
        shape = (-1,) + (1,) * (old.ndim - 1)
        return torch.where(mask.view(shape), new, old)

    return tree_map(choose, there, here)


_ROWS = 5
"""Rows of a test call; no model has this number of layers."""
_NOT_ONE = 0.1
"""Tolerance of the logarithm of a row's sum, nats, also in low precision."""


@torch.no_grad()
def check_model(model: TransducerModel) -> TokenTable:
    """Validate a model; return its token table, with the blank in its place."""
    names, blank = tuple(model.tokens), model.blank
    if not (isinstance(blank, int) and 0 <= blank <= len(names)):
        raise OptionError(
            f"the blank is {blank!r}, expected 0 to {len(names)}, with V={len(names)}"
        )
    durations, wanted = tuple(model.durations), ""
    good = all(isinstance(d, int) and d >= 0 for d in durations)
    if not good or len(set(durations)) != len(durations):
        wanted = "different, from 0"
    elif durations and not any(durations):
        wanted = "one above 0"  # otherwise no search would ever leave a frame
    if wanted:
        raise OptionError(f"the model's durations are {durations!r}, expected {wanted}")
    table = token_table((*names[:blank], BLANK_NAME, *names[blank:]), blank)
    # Query a few rows, and the rows one token further.
    state, g = model.start(_ROWS)
    _check_rows("the predictor", g, _ROWS)
    _check_state(state)
    if names:
        labels = torch.zeros(_ROWS, dtype=torch.int64, device=g.device)
        after, new = CheckedModel(model).predict(labels, state)
        _check_state(new)
        if after.shape != g.shape:
            raise ShapeError(
                f"the predictor gives {_form(after)} after a token, expected {_form(g)}"
            )
    return table


def _check_state(state: Any) -> None:
    for part in leaves(state):
        shape = part.shape if isinstance(part, Tensor) else ()
        if shape[:1] != (_ROWS,):
            advice = "rows are selected from it, so return tensors, rows first"
            if shape[1:2] == (_ROWS,):
                advice = "put layers last: state.transpose(0, 1)"
            raise ShapeError(
                f"the predictor's state has {_form(part)}, expected [{_ROWS}, ...] for "
                f"{_ROWS} rows; {advice}"
            )


class CheckedModel:
    """A model whose outputs are validated; errors describe its inputs."""

    def __init__(self, model: TransducerModel) -> None:
        self._model = model
        self.start, self.tokens, self.blank = model.start, model.tokens, model.blank
        self.durations = tuple(model.durations)
        self._is_known = False

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Implement `TransducerModel.predict`."""
        g, state = self._model.predict(labels, state)
        _check_rows("the predictor", g, len(labels))
        return g, state

    def join(self, frames: Tensor, g: Tensor) -> Joined:
        """Implement `TransducerModel.join`."""
        try:
            joined = self._model.join(frames, g)
        # An out-of-memory error is a RuntimeError too, but not about shapes.
        except (WfstdecError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ShapeError(_cannot_join(frames, g, error)) from error
        parts = joined if isinstance(joined, tuple | list) else (joined,)
        expected = [len(self.tokens) + 1, len(self.durations)][
            : 1 + bool(self.durations)
        ]
        if len(parts) != len(expected):
            raise ShapeError(
                f"the joiner gives {len(parts)} outputs apart, expected "
                f"{len(expected)}: log-probs of tokens"
                + (", and of durations" if self.durations else "")
            )
        for part in parts:
            _check_rows("the joiner", part, len(frames))
            if part.ndim != 2:
                raise ShapeError(
                    f"the joiner gives {_form(part)}, expected "
                    f"[{len(frames)}, outputs] for {len(frames)} rows; flatten(1)"
                )
        sizes = [part.shape[1] for part in parts]
        if sizes != expected:
            found, wanted = (" and ".join(map(str, n)) for n in (sizes, expected))
            raise ShapeError(
                f"the joiner gives {found} outputs, expected {wanted}: "
                f"V={len(self.tokens)} tokens and the blank"
                + (", and durations" if self.durations else "")
            )
        # Only once: a joiner that returns log-probs always does.
        if not self._is_known:
            self._is_known = all([_are_logprobs(part) for part in parts])
        return joined


def _check_rows(who: str, part: Any, num: int) -> None:
    if not isinstance(part, Tensor):
        raise ShapeError(
            f"{who} gives {_form(part)}, expected a tensor: torch.from_numpy"
        )
    if part.shape[:1] != (num,):
        count = len(part) if part.ndim else 0
        raise ShapeError(f"{who} gives {count} rows, expected {num}, in {_form(part)}")


def _are_logprobs(part: Tensor) -> bool:
    """Return whether rows are log-probs; rows with NaN or only -inf are skipped."""
    sums = torch.logsumexp(part.detach().double(), 1)
    sums = sums[torch.isfinite(sums)]
    if not len(sums):
        return False
    worst = float(sums[sums.abs().argmax()])
    if abs(worst) > _NOT_ONE:
        raise LogprobError(
            f"a row of the joiner has a logsumexp of {worst:.4g} over its "
            f"{part.shape[1]} outputs, expected 0 as of natural logs of probabilities; "
            "where these are logits give torch.log_softmax(logits, -1)"
        )
    return True


def _cannot_join(frames: Tensor, g: Tensor, error: Exception) -> str:
    why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    expected = f"[N, D] as the model's encoder gives them ({why})"
    if frames.dtype != g.dtype:
        expected = f"of the model's {g.dtype} ({why}); give frames.to({g.dtype})"
    return (
        f"the joiner cannot take frames {_form(frames)} with g {_form(g)}, expected "
        f"frames {expected}"
    )


def _form(part: Any) -> str:
    """Describe a tensor, an array or any object in an error."""
    if isinstance(part, Tensor) or hasattr(part, "shape"):
        kind = "" if isinstance(part, Tensor) else f"{type(part).__module__} "
        return f"{kind}{part.dtype} {list(part.shape)}"
    return type(part).__name__
