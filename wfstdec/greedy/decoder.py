"""Greedy decoding with a language model and boosts: no beam, one token at a time.

decoder = GreedyDecoder(tokens="tokens.txt", lm="bpe.arpa.gz",
                        options=GreedyOptions(lm_scale=0.3))
hyps = decoder.decode(logprobs)                        # or in chunks, by `start`

This is the two-stage rule of "TurboBias" (GPU-PB): acoustics alone say where a token
begins, the language model and the boosts only which one it is.

    label, last = blank, blank                         # of the frame before
    for each frame, x its log-probs, the blank's less blank_penalty:
        best = the most probable token, the lowest of equal ones
        none is possible                               the search dies
        best is the blank                              label = blank
        best is label, or best is last and label is possible here
                                                       label goes on: a repeat
        else a token begins: label = the v that is neither the blank nor label and
            costs least, the costs not finite left out (none is left: the search dies):
                cost(v) = (lm_scale * LM(v) + phrases(v)) + acoustic_scale * -x[v]
            of equal ones best, then the lowest; LM and phrases step by it
        last = best
    end: `</s>` in the state of the model, and the refund of a phrase half said

So neither can turn a blank into a token, or a token into a blank. What the paper does
not have is `last`: there a token that stays the most probable begins again where
another one was chosen for its first frame, and both are said. On synthetic sets of
word pieces with a 3-gram at lm_scale 0.3 to 0.5 that made 4 to 7 % more word errors.

Costs are float32 and added in this order. The alignment is the labels of all frames:
the acoustic cost is that of the label, not of the best, wherever they differ.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.greedy.options import BACKENDS, GreedyOptions, Searched
from wfstdec.lm.automaton import NULL_AUTOMATON
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.search.backend import make_backend
from wfstdec.search.decoder import Decoder
from wfstdec.search.paths.hypotheses import LmCosts, PathReader, Reader
from wfstdec.search.paths.tokens import TokenPath
from wfstdec.search.paths.words import BARE, Cutter
from wfstdec.text.lexicon import AUTO, TokensLike, load_tokens, separator_of
from wfstdec.text.vocabulary import Vocabulary


class GreedyDecoder(Decoder[np.ndarray, TokenPath]):
    """Greedy search on bare tokens, by the rule above.

    The result for an utterance depends on its log-probs, the options, its boosts and
    what the decoder was made of alone. Without a language model and boosts it is plain
    greedy decoding. Its costs are those of its alignment, by the formula of
    `GreedyOptions`; boosts are phrases of tokens.

    Args:
        tokens: The V output units of the acoustic model: a file, names in order,
            `{name: token}`, a tokenizer or a table; see `token_table`.
        lm: An ARPA file over tokens, a folder of `NgramLM.save`, `read_arpa`'s result
            or an `NgramLM`; None for no language model.
        options: Scales and penalties.
        backend: `"cpu"` or `"auto"`, the CPU.
        separator: The token between words: tokens are joined to words between two of
            them. `"auto"` takes `|` where the tokens are those of a Hugging Face model,
            and none elsewhere; with none they are cut at the mark U+2581 of word
            pieces.
        blank: The blank by name or index; None to recognise it.
        unk_cost: Nats for tokens that an ARPA model lacks; None scores them as `<unk>`
            where the model has it, and never chooses them where it has none.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Utterances decoded side by side; `None` takes one per processor.

    Attributes:
        lm: The language model, or None.

    Raises:
        InputError: One of its subclasses, for what is wrong with a file or option.
        BackendError: The backend is unknown.
    """

    options: GreedyOptions

    def __init__(
        self,
        *,
        tokens: TokensLike,
        lm: AnyLM | None = None,
        options: GreedyOptions | None = None,
        backend: str = "auto",
        separator: str | None = AUTO,
        blank: int | str | None = None,
        unk_cost: float | None = None,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
    ) -> None:
        table = load_tokens(tokens, blank)
        between = separator_of(separator, table)
        self.vocabulary = Vocabulary.of(table, separator=between)
        self.lm = None if lm is None else lm_over(read_lm(lm), self.tokens, unk_cost)
        self._automaton = NULL_AUTOMATON if self.lm is None else self.lm.automaton
        self._cutter = Cutter(BARE, self.vocabulary)
        searched = Searched(self._automaton, len(self.tokens), self.tokens.blank)
        super().__init__(
            options or GreedyOptions(),
            make_backend(BACKENDS, backend, searched),
            BoostCompiler((), {}, len(self.tokens)),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )

    def _repr_of_model(self) -> str:
        return f"{super()._repr_of_model()}, lm={self.lm!r}"

    def _models(self) -> tuple[str, ...]:
        return () if self.lm is None else (self.lm.fingerprint,)

    def _reader(self, boosts: CompiledBoosts) -> Reader[TokenPath]:
        insertion, names = self.options.token_insertion, self.tokens.names
        account = LmCosts(self.options, self._automaton, insertion)
        paths = PathReader(self._cutter, account, names, self.frame_shift_s)
        return Reader(paths, boosts)
