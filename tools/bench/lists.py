"""Harm and use of boost lists without numbers, in every family of decoders.

    python -m tools.bench.lists --pieces-lm pieces.arpa --output run.json

Lists of 100 words that are spoken (seven letters or more, once in the references),
filled up with others of the text to 1,000 and 20,000, and its 20,000 commonest words.
WER with its difference to no list, the 95 % interval of that by paired bootstrap over
utterances, P, R and F of the 100 words, and CPU time over that of no list; lists are
compiled before. The demos' utterances are every second one of the speakers that their
models were not trained on, or those that the rule was chosen on (`--half tune`).
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import wfstdec
from tools.bench.cases import Inputs, make_cases
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.data import find_data
from tools.bench.report import Columns, Row, figure, text_figure
from wfstdec import AttentionOptions, TransducerOptions, TrieOptions, WfstOptions
from wfstdec.compare.comparison import PhraseCounter
from wfstdec.compare.speech import encode_speech, read_speech
from wfstdec.metrics import score_texts, wer_gain
from wfstdec.text.files import read_lines
from wfstdec.text.normalize import NORMALIZE

SPEAKERS = ("1673", "174", "1993", "2086")
"""Of LibriSpeech dev-clean, in no training data of the demos."""
COLUMNS: Columns = {
    "search": text_figure("search"),
    "list": text_figure("list"),
    "WER %": figure("wer", ".2f"),
    "more": figure("more", "+.2f"),
    "from": figure("low", "+.2f"),
    "to": figure("high", "+.2f"),
    "P %": figure("precision", ".1f"),
    "R %": figure("recall", ".1f"),
    "F %": figure("f_score", ".1f"),
    "time": figure("time", ".2f"),
}


class Contest(NamedTuple):
    """A search, what it decodes, and how it takes lists."""

    name: str
    decode: Callable[[Any], Sequence[Any]]  # compiled boosts to hypotheses
    compile: Callable[[list[str]], Any]
    references: Mapping[str, Sequence[str]]
    words: Callable[[str], Sequence[str]] = str.split


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--half", choices=["tune", "test"], default="test")
    add("--pieces-lm", type=Path, help="over the demos' pieces, at scale 0.3")
    add("--whisper", type=Path, help="a folder for `load_model`; 60 recordings")
    add("--only", nargs="+", help="searches whose names begin so")
    add("--seed", type=int, default=1)
    return parse(parser, argv)


def lists_of(
    references: Mapping[str, Sequence[str]], counts: Counter[str], seed: int
) -> dict[str, list[str]]:
    """The lists by name; the first has the words that are scored."""
    spoken = Counter(word for words in references.values() for word in words)
    listed = sorted(w for w, n in spoken.items() if n == 1 and len(w) >= 7)
    others = sorted(w for w, n in counts.items() if n > 1 and len(w) >= 4)
    others = [w for w in others if w not in spoken and w.isascii() and w.isalpha()]
    random.Random(seed).shuffle(listed)
    random.Random(seed + 1).shuffle(others)
    listed = listed[:100]
    more = {f"{n:,}": listed + others[: n - len(listed)] for n in (1000, 20_000)}
    common = [word for word, _ in counts.most_common() if word.isalpha()][:20_000]
    return {"100": listed} | more | {"20,000 commonest": common}


def of_demos(data: Path, args: argparse.Namespace) -> Iterator[Contest]:
    """Transducers, attention, and CTC over the same pieces."""
    posteriors = data / "posteriors"
    speech = read_speech(
        posteriors / "librispeech_dev.npz", posteriors / "librispeech_dev.txt"
    )
    names = [n for n in speech.logprobs if n.split("-")[0] in SPEAKERS]
    names = names[args.half == "test" :: 2]
    features = [torch.from_numpy(speech.logprobs[name]) for name in names]
    references = {name: speech.references[name] for name in names}

    def contest(name: str, decoder: Any, given: Any, compiler: Any) -> Contest:
        def decode(boosts: Any) -> Sequence[Any]:
            return decoder.decode(given, boosts=boosts)

        return Contest(name, decode, compiler.compile, references)

    for head in ("rnnt", "tdt"):
        model = wfstdec.load_transducer("graphs/transducer_demo/model.npz", head)
        plain = wfstdec.TransducerDecoder(model, input="features")
        frames = plain.encode(features)
        for lm in (None, args.pieces_lm)[: 1 + (args.pieces_lm is not None)]:
            options = TransducerOptions(lm_scale=0.3)
            base = wfstdec.TransducerDecoder(model, lm=lm, options=options)
            for strategy in ("greedy", "alsd", "aes"):
                decoder = base.with_options(strategy=strategy)
                name = f"{head} {strategy}" + " + LM" * (lm is not None)
                yield contest(name, decoder, frames, decoder.phrase_compiler())
    net = wfstdec.load_attention("graphs/attention_demo/model.npz")
    options_ = AttentionOptions()
    attention = wfstdec.AttentionDecoder(net, options=options_, frame_shift_s=0.08)
    encoder = wfstdec.AttentionDecoder(net, input="features", frame_shift_s=0.08)
    frames = encoder.encode(features)
    for weight in (0.0, 0.3):
        for size in (1, 3, 8):
            decoder_ = attention.with_options(beam_size=size, ctc_weight=weight)
            name = f"attention K={size}" + f" + CTC {weight}" * bool(weight)
            yield contest(name, decoder_, frames, decoder_.phrase_compiler())
    with torch.no_grad():
        rows = [net.ctc(one).float().numpy() for one in frames]
    # The end of a text is the last output, and the blank for CTC.
    table = wfstdec.token_table([*net.tokens[: net.eos], "<blank>"], net.eos)
    spelled = {"sentencepiece_model": "graphs/attention_demo/bpe.model"}
    for name, bare in (
        ("greedy, pieces", wfstdec.GreedyDecoder(tokens=table)),
        ("trie, pieces", wfstdec.TrieDecoder(tokens=table)),
    ):
        yield contest(f"CTC {name}", bare, rows, bare.phrase_compiler(**spelled))


def of_words(args: argparse.Namespace) -> Iterator[Contest]:
    """CTC with a lexicon and the pruned trigram."""
    [case] = make_cases(["dev:lm_books.3g_pruned"], Inputs.of(args))
    wfst = case.wfst_decoder(WfstOptions(lm_scale=case.lm_scale))
    trie = case.trie_decoder(TrieOptions(lm_scale=case.lm_scale))
    for name, decoder in (("WFST", wfst), ("trie", trie)):

        def decode(boosts: Any, decoder: Any = decoder) -> Sequence[Any]:
            return decoder.decode(case.utterances, boosts=boosts)

        references = case.speech.references
        yield Contest(f"CTC {name}", decode, decoder.compile_boosts, references)


def of_whisper(data: Path, folder: Path) -> Iterator[Contest]:
    """An attention model with real weights."""
    model = wfstdec.load_model(folder)
    recordings = {path.stem: path for path in sorted((data / "audio").glob("*.mp3"))}
    dev = data / "posteriors" / "librispeech_dev.txt"
    speech = encode_speech(model, recordings, dev, normalizer=NORMALIZE)
    base = wfstdec.AttentionDecoder(model)
    for size in (1, 5):
        decoder = base.with_options(beam_size=size)

        def decode(boosts: Any, decoder: Any = decoder) -> Sequence[Any]:
            return decoder.decode(list(speech.logprobs.values()), boosts=boosts)

        compile_ = decoder.phrase_compiler().compile
        references = speech.references

        def words(text: str) -> Sequence[str]:
            return speech.normalizer.words(text.split())

        yield Contest(f"Whisper K={size}", decode, compile_, references, words)


def measure(contests: Iterable[Contest], text: Path, seed: int) -> Iterator[Row]:
    """A row for each search and list."""
    counts = Counter(word for line in read_lines(text) for word in line.split())
    for one in contests:
        lists = lists_of(one.references, counts, seed)
        counter = PhraseCounter(lists["100"])
        errors: dict[str, np.ndarray] = {}
        seconds: dict[str, float] = {}
        for name, listed in {"none": None, **lists}.items():
            boosts = None if listed is None else one.compile(listed)
            one.decode(boosts)  # kernels are compiled, tables laid out
            begin = time.process_time()
            hyps = one.decode(boosts)
            seconds[name] = time.process_time() - begin
            texts = {
                key: one.words(hyp.text)
                for key, hyp in zip(one.references, hyps, strict=True)
            }
            score = score_texts(one.references, texts)
            errors[name], words = score.counts
            found = counter.score(one.references, texts)
            row: Row = {"search": one.name, "list": name, "wer": score.wer}
            gain = wer_gain(errors[name], errors["none"], words)
            if gain is not None and listed is not None:
                row["more"] = -gain.gain
                row["low"], row["high"] = -gain.interval.high, -gain.interval.low
            for kind in ("precision", "recall", "f_score"):
                share = getattr(found, kind)
                row[kind] = None if share is None else 100 * share
            yield row | {
                "time": seconds[name] / seconds["none"],
                "cpu_s": seconds[name],
            }


def main(argv: list[str] | None = None) -> int:
    """Measure all families."""
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    data = find_data(args.data)

    def contests() -> Iterator[Contest]:
        yield from of_demos(data, args)
        yield from of_words(args)
        if args.whisper is not None:
            yield from of_whisper(data, args.whisper)

    wanted = tuple(args.only or [""])
    chosen = (one for one in contests() if one.name.startswith(wanted))
    text = data / "text" / "standardebooks_9.1Mwords.txt.gz"
    return Run("tools.bench.lists", args).finish(
        measure(chosen, text, args.seed), COLUMNS
    )


if __name__ == "__main__":
    exit_with(main)
