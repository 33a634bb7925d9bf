"""L, the lexicon as an FST: from tokens to words.

A pronunciation is a chain of arcs; its first arc carries the word and the cost, and a
symbol `#k` after the last token distinguishes homophones. The language:

    no fillers           (w)*
    separator s          s* (w s+)* [w]      or, if it is optional, s* (w s*)*
    silence              [sil] (w [sil])*    a silence costs -ln p, none -ln(1-p)

`#0`, the back-off of the grammar, is allowed where a word may begin. It is not needed
after the last word, because final costs of the grammar include it.

The class of OOV words is a word of one token: `fst/topology.py`.
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np

from wfstdec.errors import LexiconError, OptionError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.graph.arcs import FstArrays
from wfstdec.text.lexicon import Lexicon, word_ids
from wfstdec.text.tokens import EPSILON, TokenTable, ilabel_of


@dataclass(frozen=True)
class Fillers:
    """Tokens that may occur between words."""

    separator: int | None = None  # Token after every word but the last, if any
    separator_optional: bool = False  # Whether the separator may be missing
    # Optional token around words, if any; not with a separator
    silence: int | None = None
    silence_prob: float = 0.5  # Its probability in each position

    def __post_init__(self) -> None:
        if self.separator_optional and self.separator is None:
            raise OptionError("separator_optional without a separator, expected one")
        if self.separator is not None and self.silence is not None:
            raise OptionError(
                "both a separator and a silence, expected one of them: a separator "
                "may already be repeated"
            )
        if not 0.0 < self.silence_prob < 1.0:
            found = f"silence probability {self.silence_prob!r}"
            raise OptionError(f"{found}, expected one above 0 and below 1")

    @property
    def tokens(self) -> tuple[int, ...]:
        """The separator or the silence, if any."""
        return tuple(t for t in (self.separator, self.silence) if t is not None)

    @property
    def ends_words(self) -> bool:
        """Whether a filler must separate two words."""
        return self.separator is not None and not self.separator_optional


@dataclass(frozen=True, eq=False)
class MarkedLexicon:
    """Lexicon whose token sequences are uniquely decodable."""

    lexicon: Lexicon  # Entries
    fillers: Fillers  # Fillers between them
    symbol: np.ndarray  # int32 [N], the k of the `#k` after each entry, 0 for none
    silence_symbol: int  # The k of the `#k` after a silence, 0 for none

    @property
    def num_disambig(self) -> int:
        """Number of symbols, including `#0`."""
        return 1 + int(self.symbol.max(initial=self.silence_symbol))


def mark_lexicon(
    lexicon: Lexicon, fillers: Fillers, tokens: TokenTable
) -> MarkedLexicon:
    """Add disambiguation symbols, so that L can be determinized."""
    # Entries with equal tokens get `#1`, `#2`, ...; a prefix of another entry gets
    # `#1`. With a mandatory separator, prefixes and the first of equal entries need
    # none.
    _check(lexicon, fillers, tokens)
    counts = Counter(lexicon.pronunciations)
    marked = set()
    if not fillers.ends_words:
        marked = {p[:n] for p in lexicon.pronunciations for n in range(1, len(p))}
        marked |= {p for p, n in counts.items() if n > 1}
    # The first entry of a marked pronunciation gets #1; without marks it needs none.
    used = {pronunciation: int(pronunciation in marked) for pronunciation in counts}
    symbol = np.zeros(len(lexicon), np.int32)
    for entry, pronunciation in enumerate(lexicon.pronunciations):
        symbol[entry] = used[pronunciation]
        used[pronunciation] += 1
    # Otherwise a word before a silence and a word before one that begins with it
    # coincide.
    is_marked = fillers.silence in {pronunciation[0] for pronunciation in counts}
    silence_symbol = 1 + int(symbol.max()) if is_marked else 0
    return MarkedLexicon(lexicon, fillers, symbol, silence_symbol)


def _check(lexicon: Lexicon, fillers: Fillers, tokens: TokenTable) -> None:
    if not len(lexicon):
        raise LexiconError("the lexicon has no words left, expected at least one")
    if tokens.blank in fillers.tokens:
        raise OptionError(
            f"the blank {tokens.names[tokens.blank]!r} as separator or silence, "
            "expected another token: blanks are always allowed"
        )
    unfit = {fillers.separator: "separator", tokens.blank: "blank"}
    for word, pronunciation in zip(lexicon.words, lexicon.pronunciations, strict=True):
        if not pronunciation:
            raise LexiconError(f"{word!r} has no tokens, expected at least one")
        if not unfit.keys().isdisjoint(pronunciation):
            token = next(token for token in pronunciation if token in unfit)
            used = f"{word!r} uses the {unfit[token]} {tokens.names[token]!r}"
            raise LexiconError(f"{used}, expected other tokens")


def build_lexicon_fst(marked: MarkedLexicon, labels: LabelSpace) -> FstArrays:
    """Build L: tokens and `#k` on the input side, words and `#0` on the output side."""
    # States are 0, where words begin, 1, where they end if a filler follows, 2 inside a
    # marked silence, and those of the chains.
    fillers = marked.fillers
    begin, end = 0, int(fillers.ends_words or fillers.silence is not None)
    final = np.full(3, np.inf)
    final[begin] = 0.0
    # G's back-off passes through L as #0, only between words.
    backoff = arcs_of(begin, labels.disambig(0), labels.backoff_word, begin)
    parts, start = [backoff], begin
    if labels.has_exits:
        parts.append(arcs_of(begin, labels.class_token, labels.class_word, end))
    if fillers.separator is not None:
        separator = ilabel_of(fillers.separator)
        final[end] = 0.0
        # From both: separators may be repeated, and precede the first word.
        parts.append(arcs_of(np.unique([begin, end]), separator, EPSILON, begin))
    if fillers.silence is not None:
        start = end
        parts += _silence_arcs(marked, labels)
    chains, num_states = _chains(marked, labels, (begin, end), first_free=3)
    final = np.concatenate([final, np.full(num_states - len(final), np.inf)])
    return fst_of([*parts, *chains], start, final)


def _silence_arcs(marked: MarkedLexicon, labels: LabelSpace) -> list[Arcs]:
    fillers, silence = marked.fillers, marked.fillers.silence
    assert silence is not None
    with_silence = -math.log(fillers.silence_prob)
    parts = [arcs_of(1, EPSILON, EPSILON, 0, -math.log1p(-fillers.silence_prob))]
    if not marked.silence_symbol:
        return [*parts, arcs_of(1, ilabel_of(silence), EPSILON, 0, with_silence)]
    symbol = labels.disambig(marked.silence_symbol)
    parts.append(arcs_of(1, ilabel_of(silence), EPSILON, 2, with_silence))
    return [*parts, arcs_of(2, symbol, EPSILON, 0)]


def pronunciation_labels(
    marked: MarkedLexicon, labels: LabelSpace
) -> tuple[np.ndarray, np.ndarray]:
    """Return the input labels of all entries, with `#k`: int32, int64 [N + 1]."""
    lengths = np.array([len(p) for p in marked.lexicon.pronunciations])
    splits = np.append(0, np.cumsum(lengths + (marked.symbol > 0)))
    has_symbol = np.flatnonzero(marked.symbol)
    is_token = np.ones(int(splits[-1]), bool)
    is_token[splits[1:][has_symbol] - 1] = False
    ilabel = np.zeros(len(is_token), np.int32)
    tokens = chain.from_iterable(marked.lexicon.pronunciations)
    ilabel[is_token] = ilabel_of(np.fromiter(tokens, np.int32, int(lengths.sum())))
    ilabel[~is_token] = labels.disambig(marked.symbol[has_symbol])
    return ilabel, splits


def _chains(
    marked: MarkedLexicon, labels: LabelSpace, ends: tuple[int, int], first_free: int
) -> tuple[list[Arcs], int]:
    """Return arcs of pronunciations from `ends[0]` to `ends[1]`; number of states."""
    ids = word_ids(labels.words)
    ilabel, splits = pronunciation_labels(marked, labels)
    first, last = splits[:-1], splits[1:] - 1
    olabel = np.zeros(len(ilabel), np.int32)
    olabel[first] = [ids[word] for word in marked.lexicon.words]
    cost = np.zeros(len(ilabel), np.float32)
    cost[first] = marked.lexicon.costs
    # The state after arc n is first_free + n, less the chains that ended before.
    inner = np.ones(len(ilabel), bool)
    inner[last] = False
    nextstate = np.where(inner, first_free + np.cumsum(inner) - 1, ends[1])
    state = np.concatenate([[ends[0]], nextstate[:-1]])
    state[first] = ends[0]
    num_states = first_free + int(inner.sum())
    return [arcs_of(state, ilabel, olabel, nextstate, cost)], num_states
