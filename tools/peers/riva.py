"""riva-asrlib-decoder on our graphs: Kaldi's decoder for NVIDIA GPUs.

    peer = RivaPeer(inputs)                                  # `PeerInputs` with a graph
    setting = {"beam": 13.0, "max_active": 7000, "lattice_beam": 1.0, "batch": 128}
    decoder = peer.decoder(setting)
    results = decoder.decode(padded, lengths)                # a `RivaResult` each
    path_costs(graph, logprobs, results, lm_scale=0.8)       # what its paths cost

`pip install riva-asrlib-decoder==0.4.4` (Python 3.11, 3.12) and CuPy. It has no scale
for the graph, so the costs in the file that it reads are scaled, and no boosts. It
always makes lattices; the best path is the first of its n-best list.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.peers.interface import PeerInputs, import_peer, name_with_version
from tools.peers.kaldi import scaled_fst
from wfstdec.compare.comparison import Outcome, Setting
from wfstdec.errors import OptionError
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.tokens import EPSILON, token_of
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

PACKAGE = "riva-asrlib-decoder"
_MODULE = "riva.asrlib.decoder.python_decoder"
_INSTALL = f"pip install {PACKAGE}==0.4.4 (Python 3.11 or 3.12, an NVIDIA GPU)"
_FRAMES_PER_CHUNK = 50
"""Its default: utterances are cut so that short ones make room early."""
_COPY_THREADS = 4


class RivaResult(NamedTuple):
    """Result of Riva for an utterance; all empty where nothing was found.

    Attributes:
        words: In order.
        alignment: A token for each frame.
        score: As it says: a cost, of which not all is documented.
    """

    words: tuple[str, ...]
    alignment: tuple[int, ...]
    score: float


NOTHING = RivaResult((), (), math.inf)


class RivaPeer:
    """Searches the graph on a GPU.

    Args:
        inputs: The graph and the scale of its costs.
        frame_shift_s: Seconds per frame.

    Raises:
        BackendError: riva-asrlib-decoder is not installed.
        OptionError: There is no graph.
    """

    def __init__(self, inputs: PeerInputs, frame_shift_s: float = 0.02) -> None:
        self._module = import_peer(_MODULE, _INSTALL)
        if inputs.graph is None:
            raise OptionError(f"{PACKAGE} without a graph, expected one")
        self.name = name_with_version(PACKAGE)
        self._graph, self._shift_s = inputs.graph, frame_shift_s
        self._folder = tempfile.TemporaryDirectory()
        self._fst = Path(self._folder.name) / "TLG.fst"
        self._words = Path(self._folder.name) / "words.txt"
        fst = scaled_fst(inputs.graph, inputs.lm_scale, inputs.word_insertion)
        fst.write(str(self._fst))
        lines = (f"{word} {i}\n" for i, word in enumerate(inputs.graph.words))
        self._words.write_text("".join(lines), "utf-8")

    def decoder(self, setting: Setting) -> RivaDecoder:
        """Make Riva's own decoder for batches.

        Args:
            setting: `beam` and `lattice_beam` in nats, `max_active`, and `batch`: the
                most utterances side by side.
        """
        config = self._module.BatchedMappedDecoderCudaConfig()
        config.n_input_per_chunk = _FRAMES_PER_CHUNK
        online = config.online_opts
        online.max_batch_size = setting["batch"]
        online.num_channels = 2 * setting["batch"]
        online.frame_shift_seconds = self._shift_s
        online.num_decoder_copy_threads = _COPY_THREADS
        online.decoder_opts.default_beam = setting["beam"]
        online.decoder_opts.max_active = setting["max_active"]
        online.decoder_opts.lattice_beam = setting["lattice_beam"]
        files = str(self._fst), str(self._words), len(self._graph.tokens)
        made = self._module.BatchedMappedDecoderCuda(config, *files)
        return RivaDecoder(made, self._graph.words)


class RivaDecoder:
    """Decodes batches; made by `RivaPeer.decoder`."""

    def __init__(self, decoder: Any, words: Sequence[str]) -> None:
        self._decoder, self._words = decoder, words

    def decode(self, padded: Any, lengths: np.ndarray) -> list[RivaResult]:
        """Decode whole utterances; returns when all are done.

        Args:
            padded: float32 [B, T, V] on the GPU, C order, complete on whatever stream
                it was made: the decoder waits for none.
            lengths: int64 [B], on the host.
        """
        return [self._read(found) for found in self.run(padded, lengths)]

    def run(self, padded: Any, lengths: np.ndarray) -> list[Any]:
        """`decode` without reading the answers: what is timed."""
        return self._decoder.decode_nbest(padded, lengths)

    def _read(self, found: Sequence[Any]) -> RivaResult:
        """The first of an n-best list."""
        if not found:
            return NOTHING
        best = found[0]
        words = tuple(self._words[i] for i in best.words if i != EPSILON)
        labels = (label for label in best.ilabels if label != EPSILON)
        return RivaResult(words, tuple(map(token_of, labels)), float(best.score))


def pad(utterances: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs float32 [B, T, V], 0 after each utterance; lengths int64 [B]."""
    lengths = np.array([len(rows) for rows in utterances], np.int64)
    shape = len(utterances), lengths.max(), utterances[0].shape[1]
    padded = np.zeros(shape, np.float32)
    for own, rows in zip(padded, utterances, strict=True):
        own[: len(rows)] = rows
    return padded, lengths


def path_costs(
    graph: PackedGraph,
    logprobs: Sequence[np.ndarray],
    results: Sequence[RivaResult],
    *,
    lm_scale: float,
) -> list[Outcome]:
    """Costs of Riva's paths: the least over paths of the graph for each alignment.

    So no path of its own can be cheaper than these costs. Where there is no
    path, or it does not cover the frames, the cost is infinite.

    Args:
        graph: What was searched.
        logprobs: Of each utterance, [T, V].
        results: Of the same utterances.
        lm_scale: Multiplies the graph's costs.
    """
    pairs = list(zip(logprobs, results, strict=True))
    masked = [_only(rows, result.alignment) for rows, result in pairs]
    wide = WfstOptions(beam=math.inf, max_active=None, lm_scale=lm_scale)
    found = []
    for result, hypothesis in zip(
        results, WfstDecoder(graph, wide, "cpu").decode(masked), strict=True
    ):
        covered = hypothesis.num_frames == len(result.alignment) > 0
        cost = hypothesis.total_cost if covered else math.inf
        final = covered and hypothesis.reached_final
        found.append(Outcome(" ".join(result.words), cost, final))
    return found


def _only(logprobs: np.ndarray, alignment: tuple[int, ...]) -> np.ndarray:
    """Log-probs with all tokens but those of an alignment impossible."""
    only = np.full_like(logprobs, -np.inf)
    if len(alignment) == len(logprobs):
        at = np.arange(len(logprobs)), np.array(alignment, int)
        only[at] = logprobs[at]
    return only
