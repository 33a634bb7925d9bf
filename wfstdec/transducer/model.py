"""Protocol of a transducer model as searches use it, for RNN-T and TDT.

    frames, lengths = model.encode(features, lengths)     # where there is an encoder
    state, g = model.start(num)                           # after no token
    g, state = model.predict(labels, state)               # one token further
    logprobs = model.join(frames, g)                      # RNN-T
    logprobs, durations = model.join(frames, g)           # TDT

`TorchTransducer` and `OnnxTransducer` are such models, and so is any object with
these names.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from wfstdec.attention.model import tree_map
from wfstdec.errors import LogprobError, OptionError, ShapeError, WfstdecError
from wfstdec.text.tokens import BLANK_NAME, TokenTable, token_table

Joined: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""What `join` gives: log-probs, and for TDT those of the durations too."""


@runtime_checkable
class TransducerModel(Protocol):
    """A predictor and a joiner; N rows at a time, all on one device.

    Attributes:
        tokens: The V output tokens, the blank not among them.
        blank: Where the joiner's V + 1 outputs have the blank.
        durations: For TDT, how many frames each output of the duration head stands
            for: the values, not their positions. Empty for RNN-T.

    A model may have two attributes more: `frame_dim`, D of the frames that it joins,
    and `tokenizer`, what cuts text into the names of its tokens, so that phrases are
    cut as it was trained (see `wfstdec.attention.model_decoder`).
    """

    tokens: Sequence[str]
    blank: int
    durations: tuple[int, ...]

    def start(self, num: int) -> tuple[Any, Tensor]:
        """The predictor after no token.

        Args:
            num: N rows.

        Returns:
            The state, a pytree of tensors with N rows each, and g, [N, ...].
        """

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The predictor one token further.

        Args:
            labels: int64 [N], positions in `tokens`: 0..V-1.
            state: As `start` or `predict` gave it.

        Returns:
            g, [N, ...], and the new state.
        """

    def join(self, frames: Tensor, g: Tensor) -> Joined:
        """Log-probs of the next symbol.

        Args:
            frames: [N, D], of the encoder.
            g: [N, ...], of the predictor.

        Returns:
            Natural log-probs [N, V + 1], each row a distribution; for TDT also those
            of the durations, [N, len(durations)].
        """


def leaves(tree: Any) -> list[Any]:
    """All that a pytree holds, in order, tensors or not."""
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def take_rows(tree: Any, rows: Tensor) -> Any:
    """Take rows, int64 [M], of all tensors of a pytree."""
    return tree_map(lambda tensor: torch.index_select(tensor, 0, rows), tree)


def choose_rows(mask: Tensor, there: Any, here: Any) -> Any:
    """Rows of `there` where the mask is true, else of `here`; bool [N]."""

    def choose(new: Tensor, old: Tensor) -> Tensor:
        shape = (-1,) + (1,) * (old.ndim - 1)
        return torch.where(mask.view(shape), new, old)

    return tree_map(choose, there, here)


_ROWS = 5
"""Rows that a model is asked for: as many as no model has layers."""
_NOT_ONE = 0.1
"""Nats that the logarithm of a row's sum may be off, in low precision too."""


@torch.no_grad()
def check_model(model: TransducerModel) -> TokenTable:
    """The token table of a model, the blank in its place."""
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
        wanted = "one above 0"  # or no search would ever leave a frame
    if wanted:
        raise OptionError(f"the model's durations are {durations!r}, expected {wanted}")
    table = token_table((*names[:blank], BLANK_NAME, *names[blank:]), blank)
    # Ask for a few rows, and what one token more makes of them.
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
            advice = "rows are picked from it, so give tensors, rows first"
            if shape[1:2] == (_ROWS,):
                advice = "put layers behind: state.transpose(0, 1)"
            raise ShapeError(
                f"the predictor's state has {_form(part)}, expected [{_ROWS}, ...] for "
                f"{_ROWS} rows; {advice}"
            )


class CheckedModel:
    """A model whose outputs are validated; errors name its inputs."""

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
        # Once: a joiner that gives log-probs gives them always.
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
    """Tell whether some rows tell; those with NaN or nothing possible do not."""
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
    """How an error tells a tensor, an array or anything else."""
    if isinstance(part, Tensor) or hasattr(part, "shape"):
        kind = "" if isinstance(part, Tensor) else f"{type(part).__module__} "
        return f"{kind}{part.dtype} {list(part.shape)}"
    return type(part).__name__
