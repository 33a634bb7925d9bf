"""Reports on the stages of a build: states, arcs, seconds, memory."""

from __future__ import annotations

import logging
import resource
import sys
import time
from typing import TypeVar

from tqdm import tqdm

from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.packed import PackedGraph

_log = logging.getLogger("wfstdec.build")
_Made = TypeVar("_Made", FstArrays, PackedGraph)


class Stages:
    """Logs each stage as it ends; shows a bar on a terminal if asked.

        with Stages(total=8, progress=True) as stages:
            stages.done("read")
            lg = stages.made("L o G", compose(l, g))

    A log record has the figures as attributes too: `stage`, `states`, `arcs`,
    `seconds`, `peak_memory_gb` (of the process so far).
    """

    def __init__(self, total: int, progress: bool = False) -> None:
        """Start the clock of the first stage."""
        self._bar = tqdm(
            total=total,
            desc="build",
            unit="stage",
            disable=None if progress else True,
        )
        self._began = time.perf_counter()

    def __enter__(self) -> Stages:
        """Nothing; for `with`."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the bar."""
        self._bar.close()

    def made(self, stage: str, graph: _Made) -> _Made:
        """Log a stage and the size of what it made, which is returned."""
        self.done(stage, graph.num_states, graph.num_arcs)
        return graph

    def done(
        self, stage: str, states: int | None = None, arcs: int | None = None
    ) -> None:
        """Log a stage and start the clock of the next."""
        seconds = time.perf_counter() - self._began
        memory = peak_memory_gb()
        size = "" if states is None else f"{states} states, {arcs} arcs, "
        figures = {"stage": stage, "states": states, "arcs": arcs, "seconds": seconds}
        message = f"{stage}: {size}{seconds:.2f} s, peak memory {memory:.2f} GB"
        _log.info(message, extra={**figures, "peak_memory_gb": memory})
        self._bar.set_postfix_str(stage)
        self._bar.update()
        self._began = time.perf_counter()


def peak_memory_gb() -> float:
    """The most memory that the process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9
