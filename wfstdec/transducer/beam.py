"""Hypotheses of a batch, merged and pruned in fixed shapes.

Two candidates are one if their tokens and their frames are equal. The beam stores how
many first tokens every two of its texts share. Text a is a prefix of b if they share
all of a's tokens, and a's child by a token y is b if b is one longer and ends in y. So
the text of a candidate is identified by its parent and its token. The number of shared
tokens grows by at most one in a step, where the next tokens are equal.

`sum_runs` adds with `wfstdec.search.log_add`, with the same bits on every device: a
numba kernel on a CPU, a CUDA kernel (CuPy) on a GPU. Other devices, or a GPU without
CuPy, copy the scores to the CPU: such a step cannot be captured in a graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.errors import BackendError
from wfstdec.gpu.compiling import Program
from wfstdec.gpu.cuda_arrays import callers_stream
from wfstdec.gpu.cupy_device import CupyDevice, load_cupy
from wfstdec.gpu.device import Device, Grid
from wfstdec.gpu.records import read_struct
from wfstdec.jit import kernel
from wfstdec.search.log_add import add_scores
from wfstdec.transducer.model import take_rows, tree_map
from wfstdec.transducer.pricing import States

NO_TOKEN = -1
LEAST_ROWS = 16
"""With fewer rows, libraries may use other routines that round differently."""
_INF = float("inf")


class Source(NamedTuple):
    """Frames of a batch of utterances that have arrived."""

    frames: Tensor  # [B, T, D]
    first: Tensor  # int64 [B], index of the first of these in its utterance
    come: Tensor  # int64 [B], number of frames so far, those before `first` included
    is_ended: Tensor  # bool [B], whether the utterance is complete

    def ended(self) -> Source:
        """Mark all utterances as complete."""
        return self._replace(is_ended=torch.ones_like(self.is_ended))


class Beam(NamedTuple):
    """K hypotheses of each of B utterances; a dead one has the score -inf."""

    score: Tensor  # float64 [B, K], nats, higher is better
    frame: Tensor  # int64 [B, K], t: the next frame
    run: Tensor  # int64 [B, K], tokens since the last frame advance
    length: Tensor  # int64 [B, K], u: tokens in `rows`
    last: Tensor  # int64 [B, K], the last token, -1 for none
    shared: Tensor  # int64 [B, K, K], number of first tokens shared by two texts
    # int32 [B * K, U, 3], of each token: itself, its frame, the frame after
    rows: Tensor
    g: Tensor  # [B * K, ...], output of the predictor
    state: Any  # pytree of tensors [B * K, ...], of the predictor
    fusion: States  # int64 [B * K] for each term
    before: Tensor  # int64 [B, 1], tokens before those in `rows`

    @property
    def live(self) -> Tensor:
        """Mask of existing hypotheses, bool [B, K]."""
        return self.score > -_INF


_OF_UTTERANCES = ("score", "frame", "run", "length", "last", "shared", "before")
"""Fields of a beam that have an axis B; the others have B * K rows."""


class Candidates(NamedTuple):
    """Candidates for the next beam: W for each hypothesis."""

    score: Tensor  # float64 [B, K, W], -inf without a candidate
    label: Tensor  # int64 [B, K, W], a token, or -1 if the text is unchanged
    frame: Tensor  # int64 [B, K, W], the next frame


def start_beam(num: int, width: int, g: Tensor, state: Any, fusion: States) -> Beam:
    """Return a beam of one live hypothesis, the empty text, per utterance."""
    none = torch.zeros(num, width, dtype=torch.int64, device=g.device)
    score = torch.full_like(none, -_INF, dtype=torch.float64)
    score[:, 0] = 0
    return Beam(
        # No tensor twice: an exported step would treat them as one.
        *(score, none, none.clone(), none.clone(), none + NO_TOKEN),
        shared=none.new_zeros(num, width, width),
        rows=none.new_zeros(num * width, 0, 3).int(),
        g=g,
        state=state,
        fusion=fusion,
        before=none.new_zeros(num, 1),
    )


def with_room(beam: Beam, length: int, more: int = 0) -> Beam:
    """Grow the arrays of a beam that lacks capacity for `length` and `more` tokens."""
    num, room, _ = beam.rows.shape
    if room >= length:
        return beam
    free = beam.rows.new_zeros(num, length - room + more, 3)
    return beam._replace(rows=torch.cat([beam.rows, free], 1))


def side_by_side(beams: Sequence[Beam]) -> Beam:
    """Concatenate the beams of several batches."""
    if len(beams) == 1:
        return beams[0]
    longest = max(beam.rows.shape[1] for beam in beams)
    parts = zip(*(with_room(beam, longest) for beam in beams), strict=True)
    return Beam(*(tree_map(lambda *them: torch.cat(them), *part) for part in parts))


def taken_apart(beam: Beam) -> list[Beam]:
    """Split a beam into one per utterance."""
    num, width = beam.score.shape
    found = []
    for i in range(num):
        longest = int(beam.length[i].max())
        rows = slice(i * width, (i + 1) * width)
        own = {name: getattr(beam, name)[i : i + 1] for name in _OF_UTTERANCES}
        others = beam.g, beam.state, beam.fusion
        g, state, fusion = tree_map(lambda part, rows=rows: part[rows], others)
        tokens = beam.rows[rows, :longest]
        found.append(beam._replace(**own, rows=tokens, g=g, state=state, fusion=fusion))
    return found


def longer_by(more: int, beam: Beam) -> Tensor:
    """Return whether hypothesis b is a plus `more` tokens, [B, a, b], both alive."""
    counts = beam.length[:, :, None] + more == beam.length[:, None, :]
    live = beam.live[:, :, None] & beam.live[:, None, :]
    return counts & (beam.shared == beam.length[:, :, None]) & live


def merge(
    beam: Beam, found: Candidates, how: Literal["sum", "max"], num_labels: int
) -> Candidates:
    """Merge equal texts and frames: the best keeps its place and gets the sum."""
    # Ties go to the lower hypothesis, then the lower candidate.
    # A number for each candidate's text: of its parent's first hypothesis, and its
    # token, also if the text is unchanged.
    first = longer_by(0, beam).int().argmax(2)
    longer = longer_by(1, beam)
    parent = longer.int().argmax(1)
    parent = torch.where(longer.any(1), first.gather(1, parent), NO_TOKEN)
    as_itself = (beam.score.shape[1] + first) * num_labels
    as_child = parent * num_labels + beam.last
    stays = torch.where(parent >= 0, as_child, as_itself)
    as_longer = first[:, :, None] * num_labels + found.label
    text = torch.where(found.label >= 0, as_longer, stays[:, :, None])
    shape, score = found.score.shape, found.score.flatten(1)
    key = (text * (1 << 32) + found.frame).flatten(1)
    # Impossible candidates get their own key, or they would merge with possible ones.
    key = torch.where(score > -_INF, key, -1)
    key, order = torch.sort(key, dim=1, stable=True)
    score = score.gather(1, order)
    begins = torch.ones_like(key, dtype=torch.bool)
    begins[:, 1:] = key[:, 1:] != key[:, :-1]
    group = begins.cumsum(1) - 1
    none = torch.full_like(score, -_INF)
    best = none.scatter_reduce(1, group, score, "amax").gather(1, group)
    nowhere = torch.full_like(order, order.shape[1])
    # Sorting has moved candidates: ties go by their earlier position.
    place = torch.where(score == best, order, nowhere)
    place = nowhere.scatter_reduce(1, group, place, "amin").gather(1, group)
    if how == "sum":
        best = sum_runs(score, begins)
    best = torch.where(order == place, best, -_INF)
    merged = none.scatter(1, order, best)
    return found._replace(score=merged.view(shape))


def select(beam: Beam, found: Candidates) -> tuple[Beam, Tensor]:
    """Return the K best candidates as a beam; bool [B, K], whether each is a token."""
    # Ties go to the lower hypothesis, then the lower candidate. g, predictor and fusion
    # are still their parents'.
    num, width, ways = found.score.shape
    scores = found.score.flatten(1)
    score, order = torch.sort(scores, dim=1, descending=True, stable=True)
    score, order = score[:, :width], order[:, :width]
    label, frame = (one.flatten(1).gather(1, order) for one in found[1:])
    parent = order // ways
    offset = torch.arange(num, device=parent.device)[:, None] * width
    parts = beam.rows, beam.g, beam.state, beam.fusion
    rows, g, state, fusion = take_rows(parts, (parent + offset).flatten())
    names = ("length", "frame", "run", "last")
    count, before, run, last = (getattr(beam, n).gather(1, parent) for n in names)
    # Append a row where a token was emitted.
    spoke, after = label >= 0, torch.maximum(frame, before + 1)
    new = torch.stack([label, before, after], 2).view(-1, 1, 3).int()
    at = count.view(-1, 1, 1).clamp(max=rows.shape[1] - 1).expand(-1, 1, 3)
    new = torch.where(spoke.view(-1, 1, 1), new, rows.gather(1, at))
    rows, count = rows.scatter(1, at, new), count + spoke
    # Number of shared first tokens of the parents, plus one if the next are equal.
    across = parent[:, :, None].expand(-1, -1, width)
    shared = beam.shared.gather(1, across).gather(2, across.transpose(1, 2))
    tokens = rows[..., 0].view(num, width, -1)
    following = tokens.gather(2, shared.clamp(max=tokens.shape[2] - 1))
    inside = shared < count[:, :, None]
    same = (following == following.transpose(1, 2)) & inside & inside.transpose(1, 2)
    kept = beam._replace(
        score=score,
        frame=frame,
        run=torch.where(frame > before, 0, run + spoke),
        length=count,
        last=torch.where(spoke, label, last),
        shared=shared + same,
        rows=rows,
        g=g,
        state=state,
        fusion=fusion,
    )
    return kept, spoke


_KERNELS = Path(__file__).parent / "kernels"
_THREADS = 128
TASK = read_struct(_KERNELS / "sums.cu", "SumsTask")
PROGRAM = Program(
    "sums.cu",
    _KERNELS,
    kernels=("sum_runs",),
    own_bytes=0,
    shared_bytes=lambda room: 0,
    structs={"SumsTask": TASK},
    constants={},
    threads=_THREADS,
)
"""Kernel for a GPU."""

_LIBRARY = torch.library.Library("wfstdec", "DEF")
_LIBRARY.define("sum_runs(Tensor score, Tensor begins) -> Tensor")


def sum_runs(score: Tensor, begins: Tensor) -> Tensor:
    """Sum probabilities, in order, over runs of adjacent elements."""
    return torch.ops.wfstdec.sum_runs(score, begins)


@kernel
def _sum_each(score, begins, total):
    rows, columns = score.shape
    for row in range(rows):
        first = 0
        for end in range(1, columns + 1):
            if end < columns and not begins[row, end]:
                continue
            found = score[row, first]
            for i in range(first + 1, end):
                found = add_scores(found, score[row, i])
            total[row, first:end] = found
            first = end


def _on_cpu(score: Tensor, begins: Tensor) -> Tensor:
    total = torch.empty(score.shape, dtype=score.dtype)
    given = score.contiguous().numpy(), begins.contiguous().numpy()
    _sum_each(*given, total.numpy())
    return total


def _on_cuda(score: Tensor, begins: Tensor) -> Tensor:
    device = _device_of(score.get_device())
    if device is None:
        return _elsewhere(score, begins)
    with device.on_stream(callers_stream(device.cupy, score)):
        return launch_sums(device, score, begins)


def _elsewhere(score: Tensor, begins: Tensor) -> Tensor:
    return _on_cpu(score.cpu(), begins.cpu()).to(score.device)


def launch_sums(device: Device, score: Tensor, begins: Tensor) -> Tensor:
    """Launch `sum_runs` on a device, in the current stream."""
    score, begins = score.contiguous(), begins.contiguous()
    total = torch.empty_like(score)
    task = np.zeros(1, TASK)
    for name, one in (("score", score), ("begins", begins), ("total", total)):
        task[name] = one.data_ptr()
    task["rows"], task["columns"] = score.shape
    blocks = -(-score.numel() // _THREADS)
    if blocks:
        device.launch(Grid("sum_runs", blocks, threads=_THREADS), task)
    return total


@functools.cache
def _device_of(number: int) -> CupyDevice | None:
    """Return a GPU with the compiled kernel; None if CuPy cannot provide it."""
    try:
        with load_cupy().cuda.Device(number):
            return CupyDevice(PROGRAM)
    except BackendError:
        return None


_LIBRARY.impl("sum_runs", _on_cpu, "CPU")
_LIBRARY.impl("sum_runs", _on_cuda, "CUDA")
_LIBRARY.impl("sum_runs", _elsewhere, "CompositeExplicitAutograd")
# Shapes only: for fake tensors, and to export it as one operation.
_LIBRARY.impl("sum_runs", lambda score, begins: torch.empty_like(score), "Meta")
