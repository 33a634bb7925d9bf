"""N-gram language models as automata, with true back-off as in KenLM.

    lm = NgramLM.from_arpa("lm.arpa.gz", graph.words)           # unit: word
    lm = NgramLM.from_arpa("bpe.arpa.gz", graph.tokens)         # unit: token
    lm.save("lm");  lm = load_lm("lm")                          # mapped if large

    state      a history: `<s>` (the start), the empty one (state 0), and every n-gram
               that begins a longer one or has a back-off cost
    (h w)      an arc `w` from h to the longest suffix of h w that is a state
    (h </s>)   the final cost of h; backed off in advance if missing

Labels are the ids of the decoder's table, not those of the file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from wfstdec.errors import ArpaError, FormatError, OptionError, check_listed
from wfstdec.jit import jit
from wfstdec.lm.automaton import DTYPES, Automaton, BackoffModel, Unit, frozen
from wfstdec.lm.histories import NO_LABEL, ROOT, build_histories
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import atomic_folder, fingerprint_of, reading
from wfstdec.text.tokens import EPSILON, TokenTable, token_table

FORMAT_VERSION = 2
MAPPED_BYTES = 1 << 26
"""Smaller models are read, which is safe if the file changes on disk."""
_HEADER = "header.json"
_LABELS = "labels.json"
_log = logging.getLogger("wfstdec.lm")


@dataclass(frozen=True, eq=False, repr=False)
class NgramLM(BackoffModel):
    """N-gram model over the words or tokens of a decoder; see `BackoffModel`.

    `start` is the history `<s>`; `final` the cost of `</s>`.

    Attributes:
        labels: Table of its words or tokens; None if unknown.
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
        """Build a model of an ARPA file over the labels of a table.

        N-grams with a word outside the table are dropped, and their number is logged.
        `<eps>`, `<s>`, `</s>` and the blank cannot be predicted.

        Args:
            arpa: A path, an open file, or the result of `read_arpa`.
            labels: A word table, with `<eps>` at position 0 (unit: word), or a token
                table.
            unk_cost: Cost in nats of a label that the model lacks, after which the
                history is empty. None: it is scored as `<unk>`, with its n-grams, and
                impossible without `<unk>`.
            nemo_tokens: The words of the file are NeMo's: the character of token + 100.

        Raises:
            ArpaError: A malformed file, no `<s>` or no `</s>`, or words that are not
                NeMo's tokens.
            FormatError: The file cannot be read.
            OptionError: `unk_cost` is not a number, or `nemo_tokens` without tokens.
        """
        check_listed("labels", labels)
        if not len(labels):
            raise OptionError(
                f"labels={labels!r}, expected '<eps>' and words, or tokens"
            )
        unit: Unit = "token" if isinstance(labels, TokenTable) else "word"
        if unk_cost is not None and not abs(unk_cost) < 1e6:
            raise OptionError(f"unk_cost={unk_cost!r}, expected nats")
        model = arpa if isinstance(arpa, ArpaModel) else read_arpa(arpa)
        if not nemo_tokens:
            of_word, impossible = _labels_by_name(model, labels)
        elif isinstance(labels, TokenTable):
            of_word, impossible = _labels_by_nemo(model, labels)
        else:
            raise OptionError("nemo_tokens with a word table, expected a token table")
        automaton = _automaton_of(model, of_word, impossible, unk_cost)
        table = labels if isinstance(labels, TokenTable) else tuple(labels)
        lm = cls(frozen(automaton), unit, len(table), table)
        _log.info(
            "language model: %d %ss, %d states, %d arcs, %.1f MB",
            *(lm.num_labels - (unit == "word"), unit),  # less <eps>
            *(lm.num_states, lm.num_arcs, lm.num_bytes / 1e6),
        )
        return lm

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model and its labels as a folder of files, atomically.

        Raises:
            FormatError: It cannot be written, or `path` exists and is not a language
                model.
        """
        target = Path(path)
        if target.exists() and not (target / _HEADER).is_file():
            raise FormatError(
                f"{target}: exists and is not a language model, expected a new path"
            )
        header = {"format": "wfstdec.lm", "version": FORMAT_VERSION}
        header |= {"unit": self.unit, "num_labels": self.num_labels}
        table: dict[str, Any] | None = None
        if self.labels is not None:
            table = {"names": self.labels}
            if isinstance(self.labels, TokenTable):
                table = {"names": self.labels.names, "blank": self.labels.blank}
        written = None if table is None else json.dumps(table)
        about = self.unit, self.num_labels, written
        header["digest"] = _digest(self.automaton._asdict(), *about)
        with atomic_folder(target) as folder:
            for name, array in self.automaton._asdict().items():
                np.save(folder / f"{name}.npy", array)
                # Mapped files must not change: see `load_lm`.
                (folder / f"{name}.npy").chmod(0o444)
            (folder / _HEADER).write_text(json.dumps(header), encoding="utf-8")
            if written is not None:
                (folder / _LABELS).write_text(written, "utf-8")


def load_lm(path: str | os.PathLike[str]) -> NgramLM:
    """Read or map a model of `NgramLM.save`, and validate it.

    Models of `MAPPED_BYTES` or more are mapped, so that processes share their pages.
    Mapped files must not be changed in place: replace the folder, as `save` does.

    Raises:
        FormatError: No such folder, not a language model of wfstdec, of another
            version, or damaged.
    """
    folder = Path(path)
    with reading(folder, "language model", "what NgramLM.save writes"):
        header = json.loads((folder / _HEADER).read_text(encoding="utf-8"))
        found: Any = header["format"], header["version"], header["unit"]
        num_labels = int(header["num_labels"])
        files = {name: folder / f"{name}.npy" for name in DTYPES}
        size = sum(file.stat().st_size for file in files.values())
        mode: Any = "r" if size >= MAPPED_BYTES else None
        arrays = {name: np.load(file, mmap_mode=mode) for name, file in files.items()}
        labels: tuple[str, ...] | TokenTable | None = None
        written = None
        if (folder / _LABELS).exists():
            written = (folder / _LABELS).read_text(encoding="utf-8")
            table = json.loads(written)
            labels = tuple(map(str, table["names"]))
            if "blank" in table:
                labels = token_table(labels, table["blank"])
        if found not in [("wfstdec.lm", FORMAT_VERSION, u) for u in ("word", "token")]:
            version = f"a language model of version {FORMAT_VERSION}"
            raise FormatError(f"found {found}, expected {version}; build it again")
        # Kernels trust the arrays: they must be those that were saved.
        digest = _digest(arrays, found[2], num_labels, written)
        if digest != header["digest"] or not _is_sound(arrays, num_labels):
            raise FormatError("the model is damaged; save it again")
        return NgramLM(frozen(Automaton(**arrays)), found[2], num_labels, labels)


def _digest(
    arrays: dict[str, np.ndarray], unit: str, num_labels: int, table: str | None
) -> str:
    named = {f"{name} {a.dtype} {a.shape}": a for name, a in arrays.items()}
    about = json.dumps([unit, num_labels, table]).encode()
    return fingerprint_of({**named, "": np.frombuffer(about, np.uint8)})


def _is_sound(arrays: dict[str, np.ndarray], num_labels: int) -> bool:
    """Return whether kernels stay inside the arrays, even of a forged file."""
    splits, to = arrays["state_arc_splits"], arrays["arc_next"]
    backoff, num_arcs = arrays["backoff_state"], len(to)
    num_states = len(backoff)
    return bool(
        {len(arrays[name]) for name in ("final_cost", "backoff_cost")} == {num_states}
        and (backoff >= -1).all()
        and (backoff < np.arange(num_states)).all()  # or it would not terminate
        and (to >= 0).all()
        and (to < num_states).all()
        and {len(arrays[name]) for name in ("arc_label", "arc_cost")} == {num_arcs}
        and len(splits) == num_states + 1
        and (splits[0], splits[-1]) == (0, num_arcs)
        and (np.diff(splits) >= 0).all()
        and len(arrays["label_alias"]) in (0, num_labels)
    )


NEMO_OFFSET = 100  # NeMo writes token t as the character `chr(t + 100)`
_Labels = tuple[np.ndarray, np.ndarray]
"""int32 [W], label of each word of a file, or `NO_LABEL`; undefined for `<s>`, `</s>`
and `<unk>`. bool [L], labels that are never predicted: epsilon, blank, marks.
"""


def _labels_by_name(model: ArpaModel, table: Sequence[str] | TokenTable) -> _Labels:
    is_tokens = isinstance(table, TokenTable)
    names = list(table.names if isinstance(table, TokenTable) else table)
    # As labels they would let a sentence begin or end inside.
    impossible = np.isin(names, ["<s>", "</s>"])
    impossible[table.blank if isinstance(table, TokenTable) else EPSILON] = True
    ids = {name: i for i, name in enumerate(names) if not impossible[i]}
    of_word = [ids.get(word, NO_LABEL) for word in model.words]
    if is_tokens:
        _check_tokens(model, ids)
    marks = {model.bos, model.eos, model.unk}
    lacking = [i for i, label in enumerate(of_word) if label == NO_LABEL]
    if missing := len(set(lacking) - marks):
        text = "%d words of the model are none of the %d %s"
        _log.info(text, missing, len(ids), "tokens" if is_tokens else "words")
    return np.array(of_word, np.int32), impossible


def _check_tokens(model: ArpaModel, names: Iterable[str]) -> None:
    """Raise if no token is in the model: usually it is the wrong file."""
    unk = None if model.unk is None else model.words[model.unk]
    wanted = {name for name in names if name != unk}
    lacking = sorted(wanted - set(model.words))
    if lacking and len(lacking) == len(wanted):
        raise ArpaError(
            f"none of the {len(wanted)} tokens, such as {lacking[0]!r}, is a word of "
            "the model, expected some; a model over words needs a lexicon, one of "
            "NeMo's nemo_tokens (wfstdec build-lm --nemo-tokens)"
        )
    if lacking:
        _log.warning(
            "%d of %d tokens are not in the language model, such as %s",
            *(len(lacking), len(wanted), ", ".join(map(repr, lacking[:3]))),
        )


def _labels_by_nemo(model: ArpaModel, table: TokenTable) -> _Labels:
    impossible = np.zeros(len(table), bool)
    impossible[table.blank] = True
    marks = {model.bos, model.eos, model.unk}
    of_word = []
    for position, word in enumerate(model.words):
        token = ord(word) - NEMO_OFFSET if len(word) == 1 else -1
        if position in marks:
            token = NO_LABEL
        elif not 0 <= token < len(table):
            raise ArpaError(
                f"word {word!r}, expected the character of token + {NEMO_OFFSET}, with "
                f"V={len(table)} tokens; leave nemo_tokens out if words are tokens"
            )
        of_word.append(token)
    return np.array(of_word, np.int32), impossible


def _automaton_of(
    model: ArpaModel,
    of_word: np.ndarray,
    impossible: np.ndarray,
    unk_cost: float | None,
) -> Automaton:
    """Build the automaton; `unk_cost` replaces `<unk>` if given."""
    unk = len(impossible)  # label of `<unk>`, one beyond the table
    if model.unk is not None:
        of_word[model.unk] = unk if unk_cost is None else NO_LABEL
    # A history is a state if it begins a longer n-gram, or has a back-off cost; all
    # others are their longest suffix that is a state.
    histories = build_histories(model, of_word, unk + 1)
    trie, cost, backoff = histories.trie, histories.cost, histories.backoff
    ends, by_depth = histories.is_end, trie.by_depth()
    is_state = histories.prefixes() | ((backoff != 0) & ~ends)
    target, _ = histories.targets(is_state)
    states = by_depth[is_state[by_depth]]  # shorter histories first, from the root
    number = np.zeros(trie.num_nodes, np.int32)
    number[states] = np.arange(len(states))

    # NaN for unlisted final costs, which `_backed_off` fills in.
    final_cost = np.full(len(states), np.nan, np.float32)
    final_cost[number[trie.parent[ends]]] = cost[ends]
    backoff_state = number[target[trie.suffix[states]]]
    backoff_state[0] = -1
    backoff_cost = backoff[states].astype(np.float32)
    # Arcs are n-grams, at the state of their history. The root has an arc for every
    # label, so that backing off terminates; the others have their own, by label.
    ngrams = histories.predicting()
    is_unigram = trie.parent[ngrams] == ROOT
    unigrams, arcs = ngrams[is_unigram], ngrams[~is_unigram]
    source = number[trie.parent[arcs]]
    order = np.lexsort((trie.label[arcs], source))
    arcs, source = arcs[order], source[order]
    row_sizes = np.bincount(source, minlength=len(states))
    row_sizes[0] = unk + 1
    label = trie.label[unigrams]
    root_next, root_cost = np.zeros(unk + 1, np.int32), np.full(unk + 1, np.inf)
    root_cost[unk] = np.inf if unk_cost is None else unk_cost
    root_next[label], root_cost[label] = number[target[unigrams]], cost[unigrams]
    known = impossible.copy()
    known[label[label < unk]] = True
    return Automaton(
        state_arc_splits=np.concatenate([[0], np.cumsum(row_sizes)]),
        arc_label=np.concatenate([np.arange(unk + 1), trie.label[arcs]]),
        arc_next=np.concatenate([root_next, number[target[arcs]]]),
        arc_cost=np.concatenate([root_cost, cost[arcs]]),
        backoff_state=backoff_state,
        backoff_cost=backoff_cost,
        final_cost=_backed_off(final_cost, backoff_state, backoff_cost),
        model_start=number[histories.is_bos],
        model_label_splits=np.array([0, unk]),
        model_default_cost=np.array([np.inf]),
        label_alias=np.where(known, np.arange(unk), unk),
    )


@jit
def _backed_off(final_cost, backoff_state, backoff_cost):
    """Replace NaN by backed-off costs of ending, summed as in `step`."""
    filled = final_cost.copy()
    for state in range(len(final_cost)):
        total, below = np.float32(0), state
        while np.isnan(final_cost[below]):
            total += backoff_cost[below]
            below = backoff_state[below]
        filled[state] = total + final_cost[below]
    return filled
