"""Alignment of known texts: made once for tokens and a lexicon, used for many.

    aligner = ForcedAligner(tokens="tokens.txt", lexicon="lexicon.txt",
                            separator="<wb>", g2p="spelling")
    alignment = aligner.align(log_probs, "the cat sat")
    for word in alignment.words: word.text, word.start_s, word.end_s, word.confidence

The text becomes a graph of its own, `T o (L o G)` with the words in a row as G; the
search is that of `WfstDecoder`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Self

from wfstdec.align.alignment import Alignment
from wfstdec.align.options import AlignOptions
from wfstdec.align.reading import Nearness, read_alignment
from wfstdec.align.search import STAR, LogProbs, search, text_graph
from wfstdec.align.transcript import Transcriber
from wfstdec.boost.g2p import G2pLike
from wfstdec.checks.inputs import OutputTokens, Pairs, checked
from wfstdec.checks.rows import check_frame_shift
from wfstdec.errors import ShapeError, check_listed
from wfstdec.fst.lexicon_fst import Fillers
from wfstdec.fst.topology import check_topology
from wfstdec.search.threads import DeferredSignals
from wfstdec.text.lexicon import (
    AUTO,
    Lexicon,
    TokensLike,
    load_lexicon,
    load_tokens,
    separator_of,
    token_named,
)
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer
from wfstdec.text.tokens import TokenTable

Path = str | os.PathLike[str]


class ForcedAligner:
    """Finds when the words and tokens of a known text were said.

    Args:
        tokens: The V output units of the acoustic model: a file, names in order,
            `{name: token}`, a tokenizer or a table; see `token_table`.
        lexicon: A file or object; how words are said. `None` spells all words.
        separator: The token between words: `s* (w s+)* [w]`. `"auto"` takes `|` where
            the tokens are those of a Hugging Face model, and none elsewhere; None is
            none.
        separator_optional: The separator may be missing: `s* (w s*)*`.
        silence: A token that may stand between words, not with a separator.
        silence_prob: How probable it is in each place.
        g2p: How words are said that the lexicon lacks: a function from a word to its
            pronunciations, each the names of tokens between spaces or in a sequence; a
            lexicon or its file; `"spelling"`, with the tokens themselves; `None`: they
            are errors, unless all words of the lexicon are spelt.
        sentencepiece_model: Without a lexicon, what cuts words into pieces; `None`
            takes as few pieces as there can be.
        normalizer: Words that are not in the lexicon as they are written are looked up
            as it compares them; with `normalize` a word may become several, or none.
        topology: Of CTC, as `build_graph` takes it.
        blank: The blank by name or index; `None` to recognise it.
        options: Of the search.
        frame_shift_s: Seconds per frame of log-probs.
        backend: `"cpu"`.

    Raises:
        InputError: One of its subclasses, for what is wrong with a file or option.
    """

    def __init__(
        self,
        tokens: TokensLike,
        lexicon: Path | Lexicon | None = None,
        *,
        separator: str | None = AUTO,
        separator_optional: bool = False,
        silence: str | None = None,
        silence_prob: float = 0.5,
        g2p: G2pLike | None = None,
        sentencepiece_model: Path | None = None,
        normalizer: Normalizer = AS_IT_STANDS,
        topology: str = "normal",
        blank: int | str | None = None,
        options: AlignOptions | None = None,
        frame_shift_s: float = 0.02,
        backend: str = "cpu",
    ) -> None:
        check_topology(topology)
        check_frame_shift(frame_shift_s)
        self.tokens = load_tokens(tokens, blank)
        self.options = options or AlignOptions()
        self.topology, self.frame_shift_s = topology, frame_shift_s
        self._backend = backend
        between = separator_of(separator, self.tokens, lexicon=lexicon, silence=silence)
        self._fillers = Fillers(
            separator=between,
            separator_optional=separator_optional,
            silence=token_named(silence, self.tokens, "silence"),
            silence_prob=silence_prob,
        )
        self._output_tokens = OutputTokens.spelled(self.tokens, self._fillers.tokens)
        if lexicon is not None:
            lexicon = load_lexicon(lexicon, self.tokens, between)
            words = frozenset(chain.from_iterable(lexicon.pronunciations))
            self._output_tokens = replace(self._output_tokens, words=words)
        self._transcriber = Transcriber(
            *(self.tokens, lexicon, self._fillers.tokens),
            g2p=g2p,
            sentencepiece_model=sentencepiece_model,
            normalizer=normalizer,
        )

    def __repr__(self) -> str:
        """Show the token table and the options."""
        return f"ForcedAligner({self.tokens!r}, {self.options!r})"

    def check_words(self, words: Iterable[str]) -> None:
        """Warn or raise `LexiconError` where words are not written as the lexicon's."""
        check_listed("words", words)
        self._transcriber.check(words)

    @property
    def num_tokens(self) -> int:
        """V, the blank included."""
        return len(self.tokens)

    def with_options(self, **changes: Any) -> Self:
        """Make an aligner of the same model with some options changed."""
        other = copy.copy(self)
        other.options = replace(self.options, **changes)
        return other

    def checked(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Pass utterances on and warn of what seems wrong with the first ones."""
        return checked(logprobs, self._output_tokens)

    def align(self, logprobs: Any, text: str | Sequence[str]) -> Alignment:
        """Align one utterance; the log-probs are read in chunks, three times or more.

        Args:
            logprobs: [T, V] array, natural log, NumPy (memory-mapped too) or torch,
                float16 or wider; `-inf` is an impossible token.
            text: Its words, with white space between them, or in a sequence.

        Raises:
            LexiconError: Words that nobody can say: see `g2p`.
            ShapeError: Axes or V are wrong.
            LogprobError: NaN or +inf.
        """
        if getattr(logprobs, "ndim", None) != 2:
            raise ShapeError(
                f"logprobs has {getattr(logprobs, 'ndim', 'no')} axes, expected [T, V]"
            )
        with DeferredSignals():
            transcript = self._transcriber.transcript(text)
            options, tokens = self.options, self.tokens
            star, star_cost = None, None
            if options.insert_cost is not None:
                star, star_cost = len(tokens), options.insert_frame_cost
                tokens = TokenTable((*tokens.names, STAR), tokens.blank)
            read = LogProbs(logprobs, self.num_tokens, star_cost)
            given = tokens, self._fillers, self.topology, options
            graph = text_graph(transcript, *given)
            found = search(graph, read, options, self.frame_shift_s, self._backend)
            near = Nearness.of(read, found.hypothesis, tokens.blank)
            return read_alignment(found, near, transcript, star, options)
