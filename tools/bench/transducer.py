"""Transducers: WER and speed of greedy, ALSD++ and AES++, ours and NeMo's.

    python -m tools.bench.transducer --model model.npz --logprobs x.npz --ref x.txt \\
        --lm in=pieces.arpa --lm out=other.arpa --phrases names.txt --output run.json

The tables of the ALSD++/AES++ paper in small: search x beam x blank scored or not x
language model x phrases. RTFx is seconds of audio per CPU second
of one thread, the fastest of all turns, once with the model (encoder, predictor and
joiner) and once by the search alone. NeMo (if installed, and for RNN-T or ALSD++)
searches on the same frames by the same model, in batches of the same utterances,
without phrases: its boosting tree is another one. The encoder's time is added to both,
but for the last column: how many times NeMo's seconds of the decoder alone are ours.

Before a time is taken: every utterance alone gives the text that it gave in the batch,
and NeMo's greedy search gives the tokens of ours.

`--steps`: the search's own time of a step, in microseconds, over K and B: a model that
costs nothing, V random log-probs, a trigram of V pieces or none; `--labels` is V.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tools.bench.command import Run, bare_parser, exit_with, parse, profiles
from tools.bench.report import (
    Row,
    figure,
    format_table,
    speed,
    text_figure,
    word_errors,
)
from tools.bench.timing import Turns
from tools.peers.nemo_transducer import NemoTransducer
from wfstdec import TransducerDecoder, TransducerOptions
from wfstdec.attention.model import TimedModel
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.compare.speech import Speech, read_speech
from wfstdec.errors import BackendError, FormatError
from wfstdec.io.boost_files import read_phrase_weights
from wfstdec.transducer.beam import Source
from wfstdec.transducer.decoder import open_model
from wfstdec.transducer.pricing import Fusion
from wfstdec.transducer.steps import Searcher

PROFILES = profiles(
    **{"utterances": 4, "beams": [2], "steps": True},
    **{"step_beams": [2], "step_batches": [2], "heads": ["rnnt"]},
)
ALONE = 6
"""Utterances that are decoded one at a time too."""
COLUMNS = {
    "search": text_figure("search"),
    "beam": figure("beam_size", "d"),
    "blank": text_figure("blank"),
    "LM": text_figure("lm"),
    "phrases": text_figure("phrases"),
    "WER %": figure("wer", ".2f"),
    "RTFx": figure("rtfx", ",.0f"),
    "search alone": figure("search_rtfx", ",.0f"),
    "NeMo WER %": figure("nemo_wer", ".2f"),
    "RTFx ": figure("nemo_rtfx", ",.0f"),
    "times": figure("times", ".2f"),
    "decoder alone": figure("times_alone", ".2f"),
}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = bare_parser(__doc__)
    add = parser.add_argument
    demo = Path("graphs/transducer_demo")
    add("--model", type=Path, default=demo / "model.npz")
    add("--heads", nargs="+", default=["rnnt", "tdt"])
    add("--logprobs", type=Path, default=demo / "logprobs.npz")
    add("--ref", type=Path, default=demo / "refs.txt")
    add("--utterances", type=int, help="their number, evenly spread")
    add("--lm", action="append", default=[], metavar="NAME=ARPA", help="over pieces")
    add("--lm-scales", nargs="+", type=float, default=[0.3])
    add("--phrases", type=Path, help="phrases to boost, one a line")
    add("--phrase-weight", type=float, default=1.0)
    add("--strategies", nargs="+", default=["greedy", "alsd", "aes"])
    add("--beams", nargs="+", type=int, default=[4, 6, 10])
    add("--batch-size", type=int, default=32)
    add("--repeats", type=int, default=3)
    add("--no-peers", action="store_true")
    add("--steps", action="store_true", help="the search's own time of a step too")
    add("--labels", type=int, default=256, help="V, for --steps")
    add("--step-beams", nargs="+", type=int, default=[1, 4, 6, 10, 16])
    add("--step-batches", nargs="+", type=int, default=[1, 8, 32])
    add("--output", type=Path, help="write all figures as JSON")
    return parse(parser, argv, PROFILES)


def words_of(tokens: Iterable[str]) -> list[str]:
    """Words of pieces."""
    return "".join(tokens).replace("\u2581", " ").split()


def by_length(
    items: Sequence[Tensor],
    batch_size: int,
    decode: Callable[[Tensor, Tensor], Sequence[Any]],
) -> list[Any]:
    """Decode in batches of like length; what was found, in the order of the items.

    Args:
        items: [T, D] each.
        batch_size: Of all batches but the last.
        decode: Gets items padded, [B, T, D], and their lengths, int64 [B].
    """
    order = sorted(range(len(items)), key=lambda i: len(items[i]))
    found: dict[int, Any] = {}
    for first in range(0, len(order), batch_size):
        group = order[first : first + batch_size]
        rows = [items[i] for i in group]
        lengths = torch.tensor([len(one) for one in rows])
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        found |= zip(group, decode(padded, lengths), strict=True)
    return [found[i] for i in range(len(items))]


class Bench:
    """A head of the model on some speech.

    Args:
        args: The flags.
        head: The head.
        speech: What is decoded.
    """

    def __init__(self, args: argparse.Namespace, head: str, speech: Speech) -> None:
        self.args, self.head, self.speech = args, head, speech
        self.model: Any = TimedModel(open_model(args.model, head))
        self.features = [torch.from_numpy(a) for a in speech.logprobs.values()]
        plain = TransducerDecoder(self.model, input="features")
        self.frames = plain.encode(self.features)
        begin = time.process_time()
        plain.encode(self.features)
        self.encoder_s = time.process_time() - begin

    def rows(self, lms: dict[str, Path | None]) -> list[Row]:
        """All settings with all language models."""
        rows = []
        for name, path in lms.items():
            for scale in self.args.lm_scales if path else [0.0]:
                for setting in self._settings(has_lm=path is not None):
                    rows += self._points(name, path, scale, setting)
        return rows

    def _settings(self, has_lm: bool) -> list[Row]:
        """Settings that differ: without a language model the blank's score does not."""
        found = []
        for strategy in self.args.strategies:
            beams = [1] if strategy == "greedy" else self.args.beams
            both = has_lm and strategy != "greedy"
            for beam, scored in itertools.product(beams, (True, False)[: 1 + both]):
                one = {"strategy": strategy, "beam_size": beam}
                found.append(one | {"blank_scored": scored})
        return found

    def _points(
        self, name: str, path: Path | None, scale: float, setting: Row
    ) -> list[Row]:
        """Without phrases, and with them; NeMo next to the first."""
        decoder = TransducerDecoder(
            self.model,
            lm=path,
            options=TransducerOptions(lm_scale=scale, **setting),
            batch_size=self.args.batch_size,
        )
        named = {"lm": f"{name} {scale:g}" if path else "-"}
        rows = [self._point(decoder, None, setting, named, self._peer(path, scale))]
        if self.args.phrases is not None:
            phrases = read_phrase_weights(self.args.phrases).of("")
            compiler = decoder.phrase_compiler(PhraseOptions())
            given = {p: 1.0 if w is None else w for p, w in phrases.items()}
            weighed = {p: w * self.args.phrase_weight for p, w in given.items()}
            boosts = compiler.compile(weighed)
            rows.append(self._point(decoder, boosts, setting, named, None))
        return rows

    def _peer(self, path: Path | None, scale: float) -> NemoTransducer | None:
        if self.args.no_peers:
            return None
        try:
            return NemoTransducer(self.model, arpa=path, lm_scale=scale)
        except BackendError:
            return None

    def _point(
        self,
        decoder: Any,
        boosts: Any,
        setting: Row,
        named: Row,
        peer: NemoTransducer | None,
    ) -> Row:
        model_s: list[float] = []

        def ours() -> list[Any]:
            before = self.model.cpu_s
            hyps = decoder.decode(self.frames, boosts=boosts)
            model_s.append(self.model.cpu_s - before)
            return hyps

        self._check_alone(decoder, boosts, ours())
        model_s.clear()
        functions: dict[str, Any] = {"ours": ours}
        if peer is not None and peer.has(setting):
            functions["nemo"] = lambda: by_length(
                self.frames,
                self.args.batch_size,
                lambda batch, lengths: [
                    texts[0].tokens for texts in peer.decode(batch, lengths, setting)
                ],
            )
        turns = Turns(functions)
        found = turns.take()
        texts = [hyp.text for hyp in found["ours"]]
        turns.repeat(self.args.repeats - 1)
        seconds = turns.seconds["ours"]
        alone = min(s - m for s, m in zip(seconds, model_s, strict=True))
        row = {
            **{"head": self.head, **setting, **named},
            "search": setting["strategy"],
            "blank": "scored" if setting["blank_scored"] else "unscored",
            "phrases": "-" if boosts is None else "yes",
            **self._wer(texts),
            **speed(self.speech.audio_s, [s + self.encoder_s for s in seconds]),
            "search_rtfx": self.speech.audio_s / alone,
            "search_s": alone,
        }
        if "nemo" in found:
            self._check_greedy(setting, found["ours"], found["nemo"])
            theirs = min(turns.seconds["nemo"]) + self.encoder_s
            names = self.model.tokens
            sentences = [words_of(names[t] for t in tokens) for tokens in found["nemo"]]
            row["nemo_wer"] = self._wer(list(map(" ".join, sentences)))["wer"]
            row["nemo_rtfx"] = self.speech.audio_s / theirs
            row["times"] = theirs / (min(seconds) + self.encoder_s)
            row["times_alone"] = min(turns.seconds["nemo"]) / min(seconds)
        return row

    def _wer(self, texts: Sequence[str]) -> Row:
        named = dict(zip(self.speech.logprobs, texts, strict=True))
        return word_errors(self.speech.references, named)

    def _check_alone(self, decoder: Any, boosts: Any, together: list[Any]) -> None:
        for frames, hyp in list(zip(self.frames, together, strict=True))[:ALONE]:
            (alone,) = decoder.decode([frames], boosts=boosts)
            if alone.text != hyp.text:
                raise FormatError(f"alone {alone.text!r}, in a batch {hyp.text!r}")

    def _check_greedy(self, setting: Row, ours: list[Any], theirs: list[Any]) -> None:
        """RNN-T: the same tokens; a TDT blank of duration 0 is another rule there."""
        if setting["strategy"] != "greedy" or self.model.durations:
            return
        for hyp, tokens in zip(ours, theirs, strict=True):
            if hyp.token_ids != tokens:
                raise FormatError(f"greedy tokens {hyp.token_ids}, NeMo's {tokens}")


