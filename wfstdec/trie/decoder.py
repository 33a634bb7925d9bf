"""Trie decoder: a lexicon or bare tokens, a language model, options.

    files = {"tokens": "tokens.txt", "lexicon": "lexicon.txt", "lm": "lm.arpa.gz"}
    options = TrieOptions(beam_size=256)
    decoder = TrieDecoder(**files, separator="<wb>", options=options)
    hyps = decoder.decode(logprobs)

`decoder.sessions()` decodes audio as it arrives.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from wfstdec.boost.automatic import DefaultBonuses
from wfstdec.boost.compile import BoostCompiler, Vocabulary
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.g2p import G2pLike, Pronouncer
from wfstdec.errors import BoostError, InputError, OptionError, check_listed
from wfstdec.lattice.arrays import Lattice
from wfstdec.lm.kernels import UNKNOWN
from wfstdec.lm.loading import AnyLM, TakenLM, any_lm_over, listed_words, read_any_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import OnDemandLM, UserLM
from wfstdec.search.decoder import ChoosingDecoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.options import OpenVocabulary
from wfstdec.search.paths.hypotheses import LmCosts, Reader
from wfstdec.search.paths.tokens import Path
from wfstdec.search.paths.words import BARE, ENDS, Cutter, Prons
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.lexicon import (
    AUTO,
    WORD_START,
    Lexicon,
    LexiconLike,
    TokensLike,
    load_lexicon,
    load_tokens,
    sayable,
    separator_of,
    spellable_words,
    word_ids,
    word_table,
)
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import OpenSpelling, open_spelling
from wfstdec.trie.lattice_pack import RecordedFrames, lattice_of
from wfstdec.trie.lexicon_trie import build_trie, open_words, pron_lengths
from wfstdec.trie.lookahead import ROOT
from wfstdec.trie.options import BACKENDS, TrieOptions
from wfstdec.trie.search_space import search_space

_log = logging.getLogger("wfstdec.build")


class TrieDecoder(ChoosingDecoder[np.ndarray, list[Path] | RecordedFrames]):
    """Search on the trie of a lexicon, or on bare tokens; no graph is built.

        total = acoustic_scale * acoustic + lm_scale * (language model + pronunciations)
                + word_insertion * words + token_insertion * tokens - boosts

    The result for an utterance depends only on the model, its log-probs, the options
    and its boosts. It does not depend on batch, padding, chunks, threads, backend or
    the order of lists. With a lexicon all words are in the lexicon or the boost list,
    or open ones. CTC's rules are exact with and without a separator s: a sentence is
    `s* (w s+)* [w]`, with `separator_optional` `s* (w s*)*`, without a separator `w*`.

    Args:
        tokens: The V output units of the acoustic model: a file, names in order,
            `{name: token}`, a tokenizer or a table; see `token_table`.
        lexicon: A file or object; None decodes tokens.
        lm: An ARPA file, a KenLM binary, a folder of `NgramLM.save`, `read_arpa`'s
            result, an `NgramLM` or your own model (`UserLM`), over words with a lexicon
            and over tokens without; None for no language model. A model whose n-grams
            cannot be listed (yours, KenLM's probing format) is queried during the
            search, and excludes the look-ahead `"ngram"`.
        options: Search options.
        backend: `"cpu"`, `"cuda"` (beams of up to 256, no lattices, OOV or open words,
            and a language model with n-grams or none), or `"auto"`: the choice of
            `choose_backend` for each batch, and the CPU for sessions and n-best lists.
        words: With a lexicon: the word table. None takes that of the `NgramLM`, or the
            words of the lexicon in their order without those that an ARPA model lacks.
        open_vocabulary: Costs of words in neither lexicon nor list; None for no such
            words. Without a lexicon the language model is then over words, spelled by
            the tokens.
        g2p: Pronunciations for words of boost lists that lack one: a `G2p` or its
            source, such as a function of a word, a lexicon file or `"hama"`. None uses
            the spelling if most words of the lexicon are pronounced as spelled.
        exact_boosts: Take words of boost lists exactly as written; otherwise they also
            match a known word regardless of case, Unicode form and punctuation.
        separator: The token between words. `"auto"` is `|` for tokens of a Hugging
            Face model, otherwise none; None is none. Without a lexicon it only
            determines how tokens are read as words; without either they are split at
            the mark U+2581 of word pieces.
        separator_optional: Whether the separator may be missing.
        blank: The blank by name or index; None detects it.
        unk_cost: Nats for words or tokens that an ARPA model lacks; None drops words,
            and scores tokens, OOV and open words as `<unk>` if the model has it.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Number of threads; `None` uses one per processor.

    Attributes:
        last_choice: The choice of `"auto"` for the last batch, and its reason; or None.
        lm: The language model, or None.
        open_spelling: Spelling of open words by tokens; None without open words.

    Raises:
        InputError: One of its subclasses, for an error in a file or an option.
        BackendError: The backend is unknown.
    """

    options: TrieOptions
    _nbest_from = "search"
    _backends = BACKENDS

    def __init__(
        self,
        *,
        tokens: TokensLike,
        lexicon: LexiconLike | None = None,
        lm: AnyLM | None = None,
        options: TrieOptions | None = None,
        backend: str = "auto",
        words: Sequence[str] | None = None,
        separator: str | None = AUTO,
        separator_optional: bool = False,
        blank: int | str | None = None,
        unk_cost: float | None = None,
        open_vocabulary: OpenVocabulary | None = None,
        g2p: G2pLike | None = None,
        exact_boosts: bool = False,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
    ) -> None:
        options = options or TrieOptions()
        table = load_tokens(tokens, blank)
        between = separator_of(separator, table, lexicon=lexicon)
        lm = None if lm is None else read_any_lm(lm)
        if lexicon is None and open_vocabulary is not None:
            lexicon = spelled_words(lm, table, between)
        entries: Lexicon | None = None
        known: tuple[str, ...] = ()
        if lexicon is not None:
            entries = load_lexicon(lexicon, table, between)
            check_listed("words", words)
            entries, known = _vocabulary(entries, lm, words, unk_cost)
        self.vocabulary = Vocabulary.of(
            table,
            known,
            entries,
            separator=between,
            separator_optional=separator_optional,
        )
        self.open_vocabulary = open_vocabulary
        labels = table if entries is None else known
        self.lm = None if lm is None else any_lm_over(lm, labels, unk_cost)
        spelling = trie = opened = None
        if entries is None:
            _check_token_options(options)
        else:
            trie = build_trie(entries, word_ids(known))
            if open_vocabulary is not None:
                self._check_unk("open_vocabulary", OptionError)
                spelling = open_spelling(table, between, entries)
                opened = open_words(open_vocabulary, spelling, trie, known)
        space = search_space(
            trie,
            self.lm,
            options.lookahead,
            separator=between,
            separator_optional=separator_optional,
            num_tokens=len(table),
            blank=table.blank,
            open_words=opened,
        )
        super().__init__(
            options,
            backend,
            space,
            BoostCompiler(
                self.words,
                word_ids(self.words),
                len(self.tokens),
                self._default_bonuses,
                self._pronouncer(g2p),
                exact=exact_boosts,
            ),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )
        self._space = space
        self._lattice_vocabulary = self.vocabulary
        if entries is None:
            self._lattice_vocabulary = self.vocabulary.with_tokens_as_words()
        elif spelling is not None:
            token_cost, word_cost = space.open.token_cost, space.open.word_cost
            self._lattice_vocabulary = self.vocabulary.with_open_word(
                spelling.kind, float(token_cost), float(word_cost)
            )
        self._cutter = Cutter(BARE, self.vocabulary)
        if trie is not None:
            prons = Prons(trie.pron_word, pron_lengths(trie), trie.pron_cost)
            self._cutter = Cutter(ENDS, self._lattice_vocabulary, prons)

    @property
    def words(self) -> tuple[str, ...]:
        """The word table, `words[0]` being `<eps>`; empty without a lexicon."""
        return self.vocabulary.words

    @property
    def lexicon(self) -> Lexicon | None:
        """Entries whose words can be output; None without a lexicon."""
        return self.vocabulary.lexicon

    @property
    def open_spelling(self) -> OpenSpelling | None:
        """Spelling of open words by tokens; None without open words."""
        return self._lattice_vocabulary.open_spelling

    def _pronouncer(self, g2p: G2pLike | None) -> Pronouncer | str:
        if self.lexicon is None:
            if g2p is not None:
                raise OptionError(
                    f"g2p={g2p!r} without a lexicon, expected None: there are no words"
                )
            return "this decoder has no words"
        return Pronouncer(self.tokens, self.lexicon, self.vocabulary.separators, g2p)

    def _default_bonuses(self) -> DefaultBonuses:
        return DefaultBonuses(
            self.words, self.lexicon, self._word_cost(), self._unk_cost()
        )

    def _unk_cost(self) -> float:
        if self.lm is None:
            return 0.0
        if isinstance(self.lm, OnDemandLM):
            return self.lm.unk_cost()
        return self.lm.step(ROOT, UNKNOWN)[0]

    def _check_unk(self, what: str, error: type[InputError]) -> None:
        if not math.isfinite(self._unk_cost()):
            raise error(
                f"{what} with a language model without '<unk>', expected one that has "
                "it: give unk_cost, nats for each word that the model lacks"
            )

    def _word_cost(self) -> np.ndarray | None:
        """Return unigram costs, float32 [W]; None without a language model."""
        if self.lm is None:
            return None
        if isinstance(self.lm, OnDemandLM):
            return self.lm.word_costs()
        return self.lm.row(ROOT)[0][: len(self.words)]

    def with_options(self, **changes: Any) -> Self:
        """Return this decoder with some options changed; it shares all arrays.

        Raises:
            OptionError: A value is out of range, or `lookahead` changes.
        """
        if changes.get("lookahead", self.options.lookahead) != self.options.lookahead:
            raise OptionError(
                f"lookahead={changes['lookahead']!r}, expected "
                f"{self.options.lookahead!r}: make another decoder"
            )
        other = super().with_options(**changes)
        if self.lexicon is None:
            _check_token_options(other.options)
        return other

    def _check_lattices(self) -> None:
        if not self.records_lattices:
            raise OptionError(
                "backend 'cuda': a lattice or confidences, expected the best paths "
                "alone; use backend='cpu'"
            )
        if self.options.merge == "sum":
            raise OptionError(
                "merge='sum' for a lattice, whose costs are those of single paths, "
                "expected 'max'"
            )

    def _repr_of_model(self) -> str:
        return f"{super()._repr_of_model()}, lm={self.lm!r}"

    def _models(self) -> tuple[str, ...]:
        lm = "" if self.lm is None else type(self.lm).__name__  # its costs are unknown
        if isinstance(self.lm, NgramLM):
            lm = self.lm.fingerprint
        return lm, repr(self.open_vocabulary)

    def _why_not_on_gpu(self, boosts: Sequence[CompiledBoosts]) -> str | None:
        # Imported only with a GPU.
        module = importlib.import_module("wfstdec.trie.gpu.backend")
        reasons = [module.why_not(self.options, one) for one in (None, *boosts)]
        return next((one for one in reasons if one is not None), None)

    def _reader(self, boosts: CompiledBoosts) -> TrieReader:
        options = self.options
        reader = TrieReader(
            self._cutter.with_oov(boosts.oov),
            LmCosts(
                options,
                self._space.automaton,
                options.token_insertion,
                options.word_insertion if self._space.has_lexicon else None,
            ),
            self.tokens.names,
            self.frame_shift_s,
            boosts,
        )
        reader.at_once = isinstance(self.lm, OnDemandLM)
        reader.vocabulary, reader.options = self._lattice_vocabulary, options
        return reader

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        for number, one in enumerate(boosts):
            if one.oov is not None and one.oov.words:
                try:
                    self._check_unk(f"OOV word {one.oov.words[0]!r}", BoostError)
                except BoostError as error:
                    error.utterance = number
                    raise


class TrieReader(Reader[list[Path] | RecordedFrames]):
    """Reads results of trie searches; see `Reader`."""

    vocabulary: Vocabulary
    options: TrieOptions

    def best(self, found: list[Path] | RecordedFrames) -> Path:
        """Return the best path."""
        return found.path if isinstance(found, RecordedFrames) else found[0]

    def nbest(
        self, found: list[Path] | RecordedFrames, num: int | None
    ) -> list[Hypothesis]:
        """Read the first hypothesis of each text, at most `num`."""
        if isinstance(found, RecordedFrames):
            return [self.hypothesis(found)]
        texts: dict[str, Hypothesis] = {}
        for hypothesis in self.read(found):
            texts.setdefault(hypothesis.text, hypothesis)
            if len(texts) == num:
                break
        return list(texts.values())

    def lattice(self, found: RecordedFrames) -> Lattice:
        """Read the lattice."""
        return lattice_of(
            found,
            self.vocabulary.with_oov(self.boosts.oov),
            self.options,
            self.frame_shift_s,
            words_are_tokens=self.cutter.cuts_bare_tokens,
        )


def spelled_words(
    lm: TakenLM | None, tokens: TokenTable, separator: int | None
) -> Lexicon:
    """Return the words of a language model that tokens can spell, as a lexicon."""
    words = listed_words(lm)
    if words is None:
        raise OptionError(
            "open_vocabulary without a lexicon and without a language model over words "
            "that are known, expected one of them: give a lexicon or an ARPA file"
        )
    if open_spelling(tokens, separator, None).kind == "letters" and separator is None:
        raise OptionError(
            "open_vocabulary without a lexicon, a separator or tokens that begin with "
            f"{WORD_START!r}, expected one of them: word ends are unknown"
        )
    lexicon, lacking = spellable_words(words, tokens, separator=separator)
    if lacking:
        _log.info(
            "%d of %d words of the model cannot be spelled by the tokens, such as %s",
            *(len(lacking), len(lacking) + len(lexicon), repr(lacking[0])),
        )
    return lexicon


def _check_token_options(options: TrieOptions) -> None:
    if options.word_insertion:
        raise OptionError(
            f"word_insertion={options.word_insertion!r} without a lexicon, "
            "expected 0: use token_insertion"
        )


def _vocabulary(
    entries: Lexicon,
    lm: TakenLM | None,
    words: Sequence[str] | None,
    unk_cost: float | None,
) -> tuple[Lexicon, tuple[str, ...]]:
    if words is None and isinstance(lm, NgramLM) and isinstance(lm.labels, tuple):
        words = lm.labels
    if isinstance(lm, ArpaModel):
        entries = sayable(entries, lm.index, unk_cost)
    elif words is not None:
        entries = sayable(entries, set(words))
    elif isinstance(lm, UserLM | OnDemandLM):
        known: Any = getattr(lm, "words", None)
        if known is not None:
            found = {word for word in entries.words if word in known}
            entries = sayable(entries, found, unk_cost)
    return entries, word_table(entries) if words is None else tuple(words)
