"""Searches of our decoders, with measured loading of models and graphs.

models = Models(graph="graph.npz")
searches = models.wfst_searches(WfstOptions(), {"beam": [8.0, 13.0]})
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from wfstdec.attention import open_decoder
from wfstdec.attention.options import AttentionOptions
from wfstdec.boost.lists import BoostList, BoostsLike, Numbers
from wfstdec.checks.inputs import UTTERANCES
from wfstdec.compare.comparison import Decode, Outcome, Search, SearchFacts, Setting
from wfstdec.compare.running import fingerprint, resident_mb
from wfstdec.compare.tuning import Grid, GridPart, combinations, split_grid
from wfstdec.errors import OptionError
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.greedy.decoder import GreedyDecoder
from wfstdec.greedy.options import GreedyOptions
from wfstdec.lm.automaton import Unit
from wfstdec.models.speech import SpeechModel
from wfstdec.search.decoder import Decoder
from wfstdec.search.options import OpenVocabulary
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import AUTO
from wfstdec.text.tokens import TokenTable
from wfstdec.transducer.options import TransducerOptions
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

_Item = TypeVar("_Item")

DecoderFactory = Callable[[Any], Decoder]
"""Returns a decoder of one thread by its options."""

# Loaded tables and models replace these arguments.
_LOADED: Mapping[str, Any] = {"blank": None, "unk_cost": None, "threads": 1}


class Loaded(NamedTuple, Generic[_Item]):
    """Loaded object with the cost of loading it; None if unknown."""

    item: _Item
    load_s: float | None = None  # Wall seconds, compilation included
    load_mb: float | None = None  # Growth of the resident set, megabytes


def measure_load(load: Callable[[], _Item]) -> Loaded[_Item]:
    """Load something, and measure time and memory."""
    before, begin = resident_mb(), time.perf_counter()
    item = load()
    load_s = time.perf_counter() - begin
    return Loaded(item, round(load_s, 3), round(resident_mb() - before, 1))


def _trie_factory(**given: Any) -> DecoderFactory:
    """Load the arguments of `TrieDecoder`, except options and threads, once."""
    # Files are read and validated once; decoders of other options share them.
    # Look-ahead depends on options, so it is built later.
    first = TrieDecoder(**given, options=TrieOptions(lookahead="none"))
    parts = {name: getattr(first, name) for name in ("tokens", "lexicon", "lm")}
    loaded = {**given, **parts, "words": first.words or None, **_LOADED}
    return lambda options: TrieDecoder(options=options, **loaded)


def _greedy_factory(**given: Any) -> DecoderFactory:
    first = GreedyDecoder(**given)
    loaded = {**given, "tokens": first.tokens, "lm": first.lm, **_LOADED}
    return lambda options: GreedyDecoder(options=options, **loaded)


def timed_factory(name: str, **how: Any) -> tuple[DecoderFactory, Callable[[], float]]:
    """Return a factory of decoders that run a model, and the model's clock."""
    first = open_decoder(name, threads=1, **how)
    from wfstdec.attention.model import TimedModel

    timed: Any = TimedModel(first.model)
    separator = first.separator
    loaded = {
        "lm": list(first.lms),
        "separator": None if separator is None else first.tokens.names[separator],
        "input": first.input,
        "frame_shift_s": first.frame_shift_s,
    }
    kind: Any = type(first)
    return lambda options: kind(timed, options=options, **loaded), lambda: timed.cpu_s


@dataclass(eq=False)
class DecoderSearch(Search):
    """`Search` of one of our decoders with some settings."""

    name: str
    settings: Sequence[Setting]
    base: Any  # Options that settings change, a dataclass
    make: DecoderFactory  # Returns a decoder of one thread by its options
    facts: SearchFacts = field(default_factory=SearchFacts)
    # Returns the compiler of boosts of a decoder; None keeps them unchanged
    compile: Callable[[Decoder], Callable[[Any], Any]] | None = None
    # Whether settings differ only in search width; else costs are not comparable
    has_widths: bool = True
    # Options to tune: those that change the text
    tunable: tuple[str, ...] = ("lm_scale", "word_insertion")
    clock: Callable[[], float] | None = None

    def decoder(self, setting: Setting) -> Decoder:
        """Return the decoder of a setting."""
        return self.make(replace(self.base, **setting))

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """Compile each list once; see `Search.compile_boosts`."""
        if self.compile is None:
            return boosts
        compile_list = self.compile(self.decoder(self.settings[0]))
        lists = {id(one): one for one in boosts}
        compiled = {key: compile_list(one) for key, one in lists.items()}
        return [compiled[id(one)] for one in boosts]

    def prepare(self, setting: Setting) -> Decode:
        """Return a decoder; see `Search.prepare`."""
        decoder = self.decoder(setting)
        unchecked = [decoder]

        def decode(
            utterances: Sequence[np.ndarray], boosts: Sequence[Any] | None
        ) -> list[Outcome]:
            while unchecked:  # a comparison decodes a few before timing
                pairs = ((str(i), one) for i, one in enumerate(utterances[:UTTERANCES]))
                list(unchecked.pop().checked(pairs))  # which warns
            outcomes = map(Outcome.of, decoder.decode(utterances, boosts=boosts))
            if self.has_widths:
                return list(outcomes)
            return [one._replace(total_cost=None) for one in outcomes]

        return decode

    def lattice_decoder(self, setting: Setting) -> Decoder | None:
        """See `Search.lattice_decoder`; a sum over alignments has no lattice."""
        decoder = self.decoder(setting)
        is_sum = getattr(decoder.options, "merge", None) == "sum"
        return decoder if decoder.records_lattices and not is_sum else None


