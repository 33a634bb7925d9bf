"""N-gram language models as automata: queries by true back-off, as KenLM scores.

    lm = NgramLM.from_arpa("lm.arpa.gz", graph.words)           # unit: word
    lm = NgramLM.from_arpa("bpe.arpa.gz", graph.tokens)         # unit: token
    lm.save("lm");  lm = load_lm("lm")                          # memory-mapped

    state      a history: `<s>` (the start), the empty one (state 0), and every n-gram
               that begins a longer one or has a back-off cost
    (h w)      an arc `w` from h to the longest suffix of h w that is a state
    (h </s>)   the final cost of h; backed off beforehand where there is none

Labels are the ids of the table that comes with the decoder, not those of the file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from wfstdec.errors import FormatError, OptionError
from wfstdec.lm.automaton import DTYPES, Automaton, BackoffModel, Unit, frozen
from wfstdec.lm.ngram_build import build_automaton, labels_by_name, labels_by_nemo
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import atomic_folder
from wfstdec.text.symbols import TokenTable, token_table

FORMAT_VERSION = 1
_HEADER = "header.json"
_LABELS = "labels.json"
_log = logging.getLogger("wfstdec.lm")


def check_automaton(automaton: Automaton, num_labels: int, place: str) -> None:
    """Raise unless the arrays fit each other and every index exists.

    Raises:
        FormatError: The first thing that does not hold.
    """
    for name, dtype in DTYPES.items():
        array = getattr(automaton, name)
        if array.ndim != 1 or array.dtype != dtype:
            raise FormatError(
                f"{place}: {name} is {array.dtype} {array.shape}, expected "
                f"{np.dtype(dtype)}, one axis"
            )
    for holds, fault in _conditions(automaton, num_labels):
        if not holds:
            raise FormatError(f"{place}: {fault}; the model is damaged, save it again")


def _conditions(a: Automaton, num_labels: int) -> Iterator[tuple[bool, str]]:
    """Invariants and what to say of each; later ones may rely on earlier ones."""
    num_states, num_arcs = len(a.final_cost), len(a.arc_cost)
    num_models = len(a.model_start)
    splits, tables = a.state_arc_splits, a.model_label_splits
    yield num_models > 0 and num_states > 0, "no model or no state, expected one"
    yield _are_splits(splits, num_states, num_arcs), "the rows of arcs do not add up"
    yield (
        _are_splits(tables, num_models, len(a.label_alias)),
        "the label tables do not add up",
    )
    sizes = {len(a.arc_label), len(a.arc_next)}
    sizes_of_states = {len(a.backoff_state), len(a.backoff_cost)}
    yield (
        sizes == {num_arcs}
        and sizes_of_states == {num_states}
        and len(a.model_default_cost) == num_models,
        "arrays differ in length, expected one length for arcs, states and models",
    )
    yield _within(a.arc_next, 0, num_states), "an arc leads to no state"
    yield _within(a.arc_label, 0, num_labels + 1), "an arc has a label of no table"
    # The first arc of a row may have a lower label than the last of the row before.
    inner = np.ones(num_arcs, bool)
    inner[splits[:-1][splits[:-1] < num_arcs]] = False
    yield (
        bool((a.arc_label[1:] > a.arc_label[:-1])[inner[1:]].all()),
        "a row is not sorted by label",
    )
    yield (
        bool((a.backoff_state < np.arange(num_states)).all())
        and _within(a.backoff_state, -1, num_states),
        "a back-off link leads forwards",
    )
    yield _within(a.model_start, 0, num_states), "a model starts in no state"
    yield (
        bool(np.isin(np.diff(tables), (0, num_labels)).all())
        and _within(a.label_alias, 0, num_labels + 1),
        "a label table has another size",
    )
    # Needs rows and tables that have passed.
    # Roots are dense where label tables are, and these are of one model or of all.
    rows = np.diff(splits)[a.backoff_state < 0]
    full = not len(a.label_alias) or bool((rows == num_labels + 1).all())
    yield full, "a root lacks labels"
    costs = (a.arc_cost, a.backoff_cost, a.final_cost, a.model_default_cost)
    yield not any(np.isnan(cost).any() for cost in costs), "a cost is NaN"


def _are_splits(splits: np.ndarray, count: int, total: int) -> bool:
    return bool(
        len(splits) == count + 1
        and splits[0] == 0
        and splits[-1] == total
        and (np.diff(splits) >= 0).all()
    )


def _within(values: np.ndarray, least: int, end: int) -> bool:
    return bool(((values >= least) & (values < end)).all())


@dataclass(frozen=True, eq=False, repr=False)
class NgramLM(BackoffModel):
    """An n-gram model over the words or tokens of a decoder; see `BackoffModel`.

    `start` is the history `<s>`; `final` the cost of `</s>`.

    Attributes:
        labels: The table of its words or tokens; None where it is not known.
    """

    labels: tuple[str, ...] | TokenTable | None = None

    @classmethod
    def from_arpa(
        cls,
        arpa: str | os.PathLike[str] | IO | ArpaModel,
        labels: Sequence[str] | TokenTable,
        *,
        unk_cost: float | None = None,
        nemo_tokens: bool = False,
    ) -> NgramLM:
        """Make a model of an ARPA file, for the labels of a table.

        N-grams with a word that is not in the table are left out, and their number is
        logged. `<eps>`, `<s>`, `</s>` and the blank cannot be predicted.

        Args:
            arpa: A path, an open file, or what `read_arpa` gave.
            labels: A word table, position 0 being `<eps>` (the unit is then the word),
                or a token table.
            unk_cost: Nats for a label that the model lacks, after which the history is
                empty. None: it is scored as `<unk>`, n-grams over `<unk>` included,
                and impossible where the model has none.
            nemo_tokens: The words of the file are NeMo's: the character of token + 100.

        Raises:
            ArpaError: A malformed file, no `<s>` or no `</s>`, or words that are not
                NeMo's tokens.
            FormatError: The file cannot be read.
            OptionError: `unk_cost` is no number, or `nemo_tokens` without tokens.
        """
        unit: Unit = "token" if isinstance(labels, TokenTable) else "word"
        if unk_cost is not None and not abs(unk_cost) < 1e6:
            raise OptionError(f"unk_cost={unk_cost!r}, expected nats")
        model = arpa if isinstance(arpa, ArpaModel) else read_arpa(arpa)
        if not nemo_tokens:
            labelled = labels_by_name(model, labels)
        elif isinstance(labels, TokenTable):
            labelled = labels_by_nemo(model, labels)
        else:
            raise OptionError("nemo_tokens with a word table, expected a token table")
        automaton = build_automaton(model, labelled, unk_cost)
        table = labels if isinstance(labels, TokenTable) else tuple(labels)
        lm = cls(frozen(automaton), unit, len(table), table)
        _log.info(
            "language model: %d %ss, %d states, %d arcs, %.1f MB",
            *(lm.num_labels - (unit == "word"), unit),  # less <eps>
            *(lm.num_states, lm.num_arcs, lm.num_bytes / 1e6),
        )
        return lm

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model and its labels as a folder of files, whole or not at all.

        Raises:
            FormatError: It cannot be written, or `path` is something else already.
        """
        target = Path(path)
        if target.exists() and not (target / _HEADER).is_file():
            raise FormatError(
                f"{target}: exists and is no language model, expected a new path"
            )
        header = {"format": "wfstdec.lm", "version": FORMAT_VERSION}
        header |= {"unit": self.unit, "num_labels": self.num_labels}
        with atomic_folder(target) as folder:
            for name, array in self.automaton._asdict().items():
                np.save(folder / f"{name}.npy", array)
            (folder / _HEADER).write_text(json.dumps(header), encoding="utf-8")
            if self.labels is not None:
                table: dict[str, Any] = {"names": self.labels}
                if isinstance(self.labels, TokenTable):
                    table = {"names": self.labels.names, "blank": self.labels.blank}
                (folder / _LABELS).write_text(json.dumps(table), "utf-8")


