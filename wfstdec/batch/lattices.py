"""Many lattices: kept while decoding, and rescored from file to file.

keep = LatticeWriter("dev.lat")
decode_file(decoder, "dev.npz", "dev.hyp", lattices=LatticeReading(), keep=keep)
rescore_file("dev.lat", "dev.hyp", lm="large.arpa.gz", lm_scale=0.8)
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from wfstdec.batch.decoding import Tally, fields_of, progress_bar
from wfstdec.errors import FormatError, InputError
from wfstdec.io.journal import Restart
from wfstdec.io.lattices import KaldiLatticeWriter
from wfstdec.io.outputs import open_results
from wfstdec.io.results import format_named, result_writer
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import LatticeFile, open_lattices
from wfstdec.lattice.mbr import minimum_bayes_risk
from wfstdec.lattice.nbest import NbestPaths
from wfstdec.lattice.rescoring import rescored, weighed
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.lattice import confidences_of, hypotheses_of, nbest_texts
from wfstdec.text.files import PathLike, digest


@dataclass(frozen=True)
class LatticeReading:
    """Readings of a lattice: hypotheses, confidences, other scales or models."""

    nbest: int = 1  # How many different texts are wanted
    confidence: bool = False  # Whether the best one's words get confidences
    mbr: bool = False  # Whether it is the text of least expected error instead, alone
    posterior_scale: float = 1.0  # Times all costs, for both

    def __call__(self, utterance: str, lattice: Lattice) -> list[Hypothesis]:
        """The hypotheses of a lattice, best first."""
        if self.mbr:
            least = minimum_bayes_risk(lattice, self.posterior_scale)
            found = NbestPaths([least.arcs], [least.excess], True)
        else:
            found = nbest_texts(lattice, self.nbest)
        hypotheses = hypotheses_of(lattice, found)
        if self.confidence:
            sure = confidences_of(lattice, found.arcs[0], self.posterior_scale)
            hypotheses[0] = hypotheses[0].with_confidences(sure)
        return hypotheses


@dataclass
class RescoringSummary(Tally):
    """Counts of a run; `str()` is a line for a person. Others as of `Tally`."""

    seconds: float = 0.0  # On the wall, reading and writing included

    def __str__(self) -> str:
        return f"{self.num_utterances} lattices in {self.seconds:.1f} s{self.extras()}"


def rescore_file(
    lattices: PathLike | LatticeFile,
    output: PathLike | None = None,
    *,
    lm: AnyLM | None = None,
    unk_cost: float | None = None,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    reading: LatticeReading | None = None,
    format: str | None = None,
    kaldi: KaldiLatticeWriter | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> RescoringSummary:
    """Read lattices, weigh them again, and write what is then best."""
    # A lattice with a fault is left out of the results and named in the log and in the
    # summary. What is done before an error, or Ctrl-C, stays beside the file, where a
    # later run continues from there with `Restart(resume=True)`.
    began = time.perf_counter()
    file = lattices if isinstance(lattices, LatticeFile) else open_lattices(lattices)
    reading = reading or LatticeReading()
    format = format_named(format, output)
    write = result_writer(format, nbest=reading.nbest)
    if file.vocabulary is None:
        raise FormatError(f"{file.path}: no utterance in it, expected at least one")
    words = file.vocabulary.words
    model = None if lm is None else lm_over(read_lm(lm), words, unk_cost)
    if kaldi is not None:
        kaldi.number(file.vocabulary.own.words)
    scales: dict[str, Any] = {"lm_scale": lm_scale, "word_insertion": word_insertion}
    settings = {
        "lattices": digest(file.path),
        **scales,
        **fields_of(reading),
        **{"format": format, "unk_cost": unk_cost},
        "lm": digest(lm) if isinstance(lm, str | os.PathLike) else None,
    }
    summary = RescoringSummary()
    with open_results(
        *(output, format, write, len(file)),
        beside=kaldi,
        restart=restart,
        settings=settings,
    ) as results:
        known = summary.resume(results)
        left = [utterance for utterance in file if utterance not in known]
        for utterance in progress_bar(progress and not results.on_terminal, left):
            try:
                lattice = file[utterance]
                if model is not None:
                    lattice = rescored(lattice, model, **scales)
                elif any(one is not None for one in scales.values()):
                    lattice = weighed(lattice, **scales)
                found = reading(utterance, lattice)
                if kaldi is not None:
                    kaldi(utterance, lattice)
            except InputError as error:
                error.utterance, error.path = utterance, str(file.path)
                summary.fail(error, strict=strict)
                summary.check()
                continue
            summary.num_utterances += 1
            summary.check()
            results.put(utterance, found)
        summary.check(at_end=True)
    summary.seconds = time.perf_counter() - began
    return summary