class FreeModel:
    """Random log-probs of V tokens that cost nothing but a look-up."""

    def __init__(self, num_tokens: int, num_frames: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = [f"t{i}" for i in range(num_tokens)]
        self.blank, self.durations = num_tokens, ()
        logits = torch.randn(num_frames, num_tokens + 1, generator=generator) * 3
        logits[:, -1] += 6  # as many tokens to a frame as speech has
        self.logprobs = torch.log_softmax(logits, 1)

    def start(self, num: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(num, 1), torch.zeros(num, 1)

    def predict(self, labels: torch.Tensor, state: Any) -> tuple[Any, Any]:
        return state, state

    def join(self, frames: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return self.logprobs.index_select(0, frames[:, 0].long())


def step_rows(args: argparse.Namespace) -> list[Row]:
    """Microseconds of a step of the search itself, over K and B."""
    rows = []
    num_frames = 40
    for strategy in ("alsd", "aes"):
        for beam, batch in itertools.product(args.step_beams, args.step_batches):
            model: Any = TimedModel(FreeModel(args.labels, num_frames))
            options = TransducerOptions(strategy=strategy, beam_size=beam)
            lengths = torch.full((batch,), num_frames)
            frames = torch.arange(num_frames)[None, :, None].expand(batch, -1, 1)
            ended = torch.ones(batch, dtype=torch.bool)
            source = Source(frames.float(), lengths * 0, lengths, ended)
            best = np.inf
            for _ in range(args.repeats + 1):
                searcher = Searcher(model, options, Fusion([]))
                start, model.cpu_s = searcher.start(batch), 0.0
                begin = time.process_time()
                searcher.run(start, source)
                taken = time.process_time() - begin - model.cpu_s
                best = min(best, taken / searcher.num_steps)
            unit = "step" if strategy == "alsd" else "frame"
            row = {"search": strategy, "beam_size": beam, "batch": batch}
            rows.append(row | {"labels": args.labels, "per": unit, "us": 1e6 * best})
    return rows


STEP_COLUMNS = {
    "search": text_figure("search"),
    "K": figure("beam_size", "d"),
    "B": figure("batch", "d"),
    "V": figure("labels", "d"),
    "per": text_figure("per"),
    "us": figure("us", ",.0f"),
}


@torch.no_grad()
def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    run = Run("tools.bench.transducer", args)
    speech = read_speech(args.logprobs, args.ref, limit=args.utterances)
    lms: dict[str, Path | None] = {"none": None}
    for given in args.lm:
        name, _, path = given.partition("=")
        lms[name] = Path(path)
    rows: list[Row] = []
    for head in args.heads:
        found = Bench(args, head, speech).rows(lms)
        print(f"{head}: {len(speech.logprobs)} utterances")
        print(format_table(COLUMNS, found), flush=True)
        rows += found
    steps = step_rows(args) if args.steps else []
    print(format_table(STEP_COLUMNS, steps))
    run.write(rows, steps=steps, utterances=len(speech.logprobs))
    print(run.footer())
    return 0


if __name__ == "__main__":
    exit_with(main)
