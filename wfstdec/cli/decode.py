"""Decode log-probs with a graph: words, times and costs of each utterance.

Results come in the order of the log-probs; without --output, on standard output.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

import wfstdec
from wfstdec.cli.flags import add_flags, add_search_flags, search_options
from wfstdec.errors import LogprobError, ShapeError
from wfstdec.hypothesis import Hypothesis
from wfstdec.io.boosts import BoostLists, read_boosts
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.results import FORMATS, open_output

HELP = "log-probs and a graph to words with times"
BATCH_UTTERANCES = 64
BATCH_BYTES = 2**26
NAMED_AT_MOST = 5

_NUMBER = re.compile(r"(?<=^utterance )(\d+)")
"""How the decoder's errors begin; the batch is ours, so the user gets the id."""

Batch = list[tuple[str, np.ndarray]]


@dataclass
class Tally:
    """What the summary of a run says.

    Attributes:
        frame_shift_s: Seconds per frame.
        utterances: Decoded utterances.
        frames: Their frames.
        seconds: What the decoder took, without reading and writing.
        unfinished: Utterances that did not reach a final state of the graph.
    """

    frame_shift_s: float
    utterances: int = 0
    frames: int = 0
    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)

    def add(self, batch: Batch, hypotheses: list[Hypothesis], seconds: float) -> None:
        """Count a decoded batch."""
        self.utterances += len(batch)
        self.frames += sum(len(logprobs) for _, logprobs in batch)
        self.seconds += seconds
        for (utterance, _), hypothesis in zip(batch, hypotheses, strict=True):
            if not hypothesis.reached_final:
                self.unfinished.append(utterance)

    @property
    def audio_s(self) -> float:
        """Seconds of audio."""
        return self.frames * self.frame_shift_s

    def summary(self) -> str:
        """One line for a person."""
        rate = self.audio_s / self.seconds if self.seconds else 0.0
        text = (
            f"decoded {self.utterances} utterances, {self.audio_s:.1f} s of audio "
            f"in {self.seconds:.2f} s (RTFx {rate:.0f})"
        )
        if not self.unfinished:
            return text + "; all reached a final state"
        named = " ".join(self.unfinished[:NAMED_AT_MOST])
        more = " ..." if len(self.unfinished) > NAMED_AT_MOST else ""
        count = len(self.unfinished)
        return f"{text}; {count} did not reach a final state: {named}{more}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--graph", "--logprobs", required=True)
    add_flags(parser, "--output", "--format", "--boost", "--frame-shift")
    add_flags(parser, "--backend", "--threads")
    add_search_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Decode all utterances and write their results."""
    options = search_options(args)
    boosts = read_boosts(args.boost) if args.boost else BoostLists()
    reader = open_logprobs(args.logprobs)
    decoder = wfstdec.WfstDecoder(
        wfstdec.load_graph(args.graph),
        options,
        args.backend,
        frame_shift_s=args.frame_shift,
        threads=args.threads or None,
    )
    tally = Tally(args.frame_shift)
    with open_output(args.output) as file:
        progress = not (args.quiet or file.isatty())
        for utterance, hypothesis in decode_all(
            decoder, reader, boosts, tally, progress=progress
        ):
            file.write(FORMATS[args.format](utterance, hypothesis))
    if not args.quiet:
        print(tally.summary(), file=sys.stderr)


def decode_all(
    decoder: wfstdec.WfstDecoder,
    reader: LogprobReader,
    boosts: BoostLists,
    tally: Tally,
    *,
    progress: bool = True,
) -> Iterator[tuple[str, Hypothesis]]:
    """Decode batch by batch, with a progress bar where there is a terminal.

    Raises:
        ShapeError, LogprobError: Log-probs do not fit; the utterance is named.
    """
    # The first call compiles or loads the kernels: no part of the decoding time.
    decoder.decode([np.zeros((1, len(decoder.graph.tokens)), np.float32)])
    total, disable = reader.num_utterances, None if progress else True
    with tqdm(total=total, disable=disable, unit=" utterances") as bar:
        for batch in batches(reader):
            began = time.perf_counter()
            hypotheses = _decode(decoder, batch, boosts, reader)
            tally.add(batch, hypotheses, time.perf_counter() - began)
            for (utterance, _), hypothesis in zip(batch, hypotheses, strict=True):
                yield utterance, hypothesis
            bar.update(len(batch))


def batches(reader: LogprobReader) -> Iterator[Batch]:
    """Split what a reader gives so that a batch is never large in memory."""
    batch: Batch = []
    size = 0
    for utterance, logprobs in reader:
        batch.append((utterance, logprobs))
        size += logprobs.nbytes
        if len(batch) == BATCH_UTTERANCES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _decode(
    decoder: wfstdec.WfstDecoder,
    batch: Batch,
    boosts: BoostLists,
    reader: LogprobReader,
) -> list[Hypothesis]:
    lists = [boosts.of(utterance) for utterance, _ in batch]
    try:
        return decoder.decode([logprobs for _, logprobs in batch], boosts=lists)
    except (ShapeError, LogprobError) as error:
        named = _NUMBER.sub(lambda m: repr(batch[int(m[1])][0]), str(error), count=1)
        raise type(error)(f"{reader.path}: {named}") from None
