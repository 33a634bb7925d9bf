"""Decode log-probs: words, times and costs of each utterance.

Three decoders: a graph; a beam over the trie of a lexicon, or over bare tokens; and
greedy with a language model over tokens, which needs no beam:

    wfstdec decode --graph graph.npz --logprobs x.npz
    wfstdec decode --decoder beam --tokens ... --lexicon ... --arpa ... --logprobs x.npz
    wfstdec decode --decoder greedy --tokens ... --arpa bpe.arpa --logprobs x.npz

Results come in the order of the log-probs; without --output, on standard output.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

import wfstdec
from wfstdec.cli.decoders import add_decoder_flags, make_decoder, search_options
from wfstdec.cli.flags import add_flags
from wfstdec.cli.phrases import UtteranceLists, lists_of, read_lists
from wfstdec.errors import (
    BoostError,
    BoostWarning,
    LogprobError,
    OptionError,
    ShapeError,
)
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.results import FORMATS, NBEST_FORMATS, open_output
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis

HELP = "log-probs to words with times"
BATCH_UTTERANCES = 64
BATCH_BYTES = 2**26
NAMED_AT_MOST = 5

_NUMBER = re.compile(r"(?<=^utterance )\d+")
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
        unfinished: Utterances that did not reach a final state.
    """

    frame_shift_s: float
    utterances: int = 0
    frames: int = 0
    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)

    def add(
        self, batch: Batch, hypotheses: list[list[Hypothesis]], seconds: float
    ) -> None:
        """Count a decoded batch, the hypotheses of each utterance best first."""
        self.utterances += len(batch)
        self.frames += sum(len(logprobs) for _, logprobs in batch)
        self.seconds += seconds
        for (utterance, _), best in zip(batch, hypotheses, strict=True):
            if not best[0].reached_final:
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
    add_flags(parser, "--logprobs", required=True)
    add_flags(parser, "--output", "--format", "--boost")
    add_flags(parser, "--phrases", "--phrase-totals", "--phrase-unit")
    add_flags(parser, "--phrase-boundary", "--sentencepiece")
    add_decoder_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Decode all utterances and write their results."""
    options = search_options(args)
    several = getattr(options, "nbest", 1) > 1
    if several and args.format not in NBEST_FORMATS:
        raise OptionError(
            f"--nbest {options.nbest} with --format {args.format}, expected --format "
            f"{' or '.join(NBEST_FORMATS)}, which can hold them"
        )
    lists = read_lists(args)
    reader = open_logprobs(args.logprobs)
    decoder = make_decoder(args, options)
    boosts = lists_of(args, lists, decoder)
    tally = Tally(args.frame_shift)
    with open_output(args.output) as file:
        progress = not (args.quiet or file.isatty())
        for utterance, hypotheses in decode_all(
            decoder, reader, boosts, tally, progress=progress
        ):
            if several:
                file.write(NBEST_FORMATS[args.format](utterance, hypotheses))
            else:
                file.write(FORMATS[args.format](utterance, hypotheses[0]))
    if boosts.left_over:
        _warn_of(boosts.left_over, reader)
    if not args.quiet:
        print(tally.summary(), file=sys.stderr)


def _warn_of(left_over: list[str], reader: LogprobReader) -> None:
    """Lists for utterances that are not there: most often ids of another form."""
    named = ", ".join(map(repr, left_over[:NAMED_AT_MOST]))
    more = ", ..." if len(left_over) > NAMED_AT_MOST else ""
    warnings.warn(
        f"{len(left_over)} boost lists are for utterances that {reader.path} does not "
        f"have: {named}{more}",
        BoostWarning,
        stacklevel=2,
    )


def decode_all(
    decoder: Decoder,
    reader: LogprobReader,
    boosts: UtteranceLists,
    tally: Tally,
    *,
    progress: bool = True,
) -> Iterator[tuple[str, list[Hypothesis]]]:
    """Decode batch by batch, with a progress bar where there is a terminal.

    Yields:
        Each utterance and its hypotheses, best first: one, or as many as are found of
        those that the decoder's options ask for.

    Raises:
        ShapeError, LogprobError, BoostError: Log-probs or boosts do not fit; the
            utterance is named.
    """
    # The first call compiles or loads the kernels: no part of the decoding time.
    decoder.decode([np.zeros((1, decoder.num_tokens), np.float32)])
    total, disable = reader.num_utterances, None if progress else True
    with tqdm(total=total, disable=disable, unit=" utterances") as bar:
        for batch in batches(reader):
            began = time.perf_counter()
            hypotheses = _decode(decoder, batch, boosts, reader)
            tally.add(batch, hypotheses, time.perf_counter() - began)
            for (utterance, _), found in zip(batch, hypotheses, strict=True):
                yield utterance, found
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
    decoder: Decoder,
    batch: Batch,
    boosts: UtteranceLists,
    reader: LogprobReader,
) -> list[list[Hypothesis]]:
    lists = [boosts.of(utterance) for utterance, _ in batch]
    logprobs = [one for _, one in batch]
    try:
        if isinstance(decoder, wfstdec.TrieDecoder):
            return decoder.decode_nbest(logprobs, boosts=lists)
        return [[best] for best in decoder.decode(logprobs, boosts=lists)]
    except (ShapeError, LogprobError, BoostError) as error:
        named = _NUMBER.sub(lambda m: repr(batch[int(m[0])][0]), str(error), count=1)
        place = "" if isinstance(error, BoostError) else f"{reader.path}: "
        raise type(error)(f"{place}{named}") from None
