"""Build of a search graph T o min(det(L o G)), with logs of its stages.

det(L o G) is built from tries (`fst/history_tries.py`).
"""

import contextlib
import gc
import logging
import math
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from wfstdec.errors import LexiconError, OptionError
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.engine import ENGINES, KALDIFST
from wfstdec.fst.grammar import (
    WordAcceptor,
    build_grammar,
    build_user_grammar,
    read_grammar,
)
from wfstdec.fst.history_tries import build_history_tries
from wfstdec.fst.lexicon_fst import Fillers, mark_lexicon
from wfstdec.fst.operations import minimize as minimize_fst
from wfstdec.fst.product import PRODUCTS, product_of_lg
from wfstdec.fst.topology import (
    add_open_words,
    check_topology,
    compose_topology,
    take_exits,
)
from wfstdec.graph.arcs import FstArrays, GraphInfo
from wfstdec.graph.packed import PackedGraph, pack_product
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import (
    AUTO,
    Lexicon,
    LexiconLike,
    TokensLike,
    load_lexicon,
    load_tokens,
    sayable,
    separator_of,
    token_named,
    word_ids,
    word_table,
)
from wfstdec.text.vocabulary import (
    OPEN_WORD,
    UNK,
    Pronunciations,
    Vocabulary,
    open_spelling,
)

_log = logging.getLogger("wfstdec.build")
_Made = TypeVar("_Made", FstArrays, PackedGraph, None)


class Stages:
    """Logger of stages, with a progress bar."""

    def __init__(self, bar: tqdm | None) -> None:
        self._bar, self._began = bar, time.perf_counter()

    def made(self, stage: str, graph: _Made) -> _Made:
        """Log a stage and the size of its result; start the clock of the next."""
        seconds, memory = time.perf_counter() - self._began, peak_memory_gb()
        states = None if graph is None else graph.num_states
        arcs = None if graph is None else graph.num_arcs
        size = "" if graph is None else f"{states} states, {arcs} arcs, "
        figures = {"stage": stage, "states": states, "arcs": arcs, "seconds": seconds}
        message = f"{stage}: {size}{seconds:.2f} s, peak memory {memory:.2f} GB"
        _log.info(message, extra={**figures, "peak_memory_gb": memory})
        if self._bar is not None:
            self._bar.set_postfix_str(stage)
            self._bar.update()
        self._began = time.perf_counter()
        return graph


