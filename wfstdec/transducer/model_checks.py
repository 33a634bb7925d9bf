"""Checks of what a model gives before a search trusts it: errors in our words.

table = check_model(model)                # once: tokens, blank, durations, predictor
checked = CheckedModel(model)             # whatever it gives is looked at
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wfstdec.errors import LogprobError, OptionError, ShapeError, WfstdecError
from wfstdec.text.symbols import TokenTable, token_table
from wfstdec.transducer.model import Joined, TransducerModel, leaves

BLANK_NAME = "<blank>"
_ROWS = 5
"""Rows that a model is asked for: as many as no model has layers."""
_NOT_ONE = 0.1
"""Nats that the logarithm of a row's sum may be off, in low precision too."""


@torch.no_grad()
def check_model(model: TransducerModel) -> TokenTable:
    """The token table of a model, the blank in its place.

    Raises:
        OptionError: The blank or the durations cannot be.
        TokenTableError: Tokens are empty or repeated.
        ShapeError: The predictor gives no tensors, or other rows than it was asked for.
    """
    names, blank = tuple(model.tokens), model.blank
    if not (isinstance(blank, int) and 0 <= blank <= len(names)):
        raise OptionError(
            f"the model's blank is {blank!r}, expected 0 to {len(names)}, with "
            f"V={len(names)} tokens"
        )
    durations = tuple(model.durations)
    good = all(isinstance(d, int) and d >= 0 for d in durations)
    if not good or len(set(durations)) != len(durations):
        raise OptionError(
            f"the model's durations are {durations!r}, expected different frame "
            "counts, 0 or more"
        )
    # Without a duration above 0 no search would ever leave a frame.
    if durations and not any(durations):
        raise OptionError(
            f"the model's durations are {durations!r}, expected one above 0"
        )
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
                f"the predictor gives {_form(after)} after a token, expected "
                f"{_form(g)} as after none"
            )
    return table


def _check_state(state: Any) -> None:
    for part in leaves(state):
        if isinstance(part, Tensor) and part.ndim and len(part) == _ROWS:
            continue
        found = _form(part)
        if isinstance(part, Tensor) and part.ndim > 1 and part.shape[1] == _ROWS:
            advice = "put layers behind: state.transpose(0, 1)"
        else:
            advice = "rows are picked from it, so give tensors, rows first"
        raise ShapeError(
            f"the predictor's state has {found}, expected [{_ROWS}, ...] for "
            f"{_ROWS} rows; {advice}"
        )


class CheckedModel:
    """A model whose outputs are looked at, and whose errors tell what it was given.

    Args:
        model: A `TransducerModel`.
    """

    def __init__(self, model: TransducerModel) -> None:
        self._model = model
        self.tokens, self.blank = model.tokens, model.blank
        self.durations = tuple(model.durations)
        self._is_known = False

    def start(self, num: int) -> tuple[Any, Tensor]:
        """Implement `TransducerModel.start`."""
        return self._model.start(num)

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Implement `TransducerModel.predict`.

        Raises:
            ShapeError: It gives no tensor, or other rows than it was given.
        """
        g, state = self._model.predict(labels, state)
        _check_rows("the predictor", g, len(labels))
        return g, state

    def join(self, frames: Tensor, g: Tensor) -> Joined:
        """Implement `TransducerModel.join`.

        Raises:
            ShapeError: It cannot take these, or does not give [N, outputs].
            LogprobError: It gives no logarithms of probabilities.
        """
        try:
            joined = self._model.join(frames, g)
        # An out-of-memory error is a RuntimeError too, and says nothing of shapes.
        except (WfstdecError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ShapeError(_cannot_join(frames, g, error)) from error
        parts = joined if isinstance(joined, tuple | list) else (joined,)
        expected = 2 if self.durations else 1
        if len(parts) != expected:
            raise ShapeError(
                f"the joiner gives {len(parts)} outputs apart, expected {expected}: "
                "log-probs of tokens" + (", and of durations" if expected > 1 else "")
            )
        for part in parts:
            _check_rows("the joiner", part, len(frames))
            if part.ndim != 2:
                raise ShapeError(
                    f"the joiner gives {_form(part)}, expected "
                    f"[{len(frames)}, outputs] for {len(frames)} rows; "
                    "leave out axes of 1: join(...).flatten(1)"
                )
        # Once: a joiner that gives log-probs gives them always.
        if not self._is_known:
            sizes = [len(self.tokens) + 1, len(self.durations)][:expected]
            if [part.shape[1] for part in parts] == sizes:  # or another error comes
                self._is_known = all([_are_logprobs(part) for part in parts])
        return joined


def _check_rows(who: str, part: Any, num: int) -> None:
    if not isinstance(part, Tensor):
        raise ShapeError(
            f"{who} gives {_form(part)}, expected a tensor of {num} rows; "
            "torch.from_numpy makes one of an array"
        )
    if part.ndim == 0 or len(part) != num:
        count = len(part) if part.ndim else 0
        raise ShapeError(
            f"{who} gives {count} rows, expected {num} as asked for: a row for each "
            f"it is given, in {_form(part)}"
        )


def _are_logprobs(part: Tensor) -> bool:
    """Tell whether some rows tell; those with NaN or nothing possible do not.

    Raises:
        LogprobError: They do, and it is no.
    """
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