def _searches(
    name: str,
    loaded: Loaded[DecoderFactory],
    base: Any,
    parts: Sequence[GridPart],
    inputs: Mapping[str, str],
    **more: Any,
) -> list[DecoderSearch]:
    searches = []
    for part in parts:
        changed = replace(base, **part.options)
        for setting in part.settings:
            replace(changed, **setting)  # validates the values before any run
        facts = SearchFacts(asdict(changed), *loaded[1:], inputs)
        full_name = ", ".join(filter(None, (name, part.label)))
        given = full_name, part.settings, changed, loaded.item, facts
        searches.append(DecoderSearch(*given, **more))
    return searches


_log = logging.getLogger("wfstdec.compare")


@dataclass(frozen=True)
class Models:
    """Files or objects of searches, with measured loading.

    Each `*_searches(base, grid)` takes options and values of options by name. It raises
    `OptionError` if a file is missing or a value is out of range. Boost lists are
    credited by words if a search has words, else by tokens. Without a number a phrase
    has the default weight of its unit.

    Attributes:
        graph: A packed graph or its file, for the WFST decoder; None builds one from
            the other files.
        tokens: A token table for the other decoders; a graph includes one.
        blank: Blank by name or index; None recognises it.
        lexicon: Words and their tokens; None decodes tokens.
        lm: An ARPA file, a KenLM binary, or a folder of `NgramLM.save`: over words with
            a lexicon, over tokens without.
        separator: The token between words; `"auto"` as for `TrieDecoder`.
        separator_optional: The separator is optional.
        unk_cost: Nats for words or tokens that an ARPA file lacks.
        open_vocabulary: Costs of OOV words spelled by tokens; not for a `graph`.
        frame_shift_s: Seconds per frame.
        phrase_unit: `"token"` always credits boost lists by tokens.
        phrase_boundary: Token between words for `"token"`; None is the separator.
        sentencepiece_model: Cuts phrases into tokens without a lexicon.
        transducer: A saved net, or a folder of an ONNX export, for features; or a
            `SpeechModel` for frames of its encoder.
        head: A head of a net with several; None for the first.
        transducer_lm: A language model over its tokens.
        attention: An attention decoder with its encoder, as for `load_attention`; or a
            `SpeechModel`.
        attention_lm: A language model over its tokens.
    """

    graph: PathLike | PackedGraph | None = None
    tokens: PathLike | TokenTable | None = None
    blank: int | str | None = None
    lexicon: PathLike | None = None
    lm: PathLike | None = None
    separator: str | None = AUTO
    separator_optional: bool = False
    unk_cost: float | None = None
    open_vocabulary: OpenVocabulary | None = None
    frame_shift_s: float = 0.02
    phrase_unit: Unit | None = None
    phrase_boundary: str | None = None
    sentencepiece_model: PathLike | None = None
    transducer: PathLike | SpeechModel | None = None
    head: str | None = None
    transducer_lm: PathLike | None = None
    attention: PathLike | SpeechModel | None = None
    attention_lm: PathLike | None = None

    @cached_property
    def loaded_graph(self) -> Loaded[PackedGraph]:
        """Return the graph, with time and memory of loading or building it."""
        if isinstance(self.graph, PackedGraph):
            return Loaded(self.graph)
        if self.graph is not None:
            return measure_load(partial(load_graph, self.graph))
        names = "tokens lexicon lm blank separator separator_optional unk_cost "
        names += "open_vocabulary"
        how: Any = {name: getattr(self, name) for name in names.split()}
        return measure_load(lambda: WfstDecoder(**how).graph)

    def wfst_searches(self, base: WfstOptions, grid: Grid) -> list[DecoderSearch]:
        """Return searches of the WFST decoder on the graph."""
        loaded = self.loaded_graph
        how: Any = {"frame_shift_s": self.frame_shift_s, "threads": 1}
        factory = partial(WfstDecoder, loaded.item, **how)
        make: Loaded[DecoderFactory] = Loaded(factory, *loaded[1:])
        inputs = {"graph": loaded.item.fingerprint}
        return self._of_words(_searches("WFST", make, base, split_grid(grid), inputs))

    def trie_searches(self, base: TrieOptions, grid: Grid) -> list[DecoderSearch]:
        """Return searches of the trie decoder, over tokens without a lexicon."""
        if self.tokens is None:
            raise OptionError("the trie decoder without tokens, expected a token table")
        names = "lexicon lm unk_cost separator_optional open_vocabulary"
        factory = self._measured(_trie_factory, names, tokens=self.tokens)
        inputs = _fingerprints(tokens=self.tokens, lexicon=self.lexicon, lm=self.lm)
        if self.open_vocabulary is not None:
            inputs["open_vocabulary"] = repr(self.open_vocabulary)
        searches = _searches("trie", factory, base, split_grid(grid), inputs)
        if self.lexicon is None and self.open_vocabulary is None:
            return self._of_tokens(searches, "token_insertion", self.lm)
        return self._of_words(searches)

    def greedy_searches(self, base: GreedyOptions, grid: Grid) -> list[DecoderSearch]:
        """Return searches of the greedy decoder, with token language models only."""
        lm, names = self.lm, "lm unk_cost"
        # With a lexicon the model is over words, which this search does not have.
        if lm is not None and self.lexicon is not None:
            _log.info("greedy: without the language model, which is over words")
            lm = None
        factory = self._measured(
            _greedy_factory, names if lm else "", tokens=self.any_tokens()
        )
        inputs = _fingerprints(tokens=self.tokens, lm=lm)
        parts = [GridPart("", {}, combinations(grid))]
        how: Any = {"has_widths": False}  # costs of its settings are not comparable
        searches = _searches("greedy", factory, base, parts, inputs, **how)
        return self._of_tokens(searches, "blank_penalty", lm)

    def _measured(
        self, make: Callable[..., DecoderFactory], names: str, **given: Any
    ) -> Loaded[DecoderFactory]:
        """Return a factory from some files and options, with its cost of loading."""
        all_names = f"blank frame_shift_s separator {names}".split()
        parts = {name: getattr(self, name) for name in all_names}
        return measure_load(partial(make, **given, **parts))

    def transducer_searches(
        self, base: TransducerOptions, grid: Grid
    ) -> list[DecoderSearch]:
        """Return searches of the transducer decoder, with its own tokens and LM."""
        files = {"transducer": self.transducer, "lm": self.transducer_lm}
        head = {} if self.head is None else {"head": self.head}
        return self._model_searches(base, grid, files, **head)

    def attention_searches(
        self, base: AttentionOptions, grid: Grid
    ) -> list[DecoderSearch]:
        """Return searches of the attention decoder, with its own tokens and LM."""
        files = {"attention": self.attention, "lm": self.attention_lm}
        return self._model_searches(base, grid, files)

    def _model_searches(
        self, base: Any, grid: Grid, files: dict[str, Any], **more: Any
    ) -> list[DecoderSearch]:
        (name, model), (_, lm) = files.items()
        if model is None:
            raise OptionError(f"the {name} decoder without a model, expected one")
        more |= {"model": model, "lm": lm, "frame_shift_s": self.frame_shift_s}
        more |= {"unk_cost": None if lm is None else self.unk_cost}
        most = getattr(getattr(model, "net", None), "max_symbols", None)
        if most is not None and "max_symbols" not in grid:
            base = replace(base, max_symbols=most)
        loaded = measure_load(partial(timed_factory, name, **more))
        make, clock = loaded.item
        factory, inputs = Loaded(make, *loaded[1:]), _fingerprints(**files)
        parts = split_grid(grid)
        searches = _searches(name, factory, base, parts, inputs, clock=clock)
        return self._of_tokens(searches, "token_insertion", lm)

    def any_tokens(self) -> PathLike | TokenTable:
        """Return the token table, or that of the graph."""
        if self.tokens is not None:
            return self.tokens
        if self.graph is None:
            raise OptionError("neither tokens nor a graph, expected a token table")
        return self.loaded_graph.item.tokens

    def _of_words(self, searches: list[DecoderSearch]) -> list[DecoderSearch]:
        """Return searches with boosts by words, unless by tokens is requested."""
        if self.phrase_unit != "token":
            return searches
        return [replace(one, compile=self._phrases) for one in searches]

    def _of_tokens(
        self, searches: list[DecoderSearch], insertion: str, lm: PathLike | None
    ) -> list[DecoderSearch]:
        """Set the options that `tune` varies, and boosts of tokens."""
        names = (insertion,) if lm is None else ("lm_scale", insertion)
        return [replace(s, tunable=names, compile=self._phrases) for s in searches]

    def _phrases(self, decoder: Decoder) -> Callable[[Numbers | None], BoostsLike]:
        compiler = decoder.phrase_compiler(
            replace(decoder.phrase_options, weights_are_totals=True),
            unit=self.phrase_unit,
            boundary=self.phrase_boundary,
            sentencepiece_model=self.sentencepiece_model,
        )

        def compile_list(boosts: Numbers | None) -> BoostsLike:
            if not boosts:
                return None
            listed = BoostList.of(boosts)
            if listed.pronunciations:
                _log.warning(
                    "boosts credited by tokens are spelt; the pronunciations of %s "
                    "and others in a list are left out",
                    min(listed.pronunciations),
                )
            return compiler.compile(listed)

        return compile_list


def _fingerprints(**given: Any) -> dict[str, str]:
    return {
        name: fingerprint(path)
        for name, path in given.items()
        if isinstance(path, str | os.PathLike)
    }
