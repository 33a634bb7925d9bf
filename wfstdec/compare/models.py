"""Models of searches, named once: a graph, tokens, a lexicon, a language model.

models = Models(graph="graph.npz", tokens="tokens.txt", lexicon="lexicon.txt",
                lm="lm.arpa.gz", separator="<wb>")
searches = models.wfst_searches(WfstOptions(lm_scale=0.8), {"beam": [8, 13]})
searches += models.trie_searches(TrieOptions(lm_scale=0.8), {"beam_size": [16, 32]})
searches += models.peer_searches(lm_scale=0.8)
comparison = run(read_speech("dev.npz", "dev.txt"), searches)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from wfstdec.attention.options import AttentionOptions
from wfstdec.boost.compile import PhraseCompiler
from wfstdec.boost.lists import BoostList, BoostsLike, Numbers
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.compare.grids import Grid
from wfstdec.compare.loading import (
    Loaded,
    greedy_factory,
    measure_load,
    timed_factory,
    trie_factory,
)
from wfstdec.compare.machine import fingerprint
from wfstdec.compare.peers import available_peers
from wfstdec.compare.points import PeerInputs
from wfstdec.compare.searches import (
    DecoderSearch,
    PeerSearch,
    greedy_searches,
    grid_searches,
    trie_searches,
    wfst_searches,
)
from wfstdec.errors import OptionError
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.greedy.options import GreedyOptions
from wfstdec.lm.automaton import Unit
from wfstdec.search.decoder import Decoder
from wfstdec.search.options import OpenVocabulary
from wfstdec.text.files import PathLike
from wfstdec.text.loading import AUTO, load_lexicon, load_tokens, separator_of
from wfstdec.text.symbols import TokenTable
from wfstdec.transducer.options import TransducerOptions
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.options import WfstOptions

_log = logging.getLogger("wfstdec.compare")


@dataclass(frozen=True)
class Models:
    """Files that searches are made of; each search loads its own, and measures that.

    Boost lists are credited word by word where a search has words, and else token by
    token, a phrase being worth its nats either way. Without a number it gets as much as
    is safe by words, and by tokens what `PhraseOptions` says (`decode --phrases`).

    Attributes:
        graph: What `PackedGraph.save` wrote, for the WFST decoder.
        tokens: A token table, for the other decoders; a graph has its own.
        blank: The blank by name or index; None to recognise it.
        lexicon: Words and their tokens; None decodes tokens.
        lm: An ARPA file, a KenLM binary, or a folder of `NgramLM.save`: over words with
            a lexicon, over tokens without. Peers take the former alone.
        separator: The token between words; `"auto"` as for `TrieDecoder`.
        separator_optional: It may be left out.
        unk_cost: Nats for words or tokens that an ARPA file lacks.
        open_vocabulary: What words cost that the lexicon lacks, for the trie decoder;
            a graph has its own.
        frame_shift_s: Seconds per frame.
        phrase_unit: `"token"` credits boost lists by tokens even where there are words.
        phrase_boundary: The token between words, for that; None is the separator.
        sentencepiece_model: What cuts phrases into tokens where no lexicon does.
        transducer: A saved net, or a folder of an ONNX export.
        head: Of a net with several; None for the first.
        transducer_lm: A language model over its tokens.
        attention: An attention decoder with its encoder, as of `load_attention`.
        attention_lm: A language model over its tokens.
    """

    graph: PathLike | None = None
    tokens: PathLike | None = None
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
    transducer: PathLike | None = None
    head: str | None = None
    transducer_lm: PathLike | None = None
    attention: PathLike | None = None
    attention_lm: PathLike | None = None

    @cached_property
    def loaded_graph(self) -> Loaded[PackedGraph]:
        """The graph, and what loading it took.

        Raises:
            OptionError: There is none.
            GraphError, FormatError: As `load_graph`.
        """
        path = self.graph
        if path is None:
            raise OptionError("the WFST decoder without a graph, expected one")
        return measure_load(lambda: load_graph(path))

    def wfst_searches(self, base: WfstOptions, grid: Grid) -> list[DecoderSearch]:
        """The WFST decoder on the graph.

        Args:
            base: Options that the grid changes.
            grid: Values of options by name.

        Raises:
            OptionError: There is no graph, or a value of the grid is out of range.
            GraphError, FormatError: As `load_graph`.
        """
        searches = wfst_searches(
            self.loaded_graph, base, grid, frame_shift_s=self.frame_shift_s
        )
        return self._taking_lists(searches, has_words=True)

    def trie_searches(self, base: TrieOptions, grid: Grid) -> list[DecoderSearch]:
        """The trie decoder, on bare tokens where there is no lexicon.

        Args:
            base: Options that the grid changes.
            grid: Values of options by name.

        Raises:
            OptionError: There are no tokens, or a value of the grid is out of range.
            InputError: As `TrieDecoder`'s.
        """
        if self.tokens is None:
            raise OptionError("the trie decoder without tokens, expected a token table")
        names = "tokens lexicon lm blank unk_cost frame_shift_s separator"
        names += " separator_optional open_vocabulary"
        parts = {name: getattr(self, name) for name in names.split()}
        factory = measure_load(lambda: trie_factory(**parts))
        inputs = _fingerprints(tokens=self.tokens, lexicon=self.lexicon, lm=self.lm)
        if self.open_vocabulary is not None:
            inputs["open_vocabulary"] = repr(self.open_vocabulary)
        searches = trie_searches(factory, base, grid, inputs=inputs)
        has_words = self.lexicon is not None or self.open_vocabulary is not None
        if not has_words:
            searches = _tuned_by(searches, "token_insertion", has_lm=bool(self.lm))
        return self._taking_lists(searches, has_words=has_words)

    def greedy_searches(self, base: GreedyOptions, grid: Grid) -> list[DecoderSearch]:
        """The greedy decoder; beside a lexicon, the language model is not for it.

        Args:
            base: Options that the grid changes.
            grid: Values of options by name.

        Raises:
            OptionError: There are no tokens, or a value of the grid is out of range.
            InputError: As `GreedyDecoder`'s.
        """
        tokens, lm = self._any_tokens(), self.lm
        # Beside a lexicon the model is over words, of which this search has none.
        if lm is not None and self.lexicon is not None:
            _log.info("greedy: without the language model, which is over words")
            lm = None
        factory = measure_load(
            lambda: greedy_factory(
                tokens=tokens,
                lm=lm,
                frame_shift_s=self.frame_shift_s,
                blank=self.blank,
                separator=self.separator,
                unk_cost=None if lm is None else self.unk_cost,
            )
        )
        inputs = _fingerprints(tokens=self.tokens, lm=lm)
        searches = greedy_searches(factory, base, grid, inputs=inputs)
        searches = _tuned_by(searches, "blank_penalty", has_lm=lm is not None)
        return self._taking_lists(searches, has_words=False)

    def transducer_searches(
        self, base: TransducerOptions, grid: Grid
    ) -> list[DecoderSearch]:
        """The transducer decoder; its tokens, and language model, are its own.

        Args:
            base: Options that the grid changes.
            grid: Values of options by name.

        Raises:
            OptionError: There is no transducer, or a value of the grid is out of range.
            BackendError: torch is not installed.
            InputError: As `TransducerDecoder`'s.
        """
        files = {"transducer": self.transducer, "lm": self.transducer_lm}
        return self._model_searches(base, grid, files, head=self.head)

    def attention_searches(
        self, base: AttentionOptions, grid: Grid
    ) -> list[DecoderSearch]:
        """The attention decoder; its tokens, and language model, are its own.

        Args:
            base: Options that the grid changes.
            grid: Values of options by name.

        Raises:
            OptionError: There is no model, or a value of the grid is out of range.
            BackendError: torch is not installed.
            InputError: As `AttentionDecoder`'s.
        """
        files = {"attention": self.attention, "lm": self.attention_lm}
        return self._model_searches(base, grid, files)

    def _model_searches(
        self,
        base: TransducerOptions | AttentionOptions,
        grid: Grid,
        files: dict[str, PathLike | None],
        **more: Any,
    ) -> list[DecoderSearch]:
        """A decoder that runs its model itself; the first file names the search."""
        (name, model), (_, lm) = files.items()
        if model is None:
            raise OptionError(f"the {name} decoder without a model, expected one")
        more |= {"model": model, "lm": lm, "frame_shift_s": self.frame_shift_s}
        more |= {"unk_cost": None if lm is None else self.unk_cost}
        loaded = measure_load(lambda: timed_factory(name, **more))
        make, clock = loaded.item
        factory = Loaded(make, loaded.load_s, loaded.load_mb)
        searches = grid_searches(name, factory, base, grid, _fingerprints(**files))
        searches = [replace(search, clock=clock) for search in searches]
        searches = _tuned_by(searches, "token_insertion", has_lm=lm is not None)
        return self._taking_lists(searches, has_words=False)

    def peer_searches(
        self, *, lm_scale: float = 1.0, word_insertion: float = 0.0
    ) -> list[PeerSearch]:
        """The peers that are installed and can be made of this.

        Args:
            lm_scale: Multiplies the costs of the language model.
            word_insertion: Nats for every word, above 0 penalises.

        Raises:
            OptionError: There are neither tokens nor a graph.
            InputError: As `read_tokens`, `read_lexicon` and `load_graph`.
        """
        tokens = load_tokens(self._any_tokens(), self.blank)
        lexicon, between = None, separator_of(self.separator, tokens)
        if self.lexicon is not None:
            lexicon = load_lexicon(self.lexicon, tokens, between)
        is_arpa = self.lm is not None and not Path(self.lm).is_dir()
        inputs = PeerInputs(
            tokens=tokens,
            graph=None if self.graph is None else self.loaded_graph.item,
            lexicon=lexicon,
            arpa=os.fspath(self.lm) if self.lm is not None and is_arpa else None,
            separator=None if between is None else tokens.names[between],
            lm_scale=lm_scale,
            word_insertion=word_insertion,
        )
        return [PeerSearch(peer) for peer in available_peers(inputs)]

    def _any_tokens(self) -> PathLike | TokenTable:
        """The token table, or else that of the graph."""
        if self.tokens is not None:
            return self.tokens
        if self.graph is None:
            raise OptionError("neither tokens nor a graph, expected a token table")
        return self.loaded_graph.item.tokens

    def _taking_lists(
        self, searches: list[DecoderSearch], *, has_words: bool
    ) -> list[DecoderSearch]:
        """Searches that take boost lists in the unit that was asked for."""
        if has_words and self.phrase_unit != "token":
            return searches  # they take lists as they are
        return [replace(search, compile=self._compile_phrases()) for search in searches]

    def _compile_phrases(self) -> Callable[[Decoder, Any], BoostsLike]:
        """Makes phrases of tokens of a list, by one compiler for each search."""
        compilers: list[PhraseCompiler] = []

        def compile_list(decoder: Decoder, boosts: Numbers | None) -> BoostsLike:
            if not boosts:
                return None
            listed = BoostList.of(boosts)
            if listed.pronunciations:
                text = "boosts credited by tokens are spelt; the pronunciations of %s "
                text += "and others in a list are left out"
                _log.warning(text, min(listed.pronunciations))
            if not compilers:
                compiler = decoder.phrase_compiler(
                    PhraseOptions(weights_are_totals=True),
                    unit=self.phrase_unit,
                    boundary=self.phrase_boundary,
                    sentencepiece_model=self.sentencepiece_model,
                )
                compilers.append(compiler)
            return compilers[0].compile(listed)

        return compile_list


def _tuned_by(
    searches: list[DecoderSearch], insertion: str, *, has_lm: bool
) -> list[DecoderSearch]:
    """Mark the options of searches that can change what they find."""
    names = ("lm_scale", insertion) if has_lm else (insertion,)
    return [replace(search, tunable=names) for search in searches]


def _fingerprints(**paths: PathLike | None) -> dict[str, str]:
    return {name: fingerprint(path) for name, path in paths.items() if path}
