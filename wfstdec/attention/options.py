"""Options of the search for attention decoders; checked at birth."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from wfstdec.boost.tables import EndRule
from wfstdec.search.options import CheckedOptions

LengthNorm = Literal["none", "mean", "gnmt"]
Stop = Literal["bound", "full", "never"]


@dataclass(frozen=True)
class AttentionOptions(CheckedOptions):
    """Options of `AttentionDecoder`.

        total = attention + ctc_weight * (ctc - attention) + lm_scale * graph
                + token_insertion * tokens - boost_scale * boosts

    Attributes:
        beam_size: Active texts, K; 1 is greedy: the first end that wins ends.
        end_rule: What becomes of phrases at the end, which is a token that competes
            with them. `"closed"`: where a text continues though the model's own best is
            the end, or where it ends a phrase a second time within 16 tokens or a third
            time at all, incomplete phrases are refunded and nothing is credited after.
            `"none"`: neither.
        ctc_weight: 0 to 1, how much CTC counts in place of attention: of live texts
            the probability that one begins so, of finished ones their own. Above 0
            there must be CTC log-probs: `decode(frames, ctc=...)`, or the model's.
        pre_beam: Tokens of a live text that CTC scores, the best by all else; None for
            1.5 K.
        lm_scale: Multiplies the costs, and weights, of all language models.
        boost_scale: Multiplies all boosts.
        token_insertion: Nats added to the cost of every output token, marks excluded.
        length_norm: Finished texts are ranked by their total (`"none"`), over tokens
            and the end (`"mean"`), or over ((5 + n) / 6) ** `gnmt_alpha` (`"gnmt"`).
            Totals stay as they are.
        gnmt_alpha: See above.
        stop: An utterance is over with K finished texts and no live one that can come
            in any more (`"bound"`), with K finished (`"full"`), or at the limit of
            tokens (`"never"`). What a live text may still gain by boosts is bounded by
            one phrase, the best.
        max_tokens_per_s: At most this many a second, plus 5; None leaves it to the
            model.
        no_repeat_ngram: No n tokens come twice in a text; 0 lets them.
        nbest: How many texts are wanted; None for all of the beam.

    Raises:
        OptionError: A value is out of range.
    """

    beam_size: int = 8
    end_rule: EndRule = "closed"
    ctc_weight: float = 0.0
    pre_beam: int | None = None
    lm_scale: float = 1.0
    boost_scale: float = 1.0
    token_insertion: float = 0.0
    length_norm: LengthNorm = "none"
    gnmt_alpha: float = 0.6
    stop: Stop = "bound"
    max_tokens_per_s: float | None = None
    no_repeat_ngram: int = 0
    nbest: int | None = None

    acoustic_scale: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        """Check every value."""
        self.check_choice("end_rule", get_args(EndRule))
        self.check_choice("length_norm", get_args(LengthNorm))
        self.check_choice("stop", get_args(Stop))
        self.check_scales("lm_scale", "boost_scale", "gnmt_alpha")
        self.check_nats("token_insertion")
        self.check_count("beam_size")
        self.check_count("nbest", optional=True)
        self.check_count("pre_beam", optional=True)
        self.check("ctc_weight", lambda x: 0 <= x <= 1, "0 to 1")
        positive = "tokens a second, above 0, or None"
        self.check("max_tokens_per_s", lambda x: x > 0, positive, optional=True)
        self.check("no_repeat_ngram", lambda x: x >= 0 and x == int(x), "0 or more")

    def rank(self, total: float, num_tokens: int) -> float:
        """Rank a finished text of some tokens, without the end; more is better."""
        if self.length_norm == "mean":
            total /= num_tokens + 1
        elif self.length_norm == "gnmt":
            total /= ((5 + num_tokens) / 6) ** self.gnmt_alpha
        return float(total)

    def token_limit(self, limit: int, seconds: float) -> int:
        """Bound the number of a text's tokens, by the model's limit and its seconds."""
        if self.max_tokens_per_s is None:
            return int(limit)
        return min(int(limit), int(np.ceil(self.max_tokens_per_s * seconds)) + 5)