def peak_memory_gb() -> float:
    """Return the peak memory of the process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9


_NUM_STAGES = 6


class OpenCosts(Protocol):
    """Costs of open words, nats: an `OpenVocabulary`."""

    @property
    def word_cost(self) -> float:
        """Cost of each word, in addition to that of `<unk>`."""

    @property
    def token_cost(self) -> float:
        """Cost of each token."""


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector, which would traverse all entries repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def build_graph(
    *,
    tokens: TokensLike,
    lexicon: LexiconLike,
    lm: PathLike | ArpaModel | None = None,
    grammar: Any = None,
    topology: str = "normal",
    separator: str | None = AUTO,
    separator_optional: bool = False,
    silence: str | None = None,
    silence_prob: float = 0.5,
    blank: int | str | None = None,
    unk_cost: float | None = None,
    oov_exits: bool = True,
    open_vocabulary: OpenCosts | None = None,
    engine: str = KALDIFST,
    minimize: bool = True,
    progress: bool = False,
) -> PackedGraph:
    """Build a search graph from tokens, a lexicon, and a language model or grammar.

    Args:
        tokens: The V output units of the acoustic model: a file, names in order,
            `{name: token}`, a tokenizer or a table; see `token_table`.
        lexicon: A file or object: the pronunciations or spellings of words.
        lm: Language model: an ARPA file, a KenLM binary, or the result of `read_arpa`.
        grammar: Instead of `lm`: an OpenFst or AT&T file of an acceptor over words,
            or a pynini `Fst` with a symbol table of words, or a `WordAcceptor`.
        topology: One of `topology.TOPOLOGIES`.
        separator: The token between words: `s* (w s+)* [w]`. `"auto"` takes `|` for
            tokens of a Hugging Face model, otherwise none; None is none.
        separator_optional: The separator may be missing: `s* (w s*)*`.
        silence: Optional token between words, not with a separator.
        silence_prob: Probability of the silence in each position.
        blank: The blank by name or index; None to recognise it.
        unk_cost: Cost in nats of lexicon words that the model lacks; None drops them.
        oov_exits: Allow OOV words in searches, at the cost of `<unk>` in `lm`, else
            `unk_cost`. Without either, or with a `grammar`, no word can be added.
        open_vocabulary: Costs of words spelled by tokens, an `OpenVocabulary`: any word
            may occur in place of `<unk>`, at the cost of an OOV word plus these.
        engine: The library that determinizes a `grammar`: `"kaldifst"` or `"pynini"`.
        minimize: Merge equal states of LG; equal costs may differ by 1e-6.
        progress: Show a bar on the terminal.

    Returns:
        The graph; word ids follow the order of the lexicon.

    Raises:
        InputError: One of its subclasses, for an invalid file or option.
        BackendError: The engine is not installed.
    """
    check_topology(topology)
    if engine not in ENGINES:
        expected = " or ".join(map(repr, ENGINES))
        raise OptionError(f"engine={engine!r}, expected {expected}")
    _check_unk_cost(unk_cost, grammar)
    num_stages = _NUM_STAGES - (not minimize)
    # Even a hidden bar would start a thread; None hides it without a terminal.
    shown: Any = contextlib.nullcontext()
    if progress:
        shown = tqdm(total=num_stages, desc="build", unit="stage", disable=None)
    with _uncollected(), shown as bar:
        stages = Stages(bar)
        table = load_tokens(tokens, blank)
        between = separator_of(separator, table, lexicon=lexicon, silence=silence)
        fillers = Fillers(
            separator=between,
            separator_optional=separator_optional,
            silence=token_named(silence, table, "silence"),
            silence_prob=silence_prob,
        )
        entries = load_lexicon(lexicon, table, between)
        model = _language_model(lm, grammar)
        stages.made("read", None)
        marked = mark_lexicon(_usable(entries, model, unk_cost), fillers, table)
        oov_cost = getattr(model, "class_cost", None)
        if isinstance(model, ArpaModel) and (oov_exits or open_vocabulary):
            oov_cost = _class_cost(model, unk_cost)
        _check_open_words(open_vocabulary, oov_cost, marked.lexicon)
        words, has_exits = word_table(marked.lexicon), oov_cost is not None
        labels = LabelSpace(table, words, marked.num_disambig, has_exits)
        if isinstance(model, ArpaModel):
            g = build_grammar(model, labels, unk_cost, oov_cost)
        else:
            g = build_user_grammar(model, labels, engine)
        stages.made("G", g)
        lg = stages.made("det(L o G)", build_history_tries(marked, labels, g))
        if minimize:
            lg = stages.made("min(det(L o G))", minimize_fst(lg))
        word_cost = _word_costs(model, labels.words, unk_cost)
        vocabulary = Vocabulary(
            tokens=table,
            words=labels.words,
            entries=Pronunciations.of_lexicon(marked.lexicon, word_ids(labels.words)),
            separators=fillers.tokens,
            separated=fillers.ends_words,
        )
        if open_vocabulary is not None:
            spelling = open_spelling(table, between, marked.lexicon)
            kind = spelling.kind if isinstance(model, ArpaModel) else UNK
            spent = open_vocabulary.token_cost, open_vocabulary.word_cost
            vocabulary = vocabulary.with_open_word(kind, *map(float, spent))
            word_cost = np.append(word_cost, [np.inf] * (len(word_cost) > 0))
        info = GraphInfo(
            topology,
            marks_repeats=True,
            word_cost=word_cost.astype(np.float32),
            silence_prob=None if fillers.silence is None else float(silence_prob),
        )
        if topology in PRODUCTS and open_vocabulary is None:
            product, final_cost, exits = product_of_lg(
                *(topology, lg, labels, oov_cost or 0.0)
            )
            stages.made("T o LG", None)
            kept = exits if oov_exits else None
            graph = pack_product(product, final_cost, vocabulary, info, kept)
            return stages.made("pack", graph)
        tlg, exits = compose_topology(topology, lg, labels), None
        stages.made("T o LG", tlg)
        if oov_cost is not None:
            tlg, exits = take_exits(tlg, labels, oov_cost)
        if open_vocabulary is not None:
            tlg = add_open_words(tlg, labels, exits, vocabulary, topology=topology)
        ilabel, repeat = labels.split_repeats(tlg.ilabel)
        tlg, kept = replace(tlg, ilabel=ilabel), exits if oov_exits else None
        graph = PackedGraph.pack(tlg, repeat, vocabulary, info, kept)
        return stages.made("pack", graph)


def _class_cost(model: ArpaModel, unk_cost: float | None) -> float | None:
    """Return the cost of an OOV word, nats: of `<unk>`, else `unk_cost`, or None."""
    if model.unk is None:
        return unk_cost
    cost = float(model.ngrams[0].cost[model.unk])
    return cost if math.isfinite(cost) else unk_cost


def _check_unk_cost(unk_cost: float | None, grammar: Any) -> None:
    if unk_cost is not None and grammar is not None:
        raise OptionError(
            "unk_cost with a grammar of your own, expected it with lm: add the words "
            "to the grammar"
        )
    if unk_cost is not None and not math.isfinite(unk_cost):
        raise OptionError(f"unk_cost {unk_cost!r}, expected a finite number of nats")


def _check_open_words(
    costs: OpenCosts | None, oov_cost: float | None, lexicon: Lexicon
) -> None:
    if costs is None:
        return
    if oov_cost is None:
        raise OptionError(
            "open_vocabulary without a cost of <unk>, expected an ARPA model that has "
            "it, or unk_cost"
        )
    if OPEN_WORD in lexicon.words:
        raise LexiconError(
            f"the lexicon has the word {OPEN_WORD!r}, expected it free for open words"
        )


def _language_model(
    lm: PathLike | ArpaModel | None, grammar: Any
) -> ArpaModel | WordAcceptor:
    if (lm is None) == (grammar is None):
        given = "neither lm nor grammar is" if lm is None else "both lm and grammar are"
        raise OptionError(f"{given} given, expected one of them")
    if lm is None:
        return read_grammar(grammar)
    return lm if isinstance(lm, ArpaModel) else read_arpa(lm)


def _usable(
    lexicon: Lexicon, model: ArpaModel | WordAcceptor, unk_cost: float | None
) -> Lexicon:
    if isinstance(model, WordAcceptor):
        return lexicon.restrict(frozenset(model.words[1:]))[0]
    return sayable(lexicon, model.index, unk_cost)


def _word_costs(
    model: ArpaModel | WordAcceptor, words: Sequence[str], unk_cost: float | None
) -> np.ndarray:
    """Return unigram costs, `GraphInfo.word_cost`; none for a user's grammar."""
    if isinstance(model, WordAcceptor):
        return np.zeros(0, np.float32)
    # The last one is that of unknown words.
    unknown = np.float32(np.inf if unk_cost is None else unk_cost)
    costs = np.append(model.ngrams[0].cost, unknown)
    found = costs[[model.index.get(word, -1) for word in words]]
    found[0] = np.inf
    return found
