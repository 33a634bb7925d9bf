"""Word confidences from lattices: how good they are, beside mean token posteriors.

    python -m tools.bench.confidence --output run.json
    python -m tools.bench.confidence --profile small

Every second speaker of dev is for tuning: the scale of the lattice's posteriors, and
the power of the baseline (the mean over a word's tokens of the mean posterior of each
token over its frames), both for the best normalised cross-entropy. The others, and the
speaker of LJ Speech, are tested with these numbers. A name begins with its speaker, up
to the first `-`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tools.bench import data
from tools.bench.cases import Case, Inputs, lattice_flags, load_set, make_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from wfstdec.compare.confidence import (
    area_under_roc,
    normalised_cross_entropy,
    reliability,
    right_words,
)
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.mbr import minimum_bayes_risk, word_confidences
from wfstdec.metrics import score_texts
from wfstdec.search.hypothesis import Hypothesis

PROFILES = profiles({"sets": ["dev", "ljspeech"]}, sets=["dev"], utterances=20)
SCALES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)
POWERS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


class Decoded(NamedTuple):
    """An utterance: what was said, heard, and what its lattice has."""

    reference: Sequence[str]
    hypothesis: Hypothesis
    lattice: Lattice
    logprobs: np.ndarray

    @property
    def right(self) -> list[bool]:
        return right_words(self.reference, [w.text for w in self.hypothesis.words])


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--lm", help="a name in the data, or an ARPA file")
    lattice_flags(parser)
    parser.add_argument("--lattice-beam", type=float, default=8.0)
    return parse(parser, argv, PROFILES)


def decode(case: Case, args: argparse.Namespace) -> dict[str, Decoded]:
    """All utterances of a set."""
    decoder, speech = case.lattice_decoder(args, args.lattice_beam), case.speech
    hypotheses = decoder.decode(case.utterances)
    lattices = decoder.decode_lattice(case.utterances)
    found = zip(speech.logprobs, hypotheses, lattices, strict=True)
    return {
        name: Decoded(speech.references[name], hyp, lattice, speech.logprobs[name])
        for name, hyp, lattice in found
    }


def from_lattices(decoded: Sequence[Decoded], scale: float) -> list[float]:
    """The confidences of all words."""
    found = [word_confidences(one.lattice, scale).confidences for one in decoded]
    return [confidence for one in found for confidence in one]


def from_tokens(decoded: Sequence[Decoded], power: float) -> list[float]:
    """The baseline of all words."""
    found = []
    for one in decoded:
        tokens = one.hypothesis.tokens
        ids = one.hypothesis.token_ids
        means = [
            float(np.exp(one.logprobs[t.start_frame : t.end_frame, i]).mean())
            for t, i in zip(tokens, ids, strict=True)
        ]
        for word in one.hypothesis.words:
            inside = [
                mean
                for mean, t in zip(means, tokens, strict=True)
                if t.start_frame >= word.start_frame and t.end_frame <= word.end_frame
            ]
            found.append(min(1.0, float(np.mean(inside)) if inside else 0.5) ** power)
    return found


def tuned(decoded: Sequence[Decoded]) -> tuple[float, float]:
    """The scale and the power of the best normalised cross-entropy."""
    right = [one for utterance in decoded for one in utterance.right]

    def best(values: Sequence[float], confidences: Any) -> float:
        nce = [normalised_cross_entropy(confidences(decoded, v), right) for v in values]
        return values[int(np.argmax(nce))]

    return best(SCALES, from_lattices), best(POWERS, from_tokens)


def measure(name: str, decoded: Sequence[Decoded], scale: float, power: float) -> Row:
    """The measures of a set, of ours and of the baseline, and what MBR does."""
    right = [one for utterance in decoded for one in utterance.right]
    kinds = {
        "lattice": from_lattices(decoded, scale),
        "lattice_scale_1": from_lattices(decoded, 1.0),
        "mean_token_posterior": from_tokens(decoded, power),
        "mean_token_posterior_as_is": from_tokens(decoded, 1.0),
    }
    row: Row = {"set": name, "words": len(right), "right": sum(right) / len(right)}
    for kind, confidences in kinds.items():
        row[kind] = {
            "nce": round(normalised_cross_entropy(confidences, right), 4),
            "auc": round(area_under_roc(confidences, right), 4),
        }
    row["reliability"] = [
        [round(one.confidence, 4), round(one.right, 4), one.words]
        for one in reliability(kinds["lattice"], right)
    ]
    references, best, least = {}, {}, {}
    for i, one in enumerate(decoded):
        references[str(i)] = one.reference
        best[str(i)] = one.hypothesis.text.split()
        words = one.lattice.word_ids(minimum_bayes_risk(one.lattice, scale).arcs)
        least[str(i)] = [one.lattice.words[word] for word in words]
    row["wer"] = round(score_texts(references, best).wer, 3)
    return row | {"mbr_wer": round(score_texts(references, least).wer, 3)}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, inputs = Run("tools.bench.confidence", args), Inputs.of(args)
    lm = args.lm or data.default_lms(inputs.data)[0]
    sets = {
        name: decode(make_case(load_set(name, inputs), lm, inputs), args)
        for name in args.sets
    }
    dev = sets.pop("dev")
    speakers = sorted({name.split("-")[0] for name in dev})
    given = [one for name, one in dev.items() if name.split("-")[0] in speakers[::2]]
    others = [one for name, one in dev.items() if name.split("-")[0] in speakers[1::2]]
    scale, power = tuned(given)
    print(f"{len(speakers)} speakers; scale {scale}, power {power}")
    tested = {"dev, other speakers": others}
    tested |= {name: list(one.values()) for name, one in sets.items()}
    rows = (measure(name, one, scale, power) for name, one in tested.items())
    tuning = {"scale": scale, "power": power, "speakers": len(speakers)}
    lm_name = data.name_of_lm(data.find_lm(lm, inputs.data))
    return run.finish(rows, lm=lm_name, tuned=tuning)


if __name__ == "__main__":
    exit_with(main)
