"""Options of transducer searches."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from wfstdec.search.options import CheckedOptions

Strategy = Literal["greedy", "alsd", "aes"]


@dataclass(frozen=True)
class TransducerOptions(CheckedOptions):
    """Options of `TransducerDecoder`.

        total = acoustic + lm_scale * graph + token_insertion * tokens
                - boost_scale * boosts

    With `blank_scored` the acoustic part is that of the paper's equation 3: blanks are
    weighted as language models weight tokens; see `wfstdec.transducer.pricing`.

    Attributes:
        strategy: `"greedy"`, `"alsd"` (ALSD++, one symbol a step) or `"aes"` (AES++,
            one frame at a time).
        beam_size: Hypotheses kept, K; greedy keeps one.
        merge: Alignments of a text are summed (`"sum"`) or the best counts (`"max"`).
        blank_scored: Whether language models weight the blank too; no effect without
            language models and on greedy search.
        lm_scale: Multiplies the costs, and weights, of all language models.
        token_insertion: Nats added to the cost of every token.
        boost_scale: Multiplies all boosts.
        max_symbols: Most tokens of a hypothesis per frame, s.
        length_norm: Rank by the total (`"none"`), or by the total divided by the number
            of tokens plus one (`"mean"`).
        expansion_rounds: AES++: expansions per frame, N. The paper has 2, and gamma
            2.3, which with a language model drops tokens that it prefers.
        expansion_beta: AES++: labels of a hypothesis beyond K in a round.
        expansion_gamma: AES++: labels this many nats below its best are dropped.
        prefix_search: AES++: first move scores from texts to those of the beam that are
            one token longer. Without it, and with unlimited other options, AES++ is
            exact.
        nbest: Number of different texts; None for the whole beam.

    Raises:
        OptionError: A value is out of range.
    """

    strategy: Strategy = "alsd"
    beam_size: int = 6
    merge: Literal["sum", "max"] = "sum"
    blank_scored: bool = True
    lm_scale: float = 1.0
    token_insertion: float = 0.0
    boost_scale: float = 1.0
    max_symbols: int = 10
    length_norm: Literal["none", "mean"] = "none"
    expansion_rounds: int = 4
    expansion_beta: int = 2
    expansion_gamma: float = 4.0
    prefix_search: bool = True
    nbest: int | None = None

    acoustic_scale: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        self.check_choice("strategy", ("greedy", "alsd", "aes"))
        self.check_choice("merge", ("sum", "max"))
        self.check_scales("lm_scale", "boost_scale")
        self.check_nats("token_insertion")
        for name in ("beam_size", "max_symbols", "expansion_rounds"):
            self.check_count(name)
        self.check_count("nbest", optional=True)
        self.check("expansion_beta", lambda x: x >= 0 and x == int(x), "0 or more")
        self.check_width("expansion_gamma")
        self.check_choice("length_norm", ("none", "mean"))
        for name in ("blank_scored", "prefix_search"):
            self.check(name, lambda x: isinstance(x, bool), "True or False")

    @property
    def width(self) -> int:
        """Number of hypotheses."""
        return 1 if self.strategy == "greedy" else int(self.beam_size)
