"""Searches on a line recogniser of 6,625 characters, PP-OCRv4, with rendered lines.

    pip install --no-deps rapidocr-onnxruntime==1.4.4
    pip install matplotlib onnxruntime pillow
    python -m tools.bench.characters --output run.json

The text is LibriSpeech dev in small, noisy lines; the language model has other books.
Scale and costs of open words were chosen on other lines (`--half tune`). CPU time is of
`decode`, texts unread; before it is taken, totals are added up again from their parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFilter, ImageFont

import wfstdec
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.costs import TOLERANCE
from tools.bench.data import find_data, find_lm
from tools.bench.harness import check_and_time
from tools.bench.report import Columns, Row, figure, text_figure
from tools.bench.trie_checks import NgramScorer, alignment_cost
from wfstdec.compare.comparison import PhraseCounter
from wfstdec.compare.speech import evenly_spaced
from wfstdec.io.results import read_text
from wfstdec.metrics import score_texts
from wfstdec.text.arpa import read_arpa

PACKAGE, MODEL = "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"
FONTS = "DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf"
SIZE, BLUR, NOISE = 12, 0.7, 25.0  # pixels, radius, standard deviation of grey values
HEIGHT, LEAST_WIDTH = 48, 320  # of the model's input, pixels
FIGURES = {"CER %": "cer", "WER %": "wer", "OOV R %": "oov_recall", "ms a line": "ms"}
COLUMNS: Columns = {"search": text_figure("search")} | {
    title: figure(name, ".2f") for title, name in FIGURES.items()
}


class Lines(NamedTuple):
    """Lines, lexicon and language model: what the checks read of a `Case`."""

    tokens: wfstdec.TokenTable
    lexicon: wfstdec.Lexicon
    arpa: Path
    references: Mapping[str, Sequence[str]]
    utterances: Sequence[np.ndarray]  # log-probs in the same order


def draw(text: str, generator: np.random.Generator) -> Image.Image:
    """A line of text in grey, in one of the fonts."""
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    font = ImageFont.truetype(folder / FONTS[generator.integers(len(FONTS))], SIZE)
    right, bottom = map(int, font.getbbox(text)[2:])
    image = Image.new("L", (right + SIZE, bottom + SIZE // 2), 255)
    ImageDraw.Draw(image).text((SIZE // 2, SIZE // 4), text, font=font, fill=40)
    grey = np.asarray(image.filter(ImageFilter.GaussianBlur(BLUR)))
    return Image.fromarray(generator.normal(grey, NOISE).clip(0, 255).astype(np.uint8))


def recognise(session: onnxruntime.InferenceSession, image: Image.Image) -> np.ndarray:
    """Log-probs of a line, float32 [T, V]; eight pixels are a frame."""
    width = -(-HEIGHT * image.width // image.height)
    scaled = image.convert("RGB").resize((width, HEIGHT), Image.Resampling.BILINEAR)
    pixels = np.zeros((1, 3, HEIGHT, max(LEAST_WIDTH, width)), np.float32)
    pixels[0, :, :, :width] = np.asarray(scaled).transpose(2, 0, 1) / 127.5 - 1
    return np.log(np.maximum(session.run(None, {"x": pixels})[0][0], 1e-38))


def make_lines(args: argparse.Namespace) -> Lines:
    """The lines of a half as the model reads them; the words of the language model."""
    model = distribution(PACKAGE).locate_file(f"{PACKAGE}/{MODEL}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options)
    names = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    # The blank is given, since `-` and `_` are names of blanks too.
    tokens = wfstdec.token_table(["<blank>", *names, " "], 0)
    data, lines = find_data(args.data), {}
    for name, words in read_text(data / "posteriors" / "librispeech_dev.txt").items():
        parts = np.array_split(words, max(1, len(words) // 7))
        lines |= {f"{name}-{i}": part.tolist() for i, part in enumerate(parts)}
    chosen = evenly_spaced([*lines][args.half == "test" :: 2], args.utterances)
    references = {name: lines[name] for name in chosen}
    texts = enumerate(map(" ".join, references.values()))
    images = (draw(text, np.random.default_rng(i)) for i, text in texts)
    logprobs = [recognise(session, image) for image in images]
    arpa = find_lm("lm_books.3g_pruned", data)
    known = [word for word in read_arpa(arpa).index if not word.startswith("<")]
    lexicon = wfstdec.spelling_lexicon(known, tokens, separator=" ")
    return Lines(tokens, lexicon, arpa, references, logprobs)


def decoders(lines: Lines, args: argparse.Namespace) -> dict[str, Any]:
    """All decoders; those named `sum` add the alignments of a text."""
    bare = {"tokens": lines.tokens, "separator": " "}
    lexicon = bare | {"lexicon": lines.lexicon, "lm": lines.arpa}
    opened = lexicon | {"open_vocabulary": wfstdec.OpenVocabulary(*args.open)}
    made: dict[str, Any] = {"greedy": wfstdec.GreedyDecoder(**bare, threads=1)}
    options = wfstdec.TrieOptions(beam=12, beam_size=128, lm_scale=args.lm_scale)
    make = partial(wfstdec.TrieDecoder, options=options, backend="cpu", threads=1)
    for name, given in {"bare": bare, "lexicon": lexicon, "open": opened}.items():
        made[f"trie, {name}"] = make(**given)
        made[f"trie, {name}, sum"] = made[f"trie, {name}"].with_options(merge="sum")
    wfst = wfstdec.WfstOptions(lm_scale=args.lm_scale)
    made["WFST, lexicon"] = wfstdec.WfstDecoder(**lexicon, options=wfst, threads=1)
    # With `normal` open words take 2 V^2 arcs: 12.8 GB and three minutes.
    graph = wfstdec.build_graph(**opened, topology="compact")
    made["WFST, open, compact"] = wfstdec.WfstDecoder(graph, wfst, threads=1)
    return made


def check(lines: Lines, args: argparse.Namespace, answers: Mapping[str, Any]) -> list:
    """Totals that are not those of alignment and text, in lines."""
    known, faults = {*lines.lexicon.words}, []
    texts = {hyp.text: hyp.text.split() for found in answers.values() for hyp in found}
    marked = {t: tuple(w if w in known else "<unk>" for w in texts[t]) for t in texts}
    scorer, costs = NgramScorer(str(lines.arpa), marked.values()), args.open
    for name, found in answers.items():
        for rows, hyp in zip(lines.utterances, found, strict=True):
            graph = hyp.graph_cost  # of the WFST, which may back off at less cost
            if name.startswith("trie") and "bare" not in name:
                opened = [len(word) for word in texts[hyp.text] if word not in known]
                graph = scorer.cost(marked[hyp.text])
                graph += len(opened) * costs[0] + sum(opened) * costs[1]
            total = alignment_cost(rows, hyp, lines) + args.lm_scale * graph
            off = (hyp.total_cost - total) / max(1.0, total)
            if not (off if "sum" in name else abs(off)) <= TOLERANCE:
                faults.append(f"{name}: {hyp.text}: {hyp.total_cost}, expected {total}")
    return faults


def main(argv: list[str] | None = None) -> int:
    """Check all searches, then time them by turns."""
    parser = make_parser(__doc__)
    parser.add_argument("--half", choices=["tune", "test"], default="test")
    parser.add_argument("--open", type=float, nargs=2, default=[0.0, 3.0])
    parser.set_defaults(utterances=300, lm_scale=0.2)
    args = parse(parser, argv)
    run = Run("tools.bench.characters", args)
    lines = make_lines(args)
    made, spoken, rows = decoders(lines, args), lines.references, []
    runs = {name: partial(one.decode, lines.utterances) for name, one in made.items()}
    timed = check_and_time(runs, partial(check, lines, args), args)
    known = {*lines.lexicon.words}
    oov = [word for line in spoken.values() for word in line if word not in known]
    letters = {name: [*" ".join(line)] for name, line in spoken.items()}
    for name, seconds in timed.seconds.items():
        pairs = zip(spoken, timed.answers[name], strict=True)
        words = {key: hyp.text.split() for key, hyp in pairs}
        typed = {key: [*" ".join(line)] for key, line in words.items()}
        recall = PhraseCounter(oov).score(spoken, words).recall or 0.0
        row: Row = {"search": name, "wer": score_texts(spoken, words).wer}
        row |= {"cer": score_texts(letters, typed).wer, "oov_recall": 100 * recall}
        rows.append(row | {"cpu_s": seconds, "ms": 1000 * min(seconds) / len(words)})
    more = {"oov_percent": 100 * len(oov) / sum(map(len, spoken.values()))}
    return run.finish(rows, COLUMNS, **more, faults=timed.faults) or bool(timed.faults)


if __name__ == "__main__":
    exit_with(main)
