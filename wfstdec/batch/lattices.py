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

from tqdm import tqdm

from wfstdec.batch.decoding import fields_of
from wfstdec.batch.summary import Tally
from wfstdec.errors import InputError
from wfstdec.io.journal import Restart
from wfstdec.io.kaldi_lattices import KaldiLatticeWriter
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
from wfstdec.search.paths.lattice import confidences_of, hypotheses_of, nbest_texts
from wfstdec.text.files import digest


@dataclass(frozen=True)
class LatticeReading:
    """Readings of a lattice: hypotheses, confidences, other scales or models.

    Attributes:
        nbest: How many different texts are wanted.
        confidence: Whether the best one's words get confidences.
        mbr: Whether it is the text of least expected error instead, alone.
        posterior_scale: Times all costs, for both.
    """

    nbest: int = 1
    confidence: bool = False
    mbr: bool = False
    posterior_scale: float = 1.0

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
    """Counts of a run; `str()` is a line for a person. Others as of `Tally`.

    Attributes:
        seconds: On the wall, reading and writing included.
    """

    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.num_utterances} lattices in {self.seconds:.1f} s{self.extras()}"


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
    kaldi: KaldiLatticeWriter | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> RescoringSummary:
    """Read lattices, weigh them anew, and write what is then best.

    A lattice with a fault is left out of the results and named in the log and in the
    summary. What is done before an error, or Ctrl-C, stays beside the file, where a
    later run goes on from there with `Restart(resume=True)`.

    Args:
        lattices: What `wfstdec decode --lattices` wrote.
        output: As for `decode_file`.
        lm: Prices words in place of the graph; None leaves the graph's costs.
        unk_cost: As for `NgramLM.from_arpa`.
        lm_scale: Of the model, or of the graph; None is that of the search.
        word_insertion: Of each word; None is that of the search.
        reading: What becomes of each; None is the best text.
        format: As for `decode_file`.
        kaldi: Writes the rescored lattices as an archive.
        strict: The first lattice with a fault ends the run.
        restart: What becomes of the work of an earlier run that was stopped.
        progress: Show a progress bar, where standard error is a terminal.

    Raises:
        OptionError: A value is out of range, or the model is over other words; there
            is work of an earlier run, see `wfstdec.io.Restart`.
        FormatError: A file cannot be read or written.
        LatticeError: A lattice is damaged, and `strict`, or so with all.
    """
    began = time.perf_counter()
    file = lattices if isinstance(lattices, LatticeFile) else open_lattices(lattices)
    reading = reading or LatticeReading()
    format = format_named(format, output)
    write = result_writer(format, nbest=reading.nbest)
    model = None
    # An empty file has no words, and asks for no model.
    if file.vocabulary is not None:
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
        output,
        format,
        write,
        len(file),
        beside=kaldi,
        restart=restart,
        settings=settings,
    ) as results:
        summary.go_on(results)
        known = {*results.done, *(one.utterance for one in results.failures)}
        left = [utterance for utterance in file if utterance not in known]
        shown = progress and not results.on_terminal
        for utterance in tqdm(left, disable=None if shown else True):
            try:
                lattice = file[utterance]
                if model is not None:
                    lattice = rescored(lattice, model, **scales)
                elif scales != {"lm_scale": None, "word_insertion": None}:
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
