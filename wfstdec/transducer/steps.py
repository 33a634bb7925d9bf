"""Transducer searches ALSD++, AES++ and greedy, in steps of fixed shapes.

ALSD++, for each hypothesis whose frame has arrived:

    candidates = best K tokens, and the blank; after `max_symbols` tokens only the blank
    finished ones are carried along unchanged
    merge the same tokens at the same frame; keep the best K; predictor, fusion step

AES++, frame by frame:

    prefix search: in order of ascending u, score_j (+)= score_i + gain(v | i), where
        j's tokens are i's and v
    N times: the best K + beta labels of each, except those gamma below its best;
        tokens that lead to a text with this gain already are dropped; a blank closes;
        merge, all closed ones among them; keep the best K
    the blank for those that are still open; merge

A step reads no number on the host: only `run` checks at intervals whether all are
finished. On a CPU, where the check is inexpensive, kernels do the same
(`cpu_search.py`), and the model sees only rows that need it (`dense=False`); the result
is the same.

In chunks a step waits until no candidate can exceed the last frame so far, so that its
result equals that with all frames.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from wfstdec.errors import LogprobError
from wfstdec.search.threads import check
from wfstdec.transducer.beam import (
    LEAST_ROWS,
    Beam,
    Candidates,
    Source,
    longer_by,
    merge,
    select,
    start_beam,
    sum_runs,
    with_room,
)
from wfstdec.transducer.cpu_greedy import GreedySearch
from wfstdec.transducer.cpu_search import CpuSearch
from wfstdec.transducer.model import TransducerModel, choose_rows, take_rows, tree_map
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.pricing import Choices, Fusion, Priced, Pricer

_INF = float("inf")
_FAR = 1 << 30
_ASK_EVERY = 8
"""Steps between checks whether all are finished."""
_ROOM = 32
"""Step by which the capacity for tokens grows."""


class Searcher:
    """Search with one set of options on one batch."""

    def __init__(
        self,
        model: TransducerModel,
        options: TransducerOptions,
        fusion: Fusion,
        device: torch.device | str = "cpu",
        dense: bool | None = None,
    ) -> None:
        self.model, self.options, self.fusion = model, options, fusion
        self.device = torch.device(device)
        self.dense = self.device.type != "cpu" if dense is None else dense
        # Laid out now, since a step may be traced.
        self._tables = [term.model.tables for term in fusion.terms if self.dense]
        self.pricer = Pricer(model, options, fusion, device)
        self._first_of_two = torch.tensor([True, False], device=self.device)
        # Per utterance, whether the joiner gave NaN or +inf.
        self.bad = torch.zeros(0, dtype=torch.bool, device=self.device)
        self.num_steps = 0

    def start(self, num: int) -> Beam:
        """Return the beam before `num` utterances."""
        width = self.options.width
        state, g = self.model.start(max(num * width, LEAST_ROWS))
        rows = torch.arange(num * width, device=self.device)
        self.bad = torch.zeros(num, dtype=torch.bool, device=self.device)
        state, g = take_rows(state, rows), g.index_select(0, rows)
        return start_beam(num, width, g, state, self.fusion.start(width))

    def run(
        self, beam: Beam, source: Source, names: Sequence[int | str | None] = ()
    ) -> Beam:
        """Advance while there are frames; errors name utterances."""
        if source.frames.shape[1] == 0 or not len(source.frames):
            return beam
        self.bad = torch.zeros(len(beam.score), dtype=torch.bool, device=self.device)
        after = self._run(beam, source)
        if bool(self.bad.any()):
            at = int(self.bad.int().argmax())
            message = "the joiner gives NaN or +inf, expected logs of probabilities"
            raise LogprobError(message, names[at] if names else at)
        return after

    def _run(self, beam: Beam, source: Source) -> Beam:
        if not self.dense:
            kind = GreedySearch if self.options.strategy == "greedy" else CpuSearch
            search = kind(self.pricer)
            after = search.run(beam, source)
            self.bad, self.num_steps = torch.from_numpy(search.bad), search.num_steps
            return after
        if self.options.strategy == "aes":
            return self._run_frames(beam, source)
        # Shapes are constant in a step, so that it can be captured and exported; arrays
        # of tokens grow between steps.
        longest, steps = int(beam.length.max()), 0
        while steps % _ASK_EVERY or bool(self.is_open(beam, source).any()):
            beam = with_room(beam, longest + steps + 1, _ROOM)
            check()
            beam = self.step(beam, source)
            steps += 1
        return beam

    def is_open(self, beam: Beam, source: Source) -> Tensor:
        """Return the mask of hypotheses that may take a step now, bool [B, K]."""
        alive = beam.live & (beam.frame < source.come[:, None])
        latest = torch.where(beam.live, beam.frame, 0).amax(1)
        # While frames may still come, each waits for the longest duration from it: a
        # step might exceed the frames so far.
        may = source.is_ended | (latest + self.pricer.longest <= source.come)
        return alive & may[:, None]

    def step(self, beam: Beam, source: Source) -> Beam:
        """Step each hypothesis by a symbol: in ALSD++, or the greedy search."""
        return self._expand(beam, source, self.is_open(beam, source), "step")

    def _expand(self, beam: Beam, source: Source, is_open: Tensor, kind: str) -> Beam:
        # Each row's frame and g are joined, open or not.
        rows = self._rows(beam)
        utterance = rows // beam.score.shape[1]
        frame = beam.frame.flatten().index_select(0, rows)
        at = (frame - source.first[utterance]).clamp(0, source.frames.shape[1] - 1)
        states = tuple(state.index_select(0, rows) for state in beam.fusion)
        frames, g = source.frames[utterance, at], beam.g.index_select(0, rows)
        priced = self.pricer.price(self.model.join(frames, g), states)
        # Rows of closed hypotheses are not validated.
        is_bad = (is_open.flatten().index_select(0, rows) & ~priced.is_good).int()
        self.bad = self.bad.int().index_add(0, utterance, is_bad) > 0
        if kind == "search":
            beam = self._search_prefixes(beam, priced, is_open)
        if kind == "close":
            choices = self.pricer.best_blank(priced)
        else:
            # After this many symbols without a frame, only one with a frame may follow;
            # otherwise none would end.
            run = beam.run.flatten().index_select(0, rows)
            forced = run >= self.options.max_symbols
            if self.options.strategy == "greedy":
                choices = self.pricer.greedy(priced, forced)
            elif kind == "step":
                choices = self.pricer.choices(priced, forced)
            else:
                choices = self.pricer.expansions(priced, forced)
        found = self._candidates(beam, source, is_open, choices)
        if kind == "search":
            found = _without_seen(beam, found, is_open)
        # Merge equal texts before the best are taken, or they would take the places of
        # others.
        if found.score[0].numel() > 1:  # a single hypothesis may have equal candidates
            found = merge(beam, found, self.options.merge, self.pricer.num_labels)
        after, spoke = select(beam, found)
        # A blank keeps the predictor.
        return after if kind == "close" else self._spoken(after, spoke)

    def _rows(self, beam: Beam) -> Tensor:
        # The model sees `LEAST_ROWS` or more.
        rows = torch.arange(beam.score.numel(), device=self.device)
        # A library may multiply few rows by another routine, which rounds differently:
        # results would depend on the batch size.
        more = LEAST_ROWS - len(rows)
        return torch.cat([rows, rows.new_zeros(more)]) if more > 0 else rows

    def _candidates(
        self, beam: Beam, source: Source, is_open: Tensor, choices: Choices
    ) -> Candidates:
        """Build candidates: symbols of open hypotheses, others unchanged."""
        shape = (*beam.score.shape, choices.gain.shape[1])
        num = shape[0] * shape[1]
        gain, label, step = (part[:num].reshape(shape) for part in choices)
        opens = is_open[:, :, None]
        stays = torch.full((shape[2],), -_INF, dtype=gain.dtype, device=self.device)
        # A closed hypothesis is a candidate once, at no cost: in its first place.
        stays[:1] = 0
        # A duration may exceed the end; there all hypotheses meet.
        limit = torch.where(source.is_ended, source.come, _FAR)[:, None, None]
        frame = torch.minimum(beam.frame[:, :, None] + step, limit)
        return Candidates(
            score=beam.score[:, :, None] + torch.where(opens, gain, stays),
            label=torch.where(opens, label, -1),
            frame=torch.where(opens, frame, beam.frame[:, :, None]),
        )

    def _spoken(self, beam: Beam, spoke: Tensor) -> Beam:
        flat, rows = spoke.flatten(), self._rows(beam)
        labels = beam.last.flatten().index_select(0, rows).clamp(min=0)
        # Labels include the blank, the predictor knows only tokens.
        tokens = labels - (labels > self.pricer.blank).long()
        tokens = tokens.clamp(max=self.pricer.num_labels - 2)  # NaN is detected later
        g, state = self.model.predict(tokens, take_rows(beam.state, rows))
        states = tuple(at.index_select(0, rows) for at in beam.fusion)
        new = (g, state, self.fusion.step(states, labels)[1])
        new = tree_map(lambda one: one[: len(flat)], new)
        old = (beam.g, beam.state, beam.fusion)
        g, state, states = choose_rows(flat, new, old)
        return beam._replace(g=g, state=state, fusion=states)

    def _run_frames(self, beam: Beam, source: Source) -> Beam:
        """Run AES++ over all available frames."""
        rounds = self.options.expansion_rounds
        # While more may come, frames wait from which the longest duration exceeds the
        # frames so far.
        ready = torch.where(source.is_ended, 0, self.pricer.longest - 1)
        last = int((source.come - ready).max())
        live_frames = torch.where(beam.live, beam.frame, _FAR)
        longest, done = int(beam.length.max()), 0
        for frame in range(int(live_frames.min()), last):
            beam = with_room(beam, longest + done + rounds, _ROOM)
            check()
            beam = self.step_frame(beam, source, frame)
            done += rounds
        return beam

    def step_frame(self, beam: Beam, source: Source, frame: int) -> Beam:
        """Run AES++ for one frame, the same for all utterances that have it."""
        ready = torch.where(source.is_ended, frame + 1, frame + self.pricer.longest)
        may = (ready <= source.come)[:, None]

        def is_open(beam: Beam) -> Tensor:
            return beam.live & (beam.frame <= frame) & may

        # Prefixes are joined in the first round only: later ones start from its result.
        searches = self.options.prefix_search and self.pricer.has_zero_step
        first = "search" if searches else "expand"
        for number in range(self.options.expansion_rounds):
            kind = "expand" if number else first
            beam = self._expand(beam, source, is_open(beam), kind)
        return self._expand(beam, source, is_open(beam), "close")

    def _search_prefixes(self, beam: Beam, priced: Priced, is_open: Tensor) -> Beam:
        num, width = beam.score.shape
        longer = longer_by(1, beam) & is_open[:, :, None] & is_open[:, None, :]
        last = beam.last.index_select(0, self._rows(beam) // width)
        gains = self.pricer.to_label(priced, last)[: num * width]
        parent = longer.int().argmax(1)
        gain = torch.where(longer, gains.view(num, width, width), -_INF).amax(1)
        # Short texts first: they pass their gain on to texts one token longer.
        order = torch.sort(beam.length, dim=1, stable=True)[1]
        score = beam.score
        for place in range(1, width):
            at = order[:, place : place + 1]
            came = score.gather(1, parent.gather(1, at)) + gain.gather(1, at)
            own = score.gather(1, at)
            if self.options.merge == "max":
                own = torch.maximum(own, came)
            else:  # a run of two in each row
                begins = self._first_of_two.expand(num, 2)
                own = sum_runs(torch.cat([own, came], 1), begins)[:, :1]
            score = score.scatter(1, at, own)
        return beam._replace(score=score)


def _without_seen(beam: Beam, found: Candidates, is_open: Tensor) -> Candidates:
    longer = longer_by(1, beam) & is_open[:, :, None] & is_open[:, None, :]
    label = found.label[:, :, :, None]
    repeats = (label == beam.last[:, None, None, :]) & (label >= 0)
    seen = (repeats & longer[:, :, None, :]).any(3)
    seen = seen & (found.frame == beam.frame[:, :, None])
    return found._replace(score=torch.where(seen, -_INF, found.score))
