"""Do confidences reject what is not in a small vocabulary? A run: `docs/evidence/`.

    python -m tools.bench.rejection                   # log-probs of the demo
    python -m tools.bench.rejection --audio FOLDER    # noise and reversed speech too

Each utterance is decoded with its own words as the vocabulary, all equally likely, and
with those of another utterance, none of them its own. Of the first all words should
be kept, of the second none; so of noise, of chords, and of speech that is reversed.
The same for `WfstDecoder.of_phrases`, with and without `[unk]`, and for half of an
utterance's own words.
"""

import argparse
import difflib
import math
import tempfile
from pathlib import Path

import numpy as np

import wfstdec
from wfstdec.audio import read_audio
from wfstdec.compare.quality import quality
from wfstdec.io import read_text
from wfstdec.text.files import read_lines

DEMO = Path(__file__).parents[2] / "graphs/librispeech_demo"
THRESHOLDS = 0.1, 0.2, 0.3, 0.4, 0.5
KINDS = "confidence", "acoustic_confidence"


def decode(words, rows, lexicon, folder):
    """The words found with a vocabulary, and their two confidences."""
    arpa = folder / "lm.arpa"
    cost = -math.log10(len(words) + 1)
    grams = "".join(f"{cost:.4f}\t{word}\n" for word in ("</s>", *words))
    head = f"\\data\\\nngram 1={len(words) + 2}\n\n\\1-grams:\n-99\t<s>\n"
    arpa.write_text(f"{head}{grams}\n\\end\\\n")
    lines = [line for word in words for line in lexicon[word]]
    (folder / "lexicon.txt").write_text("\n".join(lines) + "\n")
    decoder = wfstdec.TrieDecoder(
        tokens=DEMO / "tokens.txt",
        lexicon=folder / "lexicon.txt",
        lm=arpa,
        separator="<wb>",
        options=wfstdec.TrieOptions(beam=20),
    )
    [found] = decoder.decode([rows], confidence=True)
    return [[getattr(word, kind) for kind in KINDS] for word in found.words]


def sounds(folder, seed=0):
    """Ten seconds each of no words: noise, chords, and speech that is reversed."""
    rng = np.random.default_rng(seed)
    n, t = 160_000, np.arange(160_000) / 16000
    white = rng.normal(0, 0.1, (8, n))
    steps = np.sqrt(np.maximum(np.fft.rfftfreq(n, 1 / 16000), 20.0))
    pink = np.fft.irfft(np.fft.rfft(white) / steps * 10, n)
    yield "noise", [*white[:4], *(pink[:4] / pink.std() * 0.1)]
    chords = []
    for _ in range(8):
        waves = np.zeros(n)
        for begin in range(0, n, 8000):
            notes = 110 * 2 ** (rng.integers(0, 36, 3) / 12)
            part, fade = t[:8000], np.exp(-6 * t[:8000])
            for note in notes:
                for k in range(1, 6):
                    waves[begin : begin + 8000] += (
                        fade * np.sin(2 * np.pi * k * note * part) / k
                    )
        chords.append(waves / np.abs(waves).max() * 0.5)
    yield "chords", chords
    paths = sorted(Path(folder).glob("*.mp3"))[:40]
    yield (
        "speech, reversed",
        [read_audio(path, 16000).waveform[::-1].copy() for path in paths],
    )


def with_unk(logprobs, texts, vocabularies):
    """Print what decoders of phrases keep and report, by what they are given."""
    files = {"tokens": DEMO / "tokens.txt", "lexicon": DEMO / "lexicon.txt.gz"}
    source = wfstdec.TrieDecoder(**files, separator="<wb>")
    sets = {
        "own words": vocabularies,
        "half of them": [words[::2] for words in vocabularies],
        "other words": [*vocabularies[1:], vocabularies[0]],
    }
    for unk in (None, 1.5, 2.0, 2.5, 3.0):
        print(f"[unk] at {unk} nats a token" if unk else "without [unk]")
        for kind, lists in sets.items():
            spoken = kept = wrong = others = runs = 0
            for name, words in zip(logprobs, lists, strict=True):
                if kind == "other words":
                    words = [word for word in words if word not in texts[name]]
                decoder = wfstdec.WfstDecoder.of_phrases(
                    source, words + ["[unk]"] * bool(unk), unk_cost=unk or 2.0
                )
                [hyp] = decoder.decode(logprobs[name])
                found = [word.text for word in hyp.words if word.text != "[unk]"]
                known = [word for word in texts[name] if word in words]
                same = difflib.SequenceMatcher(None, known, found, autojunk=False)
                right = sum(block.size for block in same.get_matching_blocks())
                spoken, kept = spoken + len(known), kept + right
                wrong += len(found) - right
                others += len(texts[name]) - len(known)
                runs += len(hyp.words) - len(found)
            print(
                f"  {kind:13} {kept} of {spoken} kept, {wrong} wrong words for "
                f"{others} others, {runs} [unk]"
            )


def main():
    """Print, by confidence and threshold, the share of words that are kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--audio", help="folder of recordings that are reversed")
    args = parser.parse_args()
    lexicon = {}
    for line in read_lines(DEMO / "lexicon.txt.gz"):
        lexicon.setdefault(line.split()[0], []).append(line)
    logprobs, texts = np.load(DEMO / "logprobs.npz"), read_text(DEMO / "refs.txt")
    vocabularies = [sorted(set(texts[name]) & lexicon.keys()) for name in logprobs]
    rows = {"own words": [], "other words": []}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for i, name in enumerate(logprobs):
            own, other = vocabularies[i], vocabularies[(i + 1) % len(vocabularies)]
            other = [word for word in other if word not in texts[name]]
            rows["own words"] += decode(own, logprobs[name], lexicon, folder)
            rows["other words"] += decode(other, logprobs[name], lexicon, folder)
        if args.audio:
            model = wfstdec.load_model(DEMO / "model.json")
            for kind, waves in sounds(args.audio):
                rows[kind] = []
                for i, wave in enumerate(waves):
                    [x] = model.encode([wave.astype(np.float32)])
                    rows[kind] += decode(vocabularies[i % 40], x, lexicon, folder)
    with_unk(logprobs, texts, vocabularies)
    for at, kind in enumerate(KINDS):
        known = [
            [row[at] for row in rows[name]] for name in ("own words", "other words")
        ]
        right = [True] * len(known[0]) + [False] * len(known[1])
        area = quality(known[0] + known[1], right).auc
        print(f"{kind}: area under the curve, own against other words: {area:.3f}")
        for name, some in rows.items():
            kept = [
                np.mean([row[at] >= x for row in some]) if some else 0
                for x in THRESHOLDS
            ]
            shares = " ".join(f"{100 * x:5.1f}" for x in kept)
            print(f"  {name:18} {len(some):5} words, % kept at {THRESHOLDS}: {shares}")


if __name__ == "__main__":
    main()
