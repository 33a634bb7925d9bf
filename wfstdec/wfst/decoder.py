"""The WFST decoder: a graph, options, and a backend.

    decoder = WfstDecoder(graph, WfstOptions(beam=13.0))
    decoder = WfstDecoder(tokens="tokens.txt", lexicon="lexicon.txt", lm="lm.arpa.gz")
    hyps = decoder.decode(logprobs)

`decoder.sessions()` decodes audio as it arrives.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from typing import Any, Self

import numpy as np

from wfstdec.boost.automatic import DefaultBonuses
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.g2p import G2pLike, Pronouncer
from wfstdec.checks.inputs import OutputTokens
from wfstdec.errors import BoostError, OptionError, check_listed
from wfstdec.fst.grammar import phrase_grammar
from wfstdec.fst.tlg import build_graph
from wfstdec.graph.arcs import LABEL_MASK, TOPOLOGIES
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.nbest import nbest_paths
from wfstdec.search.decoder import ChoosingDecoder, Decoder
from wfstdec.search.options import OpenVocabulary
from wfstdec.search.paths.hypotheses import GraphCosts, Reader
from wfstdec.search.paths.lattice import NbestList, hypotheses_of
from wfstdec.search.paths.tokens import Path
from wfstdec.search.paths.words import aligner_of
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.display import few
from wfstdec.text.lexicon import Lexicon, LexiconLike, TokensLike
from wfstdec.text.tokens import ilabel_of
from wfstdec.text.vocabulary import UNK, Vocabulary
from wfstdec.wfst.lattice_pack import RecordedLattice, lattice_of
from wfstdec.wfst.options import BACKENDS, WfstOptions


class WfstDecoder(ChoosingDecoder[np.ndarray, Path | RecordedLattice]):
    """Token-passing beam search on a decoding graph.

    The result for an utterance depends only on the graph, its log-probs, the options
    and its boosts. It does not depend on batch, padding, chunks, threads or backend.

    Args:
        graph: From `build_graph`, `load_graph` or a conversion; or its file. None
            composes one from `tokens`, `lexicon` and `lm`, without minimization.
        options: Search options.
        backend: `"cpu"`, `"cuda"`, or `"auto"`: the choice of `choose_backend` for each
            batch, and the CPU for sessions and n-best.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Number of threads; `None` uses one per processor.
        g2p: Pronunciations for words of boost lists that are in neither the graph nor
            the list: a `G2p` or its source, such as a function of the word, a lexicon
            file or `"hama"`. `None` uses the spelling, if the tokens are letters.
        exact_boosts: Take words of boost lists exactly as written; otherwise they also
            match a known word regardless of case, Unicode form and punctuation.
        tokens, lexicon, lm: Without a graph: as in `build_graph`.
        **building: Its other arguments, such as `separator` and `unk_cost`.

    Attributes:
        graph: The graph; `graph.save` writes it.
        last_choice: The choice of `"auto"` for the last batch, and its reason; or None.

    Raises:
        BackendError: The backend is unknown or not installed.
        OptionError: `frame_shift_s`, `threads` or `g2p` is out of range.
        OptionError: A graph together with its parts, or only some of the parts.
        InputError: As in `load_graph` or `build_graph`.
    """

    options: WfstOptions
    _nbest_from = "lattice"
    _backends = BACKENDS

    def __init__(
        self,
        graph: PackedGraph | str | os.PathLike[str] | None = None,
        options: WfstOptions | None = None,
        backend: str = "auto",
        *,
        tokens: TokensLike | None = None,
        lexicon: LexiconLike | None = None,
        lm: str | os.PathLike[str] | ArpaModel | None = None,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
        g2p: G2pLike | None = None,
        exact_boosts: bool = False,
        **building: Any,
    ) -> None:
        parts: Any = {"tokens": tokens, "lexicon": lexicon, "lm": lm}
        given = [name for name, part in parts.items() if part is not None]
        if graph is None:
            if tokens is None or lexicon is None:
                found = " and ".join(given) or "nothing"
                expected = "expected a graph, or tokens, lexicon and lm"
                raise OptionError(f"{found} given, {expected}")
            graph = build_graph(**parts, **{"minimize": False} | building)
        elif given or building:
            found = ", ".join([*given, *building])
            raise OptionError(f"a graph and {found} given, expected the graph alone")
        if isinstance(graph, str | os.PathLike):
            graph = load_graph(graph)
        self.graph, self.vocabulary = graph, graph.vocabulary
        super().__init__(
            options or WfstOptions(),
            backend,
            graph,
            BoostCompiler(
                graph.words,
                graph.word_ids,
                len(graph.tokens),
                partial(_default_bonuses, graph),
                _pronouncer(graph, g2p),
                exact=exact_boosts,
            ),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )

    @classmethod
    def of_phrases(
        cls, decoder: Decoder, phrases: Sequence[str], *, unk_cost: float = 2.0
    ) -> Self:
        """Return a decoder that outputs only some phrases, for another's models.

            commands = ["turn left", "turn right", "stop", "[unk]"]
            strict = WfstDecoder.of_phrases(decoder, commands)

        A text is any sequence of phrases, possibly empty, all equally likely. The
        options are the decoder's, with `lm_scale=1`, `word_insertion=0` and a beam of
        at least 20.

        Args:
            decoder: A `WfstDecoder`, or a `TrieDecoder` with a lexicon; its `g2p` gives
                missing pronunciations. Words match as in boosts.
            phrases: At least one; words separated by spaces. `"[unk]"` is any other
                speech; a run of it is one word.
            unk_cost: Nats for each token of `"[unk]"` (docs/evidence/boosting.md).

        Raises:
            OptionError: No phrase, words without pronunciation, an invalid `unk_cost`.
        """
        check_listed("phrases", phrases)
        texts = {" ".join(phrase.split()): None for phrase in phrases}
        unk = OpenVocabulary(0.0, unk_cost) if UNK in texts else None
        texts.pop(UNK, None)
        if not all(texts) or not texts:
            raise OptionError(f"phrases={phrases!r}, expected at least one word each")
        texts = decoder._boosts.matcher.match(texts)[0]
        graph = _phrase_graph(decoder, [tuple(text.split()) for text in texts], unk)
        names = {one.name for one in fields(WfstOptions)}
        known = {n: x for n, x in vars(decoder.options).items() if n in names}
        known |= {"lm_scale": 1.0, "word_insertion": 0.0}
        options = WfstOptions(**known | {"beam": max(_PHRASE_BEAM, known["beam"])})
        shift, threads = decoder.frame_shift_s, decoder.threads
        return cls(graph, options, frame_shift_s=shift, threads=threads)

    def _output_tokens(self) -> OutputTokens:
        """Return the tokens in the output: without a lexicon, those of arcs."""
        outputs = super()._output_tokens()
        if outputs.words is not None or self.vocabulary.open_word is not None:
            return outputs
        ilabels = self.graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
        counts = np.bincount(ilabels)[ilabel_of(0) :]  # by token
        return replace(outputs, words=frozenset(np.flatnonzero(counts).tolist()))

    def _repr_of_model(self) -> str:
        return repr(self.graph)

    def _models(self) -> tuple[str, ...]:
        return (self.graph.fingerprint,)

    def _reader(self, boosts: CompiledBoosts) -> WfstReader:
        vocabulary = self.vocabulary.with_oov(boosts.oov)
        return WfstReader(
            self.graph, self.options, vocabulary, self.frame_shift_s, boosts
        )

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        for i, one in enumerate(boosts):
            of_tokens = one.phrases is not None and one.phrases.unit == "token"
            if of_tokens and not self.graph.info.marks_repeats:
                raise BoostError(
                    "phrases of tokens, but the graph does not mark repeating arcs, "
                    "expected a graph of `wfstdec build`; or compile the phrases "
                    "for words",
                    i,
                )


class WfstReader(Reader[Path | RecordedLattice]):
    """Converts search results to hypotheses and lattices."""

    def __init__(
        self,
        graph: PackedGraph,
        options: WfstOptions,
        vocabulary: Vocabulary,
        shift: float,
        boosts: CompiledBoosts,
    ) -> None:
        cutter, account = aligner_of(vocabulary), GraphCosts(options)
        super().__init__(cutter, account, graph.tokens.names, shift, boosts)
        self._made = graph, options, vocabulary, shift

    def best(self, found: Path | RecordedLattice) -> Path:
        """Return the best path."""
        if not isinstance(found, RecordedLattice):
            return found
        assert found.best is not None
        return found.best

    def nbest(self, found: RecordedLattice, num: int | None) -> NbestList:
        """Read the best texts of the lattice."""
        assert num is not None
        lattice = self.lattice(found)
        paths = nbest_paths(lattice, int(num))
        # The boosts apply to the whole utterance.
        credited = None if lattice.first_frame else self.boosts
        return hypotheses_of(lattice, paths, credited, self)

    def lattice(self, found: RecordedLattice) -> Lattice:
        """Read the lattice."""
        return lattice_of(*self._made, found)

    def segments(self, settled: Sequence[RecordedLattice]) -> list[Lattice]:
        """Read the lattices of segments."""
        return list(map(self.lattice, settled))


_PHRASE_BEAM, _MOST_PAIRS = 20.0, 128
"""Nats; largest V for which `[unk]` is in the topology `normal`, with 2 V^2 arcs."""


def _phrase_graph(
    decoder: Decoder, phrases: Sequence[tuple[str, ...]], unk: OpenVocabulary | None
) -> PackedGraph:
    """Build the graph of phrases, and of other speech at the costs `unk`."""
    vocabulary, info = decoder.vocabulary, getattr(decoder, "graph", None)
    lexicon = _pronounced(decoder, sorted(set(chain.from_iterable(phrases))))
    names = [vocabulary.tokens.names[token] for token in vocabulary.separators]
    between: dict[str, Any] = {"separator": names[0] if names else None}
    between["separator_optional"] = vocabulary.separator_optional
    if info is not None and (probability := info.info.silence_prob) is not None:
        between = {"separator": None, "silence": names[0], "silence_prob": probability}
    topology = "normal" if info is None else info.info.topology
    is_large = unk is not None and len(vocabulary.tokens) > _MOST_PAIRS
    if topology not in TOPOLOGIES or is_large and topology == "normal":
        topology = "compact"
    return build_graph(
        tokens=vocabulary.tokens,
        lexicon=lexicon,
        grammar=phrase_grammar(phrases, unk is not None),
        topology=topology,
        open_vocabulary=unk,
        oov_exits=False,
        minimize=False,
        **between,
    )


def _pronounced(decoder: Decoder, words: Sequence[str]) -> Lexicon:
    prons, pronouncer = decoder.vocabulary.pronunciations, decoder._boosts.pronouncer
    ids = {decoder._boosts.word_ids.get(word, -1): word for word in words}
    entries: list[tuple[str, tuple[int, ...], float]] = []
    for row in np.flatnonzero(np.isin(prons.word, [*ids])):
        tokens = prons.tokens[slice(*prons.splits[row : row + 2])].tolist()
        entries.append((ids[prons.word[row]], tuple(tokens), float(prons.cost[row])))
    lacking = sorted({*words} - {word for word, _, _ in entries})
    if lacking and not isinstance(pronouncer, str):
        found = pronouncer.say(lacking).pronunciations
        entries += [(w, tuple(one), 0.0) for w, ways in found.items() for one in ways]
        lacking = sorted({*lacking} - found.keys())
    if lacking:
        raise OptionError(
            f"{type(decoder).__name__} without pronunciations of {few(lacking, 5)}, "
            "expected a WfstDecoder or TrieDecoder whose lexicon or g2p has them"
        )
    listed, spoken, costs = zip(*entries, strict=True)
    return Lexicon(listed, spoken, np.array(costs, np.float32))


def _pronouncer(graph: PackedGraph, g2p: G2pLike | None) -> Pronouncer | str:
    """Return pronunciations of OOV words, or why the graph cannot have any."""
    vocabulary = graph.vocabulary
    if graph.oov_exits is None:
        return (
            "the graph cannot add words, expected one of `wfstdec build` with an ARPA "
            "model that has <unk>, or with unk_cost: build it again"
        )
    lexicon = partial(vocabulary.pronunciations.lexicon, graph.words)
    return Pronouncer(vocabulary.tokens, lexicon, vocabulary.separators, g2p)


def _default_bonuses(graph: PackedGraph) -> DefaultBonuses:
    lexicon = graph.vocabulary.pronunciations.lexicon(graph.words)
    unk_cost = math.inf if graph.oov_exits is None else graph.oov_exits.word_cost
    return DefaultBonuses(graph.words, lexicon, graph.info.word_cost, unk_cost)
