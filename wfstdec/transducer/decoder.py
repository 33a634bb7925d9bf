"""The transducer decoder that users hold: a model, language models, options.

    model = load_transducer("model.npz")               # or any `TransducerModel`
    decoder = TransducerDecoder(model, lm="pieces.arpa.gz",
                                options=TransducerOptions(lm_scale=0.3))
    hyps = decoder.decode(frames, lengths)             # of the encoder, [B, T, D]

With `input="features"` the model's own encoder comes first. As audio comes in:
`decoder.sessions()`, by frames of the encoder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from wfstdec.boost.compile import BoostCompiler, PhraseCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrase_compilers import phrase_compiler
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.checks.looking import Pairs
from wfstdec.errors import OptionError
from wfstdec.lm.automaton import Unit
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.found import FoundReader
from wfstdec.search.paths.hypotheses import PathReader
from wfstdec.search.paths.words import BareTokens
from wfstdec.text.loading import separator_of
from wfstdec.text.symbols import TokenTable
from wfstdec.text.vocabulary import Vocabulary
from wfstdec.transducer.automata import TorchNgramLM
from wfstdec.transducer.backend import TransducerBackend
from wfstdec.transducer.hypotheses import TransducerAccount, TransducerResult
from wfstdec.transducer.model import EncoderModel, TransducerModel
from wfstdec.transducer.model_checks import check_model
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.tokenizers import cutter


class TransducerDecoder(Decoder[Tensor, TransducerResult]):
    """A search on an RNN-T or TDT model; `TransducerOptions` says what it makes best.

    The result for an utterance depends on its frames, the model, the options and its
    boosts: not on the batch, padding, chunks, or the order of lists, as far as the
    model itself does not (a library may round products of other sizes otherwise).

    Tokens are those of the joiner's outputs, the blank in its place: language models
    and phrases are over this table, the same as for a CTC model with these outputs.

    Args:
        model: A `TransducerModel`; for `input="features"` an `EncoderModel` too.
        lm: A language model over tokens, as `GreedyDecoder` takes it, or a sequence of
            pairs of such and a weight; None for none.
        options: Of the search.
        separator: The token between words. None takes the mark U+2581 of word pieces.
        unk_cost: As of `GreedyDecoder`.
        input: What is decoded: `"frames"` of the encoder, or `"features"`.
        frame_shift_s: Seconds per frame of the encoder.
        batch_size: Utterances decoded side by side, and encoded.
        device: Where the model is.

    Attributes:
        lms: Language models and their weights.

    Raises:
        InputError: One of its subclasses, for what does not fit the model.
    """

    options: TransducerOptions
    _backend: TransducerBackend
    _nbest_from = "search"

    def __init__(
        self,
        model: TransducerModel,
        *,
        lm: AnyLM | Sequence[tuple[AnyLM, float]] | None = None,
        options: TransducerOptions | None = None,
        separator: str | None = None,
        unk_cost: float | None = None,
        input: Literal["frames", "features"] = "frames",
        frame_shift_s: float = 0.08,
        batch_size: int = 32,
        device: str | torch.device = "cpu",
    ) -> None:
        if input not in ("frames", "features"):
            raise OptionError(f"input={input!r}, expected 'frames' or 'features'")
        if input == "features" and not isinstance(model, EncoderModel):
            raise OptionError(
                "input='features' with a model that has no encoder, expected "
                "input='frames', or a model with `encode`, `input_dim` and `stride`"
            )
        if batch_size < 1:
            raise OptionError(f"batch_size={batch_size!r}, expected 1 or more")
        self.model, self.input = model, input
        table = check_model(model)
        between = separator_of(separator, table)
        self._vocabulary = Vocabulary.of(table, separator=between)
        self.lms = _models(lm, self.tokens, unk_cost)
        backend = TransducerBackend(
            model,
            [(TorchNgramLM(one), weight) for one, weight in self.lms],
            device=device,
            batch_size=batch_size,
            encodes=input == "features",
        )
        super().__init__(
            options or TransducerOptions(),
            backend,
            BoostCompiler((), {}, len(self.tokens)),
            num_tokens=len(self.tokens),
            frame_shift_s=frame_shift_s,
            threads=1,
        )
        self._cutter = BareTokens(self.tokens, self.separator)

    @property
    def num_tokens(self) -> int:
        """V, the blank included; of features, how many numbers a frame has."""
        model: Any = self.model
        return model.input_dim if self.input == "features" else self._num_tokens

    def looked_at(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Pass utterances on: frames and features are no log-probs."""
        return iter(logprobs)

    def _inputs(self, backend: Any, logprobs: Any, lengths: Any) -> Any:
        """Check frames."""
        return backend.inputs(logprobs, lengths)

    @property
    def input_frame_shift_s(self) -> float:
        """Seconds per frame of what is given to `decode`: features are shorter."""
        model: Any = self.model
        shorter = model.stride if self.input == "features" else 1
        return self.frame_shift_s / shorter

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens, and the separator."""
        return self._vocabulary

    @property
    def tokens(self) -> TokenTable:
        """The token table, of V + 1."""
        return self._vocabulary.tokens

    @property
    def separator(self) -> int | None:
        """The token between words, or None."""
        return self._vocabulary.separator

    def phrase_compiler(
        self,
        options: PhraseOptions | None = None,
        *,
        unit: Unit | None = None,
        boundary: str | None = None,
        sentencepiece_model: str | os.PathLike[str] | None = None,
    ) -> PhraseCompiler:
        """Make a compiler of phrases, as `Decoder.phrase_compiler`.

        Phrases are cut as the model cuts text: by its `tokenizer`, if it has one, such
        as the SentencePiece model that was found beside its file.

        Args:
            options: As there.
            unit: As there.
            boundary: As there.
            sentencepiece_model: Cuts phrases in place of the model's tokenizer.

        Raises:
            InputError: As there; a tokenizer that cuts no text.
        """
        tokenizer = getattr(self.model, "tokenizer", None)
        if tokenizer is not None and sentencepiece_model is None:
            tokenizer = cutter(tokenizer, self.tokens)
        return phrase_compiler(
            *(self.vocabulary, options),
            unit=unit,
            boundary=boundary,
            sentencepiece_model=sentencepiece_model,
            tokenizer=tokenizer,
        )

    @torch.no_grad()
    def encode(self, features: Any, lengths: Any = None) -> list[Tensor]:
        """Frames of the model's encoder, [T', D] for each utterance.

        Args:
            features: [B, T, F] or a sequence of [T, F].
            lengths: [B] frames of features; None for all.

        Raises:
            ShapeError: Axes, F or lengths are wrong.
        """
        return self._backend.encode(features, lengths)

    def _models(self) -> tuple[str, ...]:
        return tuple(lm.fingerprint for lm, _ in self.lms)

    def _reader(self, boosts: CompiledBoosts) -> TransducerReader:
        account = TransducerAccount(self.options, self.lms)
        names = self.tokens.names
        paths = PathReader(self._cutter, account, names, self.frame_shift_s)
        return TransducerReader(paths, boosts)


class TransducerReader(FoundReader[TransducerResult]):
    """Reads what searches of a transducer found; see `FoundReader`."""

    def hypothesis(self, found: TransducerResult) -> Hypothesis:
        """Read the best path."""
        return self._paths.hypothesis(found.paths[0], self._boosts)

    def nbest(self, found: TransducerResult, num: int | None) -> list[Hypothesis]:
        """Read the paths, at most so many; a greedy search finds one."""
        paths = found.paths[:num]
        return self._paths.hypotheses(paths, [self._boosts] * len(paths))


def _models(
    lm: Any, tokens: TokenTable, unk_cost: float | None
) -> list[tuple[NgramLM, float]]:
    """Language models over the tokens, with their weights."""
    if lm is None:
        return []
    pairs = lm if isinstance(lm, list | tuple) else [(lm, 1.0)]
    found = []
    for one, weight in pairs:
        if not 0 <= weight < float("inf"):
            raise OptionError(f"a language model's weight {weight!r}, expected 0 or up")
        found.append((lm_over(read_lm(one), tokens, unk_cost), float(weight)))
    return found
