"""riva-asrlib-decoder on our graphs, for benchmarks; needs an NVIDIA GPU.

    files = write_files(graph, lm_scale=0.8, folder)     # TLG.fst, words.txt
    peer = RivaDecoder(files, options, batch=128)
    found = peer.decode(padded, lengths)                 # a `RivaResult` per utterance
    outcomes_of(graph, options, logprobs, found)         # what its paths cost

It is Kaldi's decoder for NVIDIA GPUs behind a binding: `pip install
riva-asrlib-decoder==0.4.4` (Python 3.11, 3.12). It has no scale for the graph, so the
costs in the file are scaled, and no boosts. It always makes lattices; the best path is
the first of its n-best list.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_compare import Outcome

from wfstdec.compare.peers.kaldi import scaled_fst
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.symbols import EPSILON
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

MODULE = "riva.asrlib.decoder.python_decoder"
VERSION = "0.4.4"
FRAMES_PER_CHUNK = 50
"""Its default: utterances are cut so that short ones make room early."""
COPY_THREADS = 4


class RivaFiles(NamedTuple):
    """A graph as it reads graphs.

    Attributes:
        graph: The graph.
        fst: An OpenFst file, costs scaled.
        words: Lines `word id`.
    """

    graph: PackedGraph
    fst: Path
    words: Path


class RivaResult(NamedTuple):
    """What it found in an utterance; all empty where it found nothing.

    Attributes:
        words: In order.
        alignment: A token for each frame.
        score: As it says: a cost, of which not all is documented.
    """

    words: tuple[str, ...]
    alignment: tuple[int, ...]
    score: float


NOTHING = RivaResult((), (), math.inf)


def load_module() -> Any:
    """The binding.

    Raises:
        ImportError: It is not installed.
    """
    return importlib.import_module(MODULE)


def write_files(graph: PackedGraph, lm_scale: float, folder: Path) -> RivaFiles:
    """Write a graph and its words."""
    files = RivaFiles(graph, folder / "TLG.fst", folder / "words.txt")
    scaled_fst(graph, lm_scale).write(str(files.fst))
    lines = (f"{word} {i}\n" for i, word in enumerate(graph.words))
    files.words.write_text("".join(lines), "utf-8")
    return files


def make_config(
    module: Any,
    options: WfstOptions,
    *,
    batch: int,
    lattice_beam: float,
    frame_shift_s: float,
) -> Any:
    """Its configuration for our options.

    Args:
        module: From `load_module`.
        options: Beam and max_active are taken; `lm_scale` is in the file.
        batch: Utterances side by side.
        lattice_beam: Nats; what is kept for lattices beside the best path.
        frame_shift_s: Seconds per frame.

    Raises:
        ValueError: The options ask for something that it does not do.
    """
    plain = WfstOptions(
        beam=options.beam, max_active=options.max_active, lm_scale=options.lm_scale
    )
    if options != plain or options.max_active is None:
        raise ValueError(f"{options!r}, expected a beam, max_active and lm_scale alone")
    config = module.BatchedMappedDecoderCudaConfig()
    config.n_input_per_chunk = FRAMES_PER_CHUNK
    online = config.online_opts
    online.max_batch_size = batch
    online.num_channels = 2 * batch
    online.frame_shift_seconds = frame_shift_s
    online.num_decoder_copy_threads = COPY_THREADS
    online.decoder_opts.default_beam = options.beam
    online.decoder_opts.max_active = options.max_active
    online.decoder_opts.lattice_beam = lattice_beam
    return config


class RivaDecoder:
    """Its offline decoder for batches.

    Args:
        files: From `write_files`.
        options: Beam and max_active; `lm_scale` as in the file.
        batch: Utterances side by side.
        lattice_beam: Nats.
        frame_shift_s: Seconds per frame.
    """

    def __init__(
        self,
        files: RivaFiles,
        options: WfstOptions,
        *,
        batch: int,
        lattice_beam: float = 1.0,
        frame_shift_s: float = 0.02,
    ) -> None:
        module = load_module()
        config = make_config(
            module,
            options,
            batch=batch,
            lattice_beam=lattice_beam,
            frame_shift_s=frame_shift_s,
        )
        self._words = files.graph.words
        self._decoder = module.BatchedMappedDecoderCuda(
            config, str(files.fst), str(files.words), len(files.graph.tokens)
        )

    def decode(self, padded: Any, lengths: np.ndarray) -> list[RivaResult]:
        """Decode whole utterances; returns when all are done.

        Args:
            padded: float32 [B, T, V] on the GPU, rows together, made on whatever
                stream, but done: it does not wait for any.
            lengths: int64 [B], on the host.
        """
        return [self._read(found) for found in self.run(padded, lengths)]

    def run(self, padded: Any, lengths: np.ndarray) -> list[Any]:
        """`decode` without reading the answers: what is timed."""
        return self._decoder.decode_nbest(padded, lengths)

    def decode_mbr(self, padded: Any, lengths: np.ndarray) -> list[tuple[str, ...]]:
        """The words of least Bayes risk of each utterance."""
        found = self.run_mbr(padded, lengths)
        return [tuple(word for word, *_ in words) for words in found]

    def run_mbr(self, padded: Any, lengths: np.ndarray) -> list[Any]:
        """`decode_mbr` without reading the answers."""
        return self._decoder.decode_mbr(padded, lengths)

    def _read(self, found: Sequence[Any]) -> RivaResult:
        """The first of an n-best list."""
        if not found:
            return NOTHING
        best = found[0]
        words = tuple(self._words[i] for i in best.words if i != EPSILON)
        tokens = tuple(ilabel - 1 for ilabel in best.ilabels if ilabel != EPSILON)
        return RivaResult(words, tokens, float(best.score))


def outcomes_of(
    graph: PackedGraph,
    options: WfstOptions,
    logprobs: Sequence[np.ndarray],
    found: Sequence[RivaResult],
) -> list[Outcome]:
    """What paths cost: for each, the least over paths of the graph for its alignment.

    So no path of its own can be cheaper than what is said here. Where there is no
    path, or it does not cover the frames, the cost is infinite.
    """
    masked = [_only(x, one.alignment) for x, one in zip(logprobs, found, strict=True)]
    wide = WfstOptions(beam=math.inf, max_active=None, lm_scale=options.lm_scale)
    outcomes = []
    for one, hypothesis in zip(
        found, WfstDecoder(graph, wide, "cpu").decode(masked), strict=True
    ):
        covered = hypothesis.num_frames == len(one.alignment) > 0
        cost = hypothesis.total_cost if covered else math.inf
        final = covered and hypothesis.reached_final
        outcomes.append(Outcome(cost, final, " ".join(one.words)))
    return outcomes


def _only(logprobs: np.ndarray, alignment: tuple[int, ...]) -> np.ndarray:
    """Log-probs with all tokens but those of an alignment impossible."""
    only = np.full_like(logprobs, -np.inf)
    if len(alignment) == len(logprobs):
        at = np.arange(len(logprobs)), np.array(alignment, int)
        only[at] = logprobs[at]
    return only
