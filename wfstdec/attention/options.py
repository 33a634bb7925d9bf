"""Options of the search for attention decoders."""

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
        beam_size: Active texts, K; 1 is greedy: the first winning end is final.
        end_rule: Treatment of phrases at the end, which is a token that competes with
            them. `"closed"`: phrases close where a text continues though the model's
            best token is the end, or where it ends a phrase a second time within 16
            tokens or a third time at all. Incomplete phrases are then refunded and
            nothing is credited after. `"none"`: phrases stay open.
        ctc_weight: 0 to 1, weight of CTC relative to attention: prefix probabilities
            for active texts, text probabilities for finished ones. Above 0 it requires
            CTC log-probs: `decode(frames, ctc=...)`, or the model's.
        pre_beam: Tokens of an active text that CTC scores, the best by all other terms;
            None for 1.5 K.
        lm_scale: Multiplies the costs, and weights, of all language models.
        boost_scale: Multiplies all boosts.
        token_insertion: Nats added to the cost of every output token, marks excluded.
        length_norm: Finished texts are ranked by their total (`"none"`), divided by the
            number of tokens and the end (`"mean"`), or by ((5 + n) / 6) ** `gnmt_alpha`
            (`"gnmt"`). Totals are unchanged.
        gnmt_alpha: See above.
        stop: An utterance is over with K finished texts that no active one can enter
            (`"bound"`), with K finished (`"full"`), or at the limit of tokens
            (`"never"`). The future boosts of an active text are bounded by one phrase,
            the best.
        max_tokens_per_s: Most tokens per second, plus 5; None: only the model's limit.
        no_repeat_ngram: No n-gram of this length occurs twice in a text; 0 disables it.
        nbest: Number of texts; None for the whole beam.

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
        """Return the rank of a finished text without its end; higher is better."""
        if self.length_norm == "mean":
            total /= num_tokens + 1
        elif self.length_norm == "gnmt":
            total /= ((5 + num_tokens) / 6) ** self.gnmt_alpha
        return float(total)

    def token_limit(self, limit: int, seconds: float) -> int:
        """Return a text's largest number of tokens, by model and seconds."""
        if self.max_tokens_per_s is None:
            return int(limit)
        return min(int(limit), int(np.ceil(self.max_tokens_per_s * seconds)) + 5)