def load_lm(path: str | os.PathLike[str]) -> NgramLM:
    """Map a model that `NgramLM.save` wrote into memory, and check it.

    Raises:
        FormatError: No such folder, not a language model of wfstdec, of another
            version, or damaged.
    """
    folder = Path(path)
    try:
        header = json.loads((folder / _HEADER).read_text(encoding="utf-8"))
        found = header["format"], header["version"], header["unit"]
        num_labels = int(header["num_labels"])
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in DTYPES
        }
        labels = _read_labels(folder / _LABELS)
    except FileNotFoundError as error:
        raise FormatError(
            f"{error.filename}: no such file, expected a saved language model"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
        raise FormatError(
            f"{folder}: not a readable language model ({error}), expected what "
            "NgramLM.save writes"
        ) from None
    if found[:2] != ("wfstdec.lm", FORMAT_VERSION) or found[2] not in ("word", "token"):
        raise FormatError(
            f"{folder}: found {found}, expected a language model of version "
            f"{FORMAT_VERSION}; build it again"
        )
    # Mapped, not read: processes on a machine share the pages.
    automaton = Automaton(**arrays)
    check_automaton(automaton, num_labels, str(folder))
    if labels is not None and len(labels) != num_labels:
        raise FormatError(
            f"{folder}: {len(labels)} labels, expected {num_labels}; the model is "
            "damaged, save it again"
        )
    return NgramLM(frozen(automaton), found[2], num_labels, labels)


def _read_labels(path: Path) -> tuple[str, ...] | TokenTable | None:
    """The table, None where none was saved."""
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    names = tuple(map(str, found["names"]))
    return token_table(names, found["blank"]) if "blank" in found else names
