"""Options of the trie decoder and its backends."""

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
"""Constructors of backends by name, as `module:function`; see `search.backend`."""


@dataclass(frozen=True)
class TrieOptions(LatticeOptions):
    """Options of the trie decoder; costs are in nats, lower is better.

        total = acoustic_scale * acoustic + lm_scale * graph
                + word_insertion * words + token_insertion * tokens
                - boost_scale * boosts

    Options of the same name in `WfstOptions` mean the same.

    Attributes:
        beam: Beam width in nats; `inf` disables it.
        beam_size: Maximum number of search states in a frame: language model state,
            trie node and boost state.
        token_top_k: Only this many of the most probable tokens may begin in a frame;
            `None` is no limit.
        merge: Alignments of one text: `"max"` keeps the best (Viterbi, as the WFST
            decoder does), `"sum"` adds their probabilities.
        nbest: Number of different texts.
        lookahead: Charge for an incomplete word, the least cost of the words that are
            still possible: `"ngram"` after their history, `"unigram"` without one,
            `"none"` nothing.
        acoustic_scale: Multiplies the negated log-probs.
        lm_scale: Multiplies the costs of language model and pronunciations.
        word_insertion: Added for every word; above 0 penalises. With a lexicon only.
        token_insertion: Added for every token that begins, separators included.
        blank_penalty: Subtracted from the blank's log-prob, before the scale; part
            of the acoustic cost.
        boost_scale: Multiplies all boosts.
        blank_skip_threshold: Only blanks are expanded in frames whose blank has at
            least this probability; `None` expands all.
        lattice_beam: Largest extra cost of a lattice's paths over the best; at most
            `beam`. `None` is 8, or the beam if that is less.

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
    """Return how many endings of different texts yield `nbest` different word paths."""
    spare = 1 if has_lexicon or options.nbest == 1 else SPELLINGS_PER_TEXT
    return spare * options.nbest
