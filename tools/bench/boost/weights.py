"""How a phrase's credit is spread: a tree, uniform weights, words, hotwords.

    pip install --no-deps pyctcdecode==0.5.0 && pip install pygtrie
    python -m tools.bench.boost weights --utterances 100 --output run.json
    python -m tools.bench.boost weights --case bpe-hard:pieces --output run.json

After "TurboBias: Universal ASR Context-Biasing powered by GPU-accelerated
Phrase-Boosting Tree" (arXiv 2508.07014), tables of methods. One list for all
utterances: rare words that are said and `--others` times as many that are not. P, R and
F are of those that are said. The trie is boosted by

    words     each word its nats, where its label stands
    totals    token by token along the tree, each word worth the same nats
    tree      token by token; a token is worth more the later it comes: the paper's
    uniform   token by token, all tokens worth the same

and `hotwords` are pyctcdecode's, with their weight in nats. With `tree` and `uniform` a
longer word is worth more; one of the list's mean length is worth the nats that are
told.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import Run
from tools.bench.experiments import pieces_of
from tools.bench.report import Row
from wfstdec import TrieOptions, compare
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.compare.comparison import Decode, Outcome, Point, SearchFacts, Setting
from wfstdec.compare.peers import PyctcdecodePeer
from wfstdec.search.decoder import Decoder
from wfstdec.text.lexicon import read_lexicon

MAGNITUDES = [1.0, 2.0, 4.0, 6.0, 8.0]
SPREADS: Mapping[str, PhraseOptions] = {
    "totals": PhraseOptions(weights_are_totals=True),
    "tree": PhraseOptions(),
    "uniform": PhraseOptions(uniform=True),
}


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--magnitudes", nargs="+", type=float, default=MAGNITUDES)
    parser.add_argument("--others", type=int, default=4, help="times as many, unsaid")
    parser.add_argument("--beam-size", type=int, default=256)
    parser.add_argument("--peer-width", type=int, default=100)
    parser.add_argument("--no-peer", action="store_true", help="without pyctcdecode")


def word_list(case: Case, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The rare words that are said, and the whole list."""
    rare = experiments.rare_words(case, args.common)
    spoken = set().union(*case.speech.references.values())
    known = rare
    if case.lexicon is None:  # rare words are then those of the references alone
        recipe = case.speech.recipe
        known = sorted(set(read_lexicon(recipe.lexicon, case.tokens).words))
    said = [word for word in rare if word in spoken]
    others = [word for word in known if word not in spoken]
    count = min(len(others), args.others * len(said))
    return said, said + random.Random(args.seed).sample(others, count)


@dataclass(frozen=True)
class Spread:
    """Compiles `word -> nats` for one of our decoders; see the module."""

    options: PhraseOptions
    mean_length: int
    sentencepiece_model: Any

    def __call__(self, decoder: Decoder, numbers: Mapping[str, float] | None) -> Any:
        if numbers is None:
            return None
        compiler = decoder.phrase_compiler(
            self.options, unit="token", sentencepiece_model=self.sentencepiece_model
        )
        if not self.options.weights_are_totals:
            worth = float(self.options.base(self.mean_length)[-1])
            numbers = {word: nats / worth for word, nats in numbers.items()}
        return compiler.compile(numbers)


@dataclass(frozen=True, eq=False)
class Hotwords:
    """pyctcdecode with hotwords; a `Search`. Boosts are words, all of the same nats."""

    peer: PyctcdecodePeer
    width: int
    takes_boosts: bool = True

    @property
    def name(self) -> str:
        """The peer's, and what it is given."""
        return f"{self.peer.name}, hotwords"

    @property
    def settings(self) -> Sequence[Setting]:
        """Settings of the peer at the width of the experiment."""
        return [one for one in self.peer.settings() if one["beam_width"] == self.width]

    @property
    def facts(self) -> SearchFacts:
        """Nothing more."""
        return SearchFacts()

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """Pass hotwords on as they are: the peer compiles them at each call."""
        return boosts

    def prepare(self, setting: Setting) -> Decode:
        """See `Search.prepare`."""

        def decode(
            utterances: Sequence[np.ndarray], boosts: Sequence[Any] | None
        ) -> list[Outcome]:
            found = []
            lists = boosts or [None] * len(utterances)
            for rows, numbers in zip(utterances, lists, strict=True):
                given: dict[str, Any] = {}
                if numbers is not None:
                    [nats] = set(numbers.values())  # it has one weight for all words
                    given = {"hotwords": list(numbers), "hotword_weight": nats}
                text = self.peer.decoder.decode(rows, **setting, **given)
                found.append(Outcome(text))
            return found

        return decode


def searches_of(case: Case, listed: list[str], args: argparse.Namespace) -> list[Any]:
    """The trie in all ways, and pyctcdecode where there is a lexicon."""
    factory = compare.trie_factory(**case.files)
    options = TrieOptions(lm_scale=case.lm_scale)
    [trie] = compare.trie_searches(factory, options, {"beam_size": [args.beam_size]})
    pieces = pieces_of(case)
    compiler = factory(options).phrase_compiler(
        unit="token", sentencepiece_model=pieces
    )
    lengths = [len(spelt[0]) for spelt in compiler.speller(listed) if spelt]
    length = round(float(np.mean(lengths)))
    print(f"{len(listed)} words of {length} tokens on the average")
    found: list[Any] = []
    if case.lexicon is not None:
        found.append(replace(trie, name="trie, words"))
        if not args.no_peer:
            found.append(Hotwords(PyctcdecodePeer(case.peer_inputs()), args.peer_width))
    for name, given in SPREADS.items():
        spread = Spread(given, length, pieces)
        found.append(replace(trie, name=f"trie, {name}", compile=spread))
    return found


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own, words=False)
    said, listed = word_list(case, args)
    boosts = {
        f"{nats:g}": dict.fromkeys(case.speech.references, dict.fromkeys(listed, nats))
        for nats in args.magnitudes
    }

    def describe(point: Point) -> Row:
        return {"magnitude": float(point.boosts or 0), "words": len(listed)}

    return experiments.compare_lists(
        Run("tools.bench.boost.weights", args),
        case,
        searches_of(case, listed, args),
        boosts=boosts,
        phrases=said,
        describe=describe,
    )
