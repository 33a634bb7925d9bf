"""Searches of our decoders, and loading what they are made of, measured.

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
"""Makes a decoder of one thread of its options."""

# Tables and models that are loaded already replace these arguments.
_LOADED: Mapping[str, Any] = {"blank": None, "unk_cost": None, "threads": 1}


class Loaded(NamedTuple, Generic[_Item]):
    """An object that a search needs, with the cost of loading it; None if unknown."""

    item: _Item
    load_s: float | None = None  # Seconds on the wall, compiling included
    load_mb: float | None = None  # Growth of the resident set, megabytes


def measure_load(load: Callable[[], _Item]) -> Loaded[_Item]:
    """Load something and measure what that takes."""
    before, begin = resident_mb(), time.perf_counter()
    item = load()
    load_s = time.perf_counter() - begin
    return Loaded(item, round(load_s, 3), round(resident_mb() - before, 1))


def _trie_factory(**given: Any) -> DecoderFactory:
    """Load the arguments of `TrieDecoder`, all but options and threads, once."""
    # Everything is read and checked here, once; decoders of other options share it.
    # Look-ahead depends on options, so that none is made yet.
    first = TrieDecoder(**given, options=TrieOptions(lookahead="none"))
    parts = {name: getattr(first, name) for name in ("tokens", "lexicon", "lm")}
    loaded = {**given, **parts, "words": first.words or None, **_LOADED}
    return lambda options: TrieDecoder(options=options, **loaded)


def _greedy_factory(**given: Any) -> DecoderFactory:
    """Load the arguments of `GreedyDecoder` once, as `_trie_factory` does."""
    first = GreedyDecoder(**given)
    loaded = {**given, "tokens": first.tokens, "lm": first.lm, **_LOADED}
    return lambda options: GreedyDecoder(options=options, **loaded)


def timed_factory(name: str, **how: Any) -> tuple[DecoderFactory, Callable[[], float]]:
    """Make a factory of decoders that run their model, which is timed."""
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
    """Decoder of ours with some settings; a `Search`."""

    name: str
    settings: Sequence[Setting]
    base: Any  # Options that a setting changes, a dataclass
    make: DecoderFactory  # Makes a decoder of one thread of options
    facts: SearchFacts = field(default_factory=SearchFacts)
    # Makes what compiles boosts of a decoder; None takes them as they are
    compile: Callable[[Decoder], Callable[[Any], Any]] | None = None
    # Whether settings differ in search width only; else costs cannot be compared
    has_widths: bool = True
    # The options worth tuning: those that change the text
    tunable: tuple[str, ...] = ("lm_scale", "word_insertion")
    clock: Callable[[], float] | None = None

    def decoder(self, setting: Setting) -> Decoder:
        """Make the decoder of a setting."""
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
        """Make a decoder; see `Search.prepare`."""
        decoder = self.decoder(setting)
        unchecked = [decoder]

        def decode(
            utterances: Sequence[np.ndarray], boosts: Sequence[Any] | None
        ) -> list[Outcome]:
            while unchecked:  # a comparison decodes a few before it times
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
    """A search for each part of a grid."""
    searches = []
    for part in parts:
        changed = replace(base, **part.options)
        for setting in part.settings:
            replace(changed, **setting)  # checks the values before anything runs
        facts = SearchFacts(asdict(changed), *loaded[1:], inputs)
        full_name = ", ".join(filter(None, (name, part.label)))
        given = full_name, part.settings, changed, loaded.item, facts
        searches.append(DecoderSearch(*given, **more))
    return searches


_log = logging.getLogger("wfstdec.compare")


@dataclass(frozen=True)
class Models:
    """Files or objects that searches are made of; what loading them takes is measured.

    Each `*_searches(base, grid)` takes options and values of options by name. It raises
    `OptionError` where a file is missing or a value is out of range.
    Boost lists are credited word by word where a search has words, else token by token.
    Without a number a phrase gets the default weight of its unit.

    Attributes:
        graph: A packed graph or its file, for the WFST decoder; None makes one of the
            other files.
        tokens: A token table, for the other decoders; a graph has its own.
        blank: The blank by name or index; None recognises it.
        lexicon: Words and their tokens; None decodes tokens.
        lm: An ARPA file, a KenLM binary, or a folder of `NgramLM.save`: over words with
            a lexicon, over tokens without.
        separator: The token between words; `"auto"` as for `TrieDecoder`.
        separator_optional: It may be left out.
        unk_cost: Nats for words or tokens that an ARPA file lacks.
        open_vocabulary: Costs of words that the lexicon lacks; not for a `graph`.
        frame_shift_s: Seconds per frame.
        phrase_unit: `"token"` credits boost lists by tokens even where there are words.
        phrase_boundary: The token between words, for that; None is the separator.
        sentencepiece_model: Cuts phrases into tokens where no lexicon does.
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
        """The graph, with the time and memory that loading or making it took."""
        if isinstance(self.graph, PackedGraph):
            return Loaded(self.graph)
        if self.graph is not None:
            return measure_load(partial(load_graph, self.graph))
        names = "tokens lexicon lm blank separator separator_optional unk_cost "
        names += "open_vocabulary"
        how: Any = {name: getattr(self, name) for name in names.split()}
        return measure_load(lambda: WfstDecoder(**how).graph)

    def wfst_searches(self, base: WfstOptions, grid: Grid) -> list[DecoderSearch]:
        """Searches of the WFST decoder on the graph."""
        loaded = self.loaded_graph
        how: Any = {"frame_shift_s": self.frame_shift_s, "threads": 1}
        factory = partial(WfstDecoder, loaded.item, **how)
        make: Loaded[DecoderFactory] = Loaded(factory, *loaded[1:])
        inputs = {"graph": loaded.item.fingerprint}
        return self._of_words(_searches("WFST", make, base, split_grid(grid), inputs))

    def trie_searches(self, base: TrieOptions, grid: Grid) -> list[DecoderSearch]:
        """Searches of the trie decoder, over tokens where there is no lexicon."""
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
        """Searches of the greedy decoder, which takes token language models only."""
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
        how: Any = {"has_widths": False}  # costs of its settings cannot be compared
        searches = _searches("greedy", factory, base, parts, inputs, **how)
        return self._of_tokens(searches, "blank_penalty", lm)

    def _measured(
        self, make: Callable[..., DecoderFactory], names: str, **given: Any
    ) -> Loaded[DecoderFactory]:
        """A factory of some of the files and options, and what loading it took."""
        all_names = f"blank frame_shift_s separator {names}".split()
        parts = {name: getattr(self, name) for name in all_names}
        return measure_load(partial(make, **given, **parts))

    def transducer_searches(
        self, base: TransducerOptions, grid: Grid
    ) -> list[DecoderSearch]:
        """Searches of the transducer decoder, with its own tokens and LM."""
        files = {"transducer": self.transducer, "lm": self.transducer_lm}
        head = {} if self.head is None else {"head": self.head}
        return self._model_searches(base, grid, files, **head)

    def attention_searches(
        self, base: AttentionOptions, grid: Grid
    ) -> list[DecoderSearch]:
        """Searches of the attention decoder, with its own tokens and LM."""
        files = {"attention": self.attention, "lm": self.attention_lm}
        return self._model_searches(base, grid, files)

    def _model_searches(
        self, base: Any, grid: Grid, files: dict[str, Any], **more: Any
    ) -> list[DecoderSearch]:
        """A decoder that runs its model itself; the first file names the search."""
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
        """The token table, or else that of the graph."""
        if self.tokens is not None:
            return self.tokens
        if self.graph is None:
            raise OptionError("neither tokens nor a graph, expected a token table")
        return self.loaded_graph.item.tokens

    def _of_words(self, searches: list[DecoderSearch]) -> list[DecoderSearch]:
        """Searches whose boosts are credited by words, unless by tokens is asked."""
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
        """Return a function that compiles lists as phrases of tokens."""
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
    """Those of files; a model of audio has made the frames, which have their own."""
    return {
        name: fingerprint(path)
        for name, path in given.items()
        if isinstance(path, str | os.PathLike)
    }
