"""The graph of one text: T o (L o G), where G is the words in a row.

    G    0 -w1:1-> 1 -w2:2-> 2 ... n            and, where options allow,
         i -skip:-> i + 1                       a word left out
         i -star:n+1-> i                        speech that the text does not have
    L    the pronunciations of these words, separators or silences between them;
         -:skip-> where a sentence may end; the star is a word of one token of its own

Words come out as their place in the text, from 1 on, so that equal words are told
apart. L is not marked and LG not determinized: paths that say the same with the same
tokens are no harm where there are so few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wfstdec.align.options import AlignOptions
from wfstdec.align.transcript import Transcript
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.fst.lexicon_fst import Fillers, MarkedLexicon, build_lexicon_fst
from wfstdec.fst.operations import compose
from wfstdec.fst.topology import compose_topology
from wfstdec.graph.arcs import FstArrays, GraphInfo
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.lexicon import Lexicon, Pronunciation, Pronunciations
from wfstdec.text.tokens import EPSILON, EPSILON_WORD, TokenTable
from wfstdec.text.vocabulary import Vocabulary

STAR = "<star>"
"""Speech that the text does not have: a word, and its one token, the last of all."""
_STAR, _SKIP, _NOTHING = "\nstar", "\nskip", "\nnothing"  # what no text has as a word


@dataclass(frozen=True)
class LinearGraph:
    """Maker of the graphs of texts.

    Attributes:
        tokens: The token table; with the star as one more token behind, if there may
            be speech that a text does not have.
        fillers: What may stand between words.
        topology: Of CTC.
        options: For the costs of what may be left out and put in.
    """

    tokens: TokenTable
    fillers: Fillers
    topology: str
    options: AlignOptions

    @property
    def star(self) -> int | None:
        """The token of speech that a text does not have, if that may be."""
        has_star = self.options.insert_cost is not None
        return len(self.tokens) - 1 if has_star else None

    def of(self, transcript: Transcript) -> PackedGraph:
        """The graph; its word `i`, from 1 on, is the place `i` of the text."""
        lexicon = self._lexicon(transcript)
        words = tuple(dict.fromkeys((EPSILON_WORD, *lexicon.words, _SKIP)))
        used = {t for tokens in lexicon.pronunciations for t in tokens}
        used |= set(self.fillers.tokens)
        labels = LabelSpace(self.tokens, words, used=frozenset(used))
        lg = compose(self._l_fst(lexicon, labels), self._g_fst(transcript, labels))
        tlg = compose_topology(self.topology, lg, labels)
        ilabel, repeat = labels.split_repeats(tlg.ilabel)
        info = GraphInfo(self.topology, marks_repeats=True)
        return PackedGraph.pack(
            replace(tlg, ilabel=ilabel), repeat, self._vocabulary(transcript), info
        )

    def _lexicon(self, transcript: Transcript) -> Lexicon:
        """The entries of the words, each once, and of the star."""
        by_word = dict(zip(transcript.words, transcript.entries, strict=True))
        rows: list[tuple[str, Pronunciation, float]] = [
            (word, *entry) for word, entries in by_word.items() for entry in entries
        ]
        if self.star is not None:
            rows.append((_STAR, (self.star,), 0.0))
        if not rows:  # L has a word, which G does not use
            unit = next(t for t in range(len(self.tokens)) if t != self.tokens.blank)
            rows.append((_NOTHING, (unit,), 0.0))
        words, pronunciations, costs = zip(*rows, strict=True)
        return Lexicon(words, pronunciations, np.array(costs, np.float32))

    def _l_fst(self, lexicon: Lexicon, labels: LabelSpace) -> FstArrays:
        unmarked = np.zeros(len(lexicon), np.int32)
        marked = MarkedLexicon(lexicon, self.fillers, unmarked, silence_symbol=0)
        fst = build_lexicon_fst(marked, labels)
        if self.options.skip_cost is None:
            return fst
        arcs = Arcs(fst.arc_state(), fst.ilabel, fst.olabel, fst.nextstate, fst.cost)
        ends = np.flatnonzero(fst.final_cost < np.inf)  # where sentences end, or begin
        skips = arcs_of(ends, EPSILON, labels.words.index(_SKIP), ends)
        return fst_of([arcs, skips], fst.start, fst.final_cost)

    def _g_fst(self, transcript: Transcript, labels: LabelSpace) -> FstArrays:
        ids = {word: i for i, word in enumerate(labels.words)}
        n = len(transcript.words)
        place = np.arange(n)
        label = np.array([ids[word] for word in transcript.words], np.int32)
        parts = [arcs_of(place, label, place + 1, place + 1)]
        if self.options.skip_cost is not None:
            cost = self.options.skip_cost
            parts.append(arcs_of(place, ids[_SKIP], EPSILON, place + 1, cost))
        if self.options.insert_cost is not None:
            every, cost = np.arange(n + 1), self.options.insert_cost
            parts.append(arcs_of(every, ids[_STAR], n + 1, every, cost))
        return fst_of(parts, 0, np.where(np.arange(n + 1) == n, 0.0, np.inf))

    def _vocabulary(self, transcript: Transcript) -> Vocabulary:
        # A word that comes twice in the text is two words here: each place has its own
        # times.
        prons = list(transcript.entries)
        if self.star is not None:
            prons.append((((self.star,), 0.0),))
        places = [str(i) for i in range(len(transcript.words))]
        return Vocabulary(
            tokens=self.tokens,
            words=(EPSILON_WORD, *places, STAR),
            entries=Pronunciations.from_lists(
                [(i + 1, tokens) for i, ways in enumerate(prons) for tokens, _ in ways],
                [cost for ways in prons for _, cost in ways],
            ),
            separators=self.fillers.tokens,
            separated=self.fillers.ends_words,
        )
