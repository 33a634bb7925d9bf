"""Options of the trie decoder, checked when they are made, and its backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from wfstdec.search.options import LatticeOptions
from wfstdec.search.paths.tokens import SPELLINGS_PER_TEXT
from wfstdec.trie.lookahead import LookaheadKind

Merge = Literal["max", "sum"]

BACKENDS = {
    "cpu": "wfstdec.trie.cpu.backend:CpuBackend",
    "cuda": "wfstdec.trie.gpu.backend:backend_for",
}
"""Makers of backends by name, as `module:maker`; see `search.backend`."""


@dataclass(frozen=True)
class TrieOptions(LatticeOptions):
    """Options of the trie decoder; costs are in nats, lower is better.

        total = acoustic_scale * acoustic + lm_scale * graph
                + word_insertion * words + token_insertion * tokens
                - boost_scale * boosts

    Those that `WfstOptions` has too mean the same there.

    Attributes:
        beam: What costs more than the frame's best plus `beam` is dropped; `inf`
            drops nothing.
        beam_size: The most places that a frame goes on from; a place is a language
            model state, a trie node and a boost state.
        token_top_k: Only this many of the most probable tokens may begin in a frame;
            `None` lets all.
        merge: What becomes of alignments of one text: `"max"` keeps the best
            (Viterbi, as the WFST decoder does), `"sum"` adds their probabilities.
        nbest: How many different texts are wanted.
        lookahead: What is charged for a word before it is complete, the least that
            the words that are still possible cost: `"ngram"` after their history,
            `"unigram"` without one, `"none"` nothing.
        acoustic_scale: Multiplies the negated log-probs.
        lm_scale: Multiplies the costs of language model and pronunciations.
        word_insertion: Added for every word; above 0 penalises. With a lexicon only.
        token_insertion: Added for every token that begins, separators included.
        blank_penalty: Subtracted from the blank's log-prob, before the scale; part
            of the acoustic cost.
        boost_scale: Multiplies all boosts.
        blank_skip_threshold: At a frame where the blank's probability is at least
            this, only blanks are followed; `None` follows all.
        lattice_beam: A lattice keeps what a path goes through that costs no more than
            the best plus this; at most `beam`. `None` is 8, or the beam if that is
            less.

    Raises:
        OptionError: A value is out of range.
    """

    beam: float = 14.0
    beam_size: int = 256
    token_top_k: int | None = None
    merge: Merge = "max"
    nbest: int = 1
    lookahead: LookaheadKind = "ngram"
    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    word_insertion: float = 0.0
    token_insertion: float = 0.0
    blank_penalty: float = 0.0
    boost_scale: float = 1.0
    blank_skip_threshold: float | None = None
    lattice_beam: float | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        self.check_width("beam")
        self.check_count("beam_size")
        self.check_count("token_top_k", optional=True)
        self.check_choice("merge", get_args(Merge))
        self.check_count("nbest")
        self.check_choice("lookahead", get_args(LookaheadKind))
        self.check_scales("acoustic_scale", "lm_scale", "boost_scale")
        self.check_nats("word_insertion", "token_insertion", "blank_penalty")
        self.check_probability("blank_skip_threshold")
        self.check_lattice_beam()


def most_endings(options: TrieOptions, *, has_lexicon: bool) -> int:
    """Number of endings of different texts that give `nbest` paths of other words."""
    spare = 1 if has_lexicon or options.nbest == 1 else SPELLINGS_PER_TEXT
    return spare * options.nbest
