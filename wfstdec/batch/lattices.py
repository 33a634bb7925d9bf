"""Many lattices: kept while decoding, and rescored from file to file.

with LatticeWriter("dev.lat") as write:
    decode_file(decoder, "dev.npz", "dev.hyp", lattices=LatticeReading(write=write))
rescore_file("dev.lat", "dev.hyp", lm="large.arpa.gz", lm_scale=0.8)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tqdm import tqdm

from wfstdec.errors import LatticeError
from wfstdec.io.outputs import open_results
from wfstdec.io.results import format_named, result_writer
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import LatticeFile, open_lattices
from wfstdec.lattice.mbr import minimum_bayes_risk
from wfstdec.lattice.nbest import NbestPaths
from wfstdec.lattice.rescaling import weighed
from wfstdec.lattice.rescoring import rescored
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.confidences import confidences_of
from wfstdec.search.paths.lattice import (
    hypotheses_of,
    nbest_texts,
)


@dataclass(frozen=True)
class LatticeReading:
    """What becomes of a lattice.

    Attributes:
        nbest: How many different texts are wanted.
        confidence: Whether the best one's words get confidences.
        mbr: Whether it is the text of least expected error instead, alone.
        posterior_scale: Times all costs, for both.
        write: Keeps the lattice of an utterance; None keeps none.
    """

    nbest: int = 1
    confidence: bool = False
    mbr: bool = False
    posterior_scale: float = 1.0
    write: Callable[[str, Lattice], Any] | None = None

    def __call__(self, utterance: str, lattice: Lattice) -> list[Hypothesis]:
        """The hypotheses of a lattice, best first."""
        if self.write is not None:
            self.write(utterance, lattice)
        found = nbest_texts(lattice, self.nbest)
        if self.mbr:
            least = minimum_bayes_risk(lattice, self.posterior_scale)
            found = NbestPaths([least.arcs], [least.excess], True)
        hypotheses = hypotheses_of(lattice, found)
        if self.confidence:
            sure = confidences_of(lattice, found.arcs[0], self.posterior_scale)
            words = zip(hypotheses[0].words, sure, strict=True)
            timed = tuple(word._replace(confidence=c) for word, c in words)
            hypotheses[0] = replace(hypotheses[0], words=timed)
        return hypotheses


def rescore_file(
    lattices: str | os.PathLike[str] | LatticeFile,
    output: str | os.PathLike[str] | None = None,
    *,
    lm: AnyLM | None = None,
    unk_cost: float | None = None,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    reading: LatticeReading | None = None,
    format: str | None = None,
    progress: bool = False,
) -> int:
    """Read lattices, weigh them anew, and write what is then best.

    Args:
        lattices: What `wfstdec decode --lattices` wrote.
        output: As for `decode_file`.
        lm: Prices words in place of the graph; None leaves the graph's costs.
        unk_cost: As for `NgramLM.from_arpa`.
        lm_scale: Of the model, or of the graph; None is that of the search.
        word_insertion: Of each word; None is that of the search.
        reading: What becomes of each; None is the best text.
        format: As for `decode_file`.
        progress: Show a progress bar, where standard error is a terminal.

    Returns:
        How many lattices there were.

    Raises:
        OptionError: A value is out of range, or the model is over other words.
        FormatError, LatticeError: The file cannot be read, or is damaged.
    """
    file = lattices if isinstance(lattices, LatticeFile) else open_lattices(lattices)
    reading = reading or LatticeReading()
    format = format_named(format, output)
    write = result_writer(format, nbest=reading.nbest)
    model = None
    if lm is not None and file.vocabulary is not None:
        model = lm_over(read_lm(lm), file.vocabulary.words, unk_cost)
    with open_results(output, format, write, len(file)) as results:
        shown = progress and not results.on_terminal
        for utterance in tqdm(file, disable=None if shown else True):
            lattice = file[utterance]
            try:
                if model is not None:
                    lattice = rescored(
                        lattice,
                        model,
                        lm_scale=lm_scale,
                        word_insertion=word_insertion,
                    )
                elif lm_scale is not None or word_insertion is not None:
                    lattice = weighed(
                        lattice, lm_scale=lm_scale, word_insertion=word_insertion
                    )
            except LatticeError as error:
                error.utterance, error.path = utterance, str(file.path)
                raise
            results.put(utterance, reading(utterance, lattice))
    return len(file)
