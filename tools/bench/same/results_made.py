"""The part of `results.py` on sets that are made up, small and full of ties.

made = Made(recording, checkout, folder)
made.record_set("V=40", Size(num_tokens=40, num_words=300))
made.record_tiny(range(20))                # every backend, the emulated device too
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from checkouts import public, spelling, use_emulated_device
from recordings import Logprobs, Recording
from results_real import graph_record
from small_sets import Size, SmallSet, noisy_logprobs, write_set

TOPOLOGIES = (
    "normal",
    "compact",
    "eesen",
    "minimal",
    "normal-selfless",
    "compact-selfless",
)
SETS = {
    "V=40": Size(num_tokens=40, num_words=300),
    "V=300": Size(num_tokens=300, num_words=700, num_utterances=8, noise=1.2),
}
"""Up to 63 tokens arcs are found by label, above that row by row."""
WFST = {
    "wide": {"beam": 14.0, "max_active": None},
    "narrow": {"beam": 5.0},
    "few active": {"beam": 12.0, "max_active": 30, "min_active": 8, "beam_delta": 0.5},
    "penalties": {
        "beam": 9.0,
        "lm_scale": 0.75,
        "word_insertion": 0.5,
        "blank_penalty": 0.25,
        "blank_skip_threshold": 0.9,
    },
}
TRIE = {
    "wide": {"beam": 14.0, "beam_size": 200},
    "narrow": {"beam": 6.0, "beam_size": 12, "lm_scale": 0.5},
    "sum": {"beam": 10.0, "beam_size": 60, "merge": "sum"},
    "n-best": {"beam": 12.0, "beam_size": 60, "nbest": 5},
    "n-best of sums": {"beam": 12.0, "beam_size": 60, "nbest": 5, "merge": "sum"},
}
GREEDY = {"plain": {}, "scaled": {"lm_scale": 0.5, "blank_penalty": 1.0}}
TINY_OPTIONS = (
    {"beam": 30.0},
    {"beam": 3.0, "max_active": 4, "min_active": 2, "beam_delta": 0.5},
    {"beam": 6.0, "max_active": 6, "word_insertion": -0.5, "lm_scale": 0.5},
)
TINY_TRIE = {
    "narrow": {"beam": 5.0, "beam_size": 8, "lm_scale": 0.5},
    "n-best of sums": {"beam": 7.0, "beam_size": 14, "nbest": 4, "merge": "sum"},
}
MODES = ("decode", "in_chunks")


class Made:
    """Records of sets that are made up.

    Args:
        recording: Where they go.
        checkout: Whose tests have the emulated device.
        folder: For files that are written.
    """

    def __init__(self, recording: Recording, checkout: Path, folder: Path) -> None:
        self.recording, self.checkout, self.folder = recording, checkout, folder
        self.common = {"threads": recording.threads}

    def record_set(self, name: str, size: Size) -> None:
        """All decoders on a set with a spelled lexicon."""
        made = write_set(self.folder / name, size, size.num_tokens)
        self._record_wfst(made)
        self._record_trie(made)
        self._record_tokens(made)

    def record_builds(self) -> None:
        """Ways to build a graph that real speech does without."""
        size = Size(num_tokens=9, num_words=12, num_utterances=3, sentence=4)
        made = write_set(self.folder / "builds", size, 9)
        words = ["<s>", "w3", "w4", "</s>"]
        short = "\n".join(["\\data\\", "ngram 1=4", "", "\\1-grams:"])
        lines = [f"{-0.5 * i:.1f}\t{word}" for i, word in enumerate(words, 1)]
        lacks = self.folder / "lacks_words.arpa"
        lacks.write_text("\n".join([short, *lines, "", "\\end\\", ""]), "utf-8")
        for topology in TOPOLOGIES:
            for case, options in {
                "plain": {},
                "separator": {"separator": "t8"},
                "optional": {"separator": "t8", "separator_optional": True},
                "silence": {"silence": "▁t1", "silence_prob": 0.25},
                "unknown words": {"arpa": lacks, "unk_cost": 4.0},
                "not minimized": {"minimize": False},
                "blank in the middle": {"blank": "▁t3"},
            }.items():
                self._record_build(made, f"{topology}, {case}", topology, options)

    def _record_build(
        self, made: SmallSet, case: str, topology: str, options: dict[str, Any]
    ) -> None:
        """A graph, and what it finds; the lexicon loses entries with these tokens."""
        marked = {"<blank>", options.get("blank"), options.get("separator")}
        lines = made.lexicon.read_text("utf-8").splitlines()
        kept = [line for line in lines if not marked & set(line.split()[1:])]
        path = self.folder / "builds.txt"
        path.write_text("".join(f"{line}\n" for line in kept), "utf-8")
        arguments = {"tokens": made.tokens, "lexicon": path, "arpa": made.arpa}
        arguments |= {"topology": topology, "blank": "<blank>"} | options
        graph = public("build_graph")(**arguments)
        self.recording.note(case, graph_record(graph))
        decoder = self._wfst(graph, {"beam": 20.0, "max_active": 200}, "cpu")
        self.recording.decode(case, decoder, made.logprobs)

    def record_tiny(self, seeds: range) -> None:
        """Tiny graphs with costs that tie, by every backend; tiny tries as well.

        Raises:
            SystemExit: There is no g++ for the emulated device.
        """
        if shutil.which("g++") is None:
            raise SystemExit("no g++, which compiles the emulated device")
        for seed in seeds:
            rng = np.random.default_rng(seed)
            size = Size(int(rng.integers(6, 11)), 8, num_utterances=3, sentence=3)
            made = write_set(self.folder / f"tiny {seed}", size, seed)
            topology = TOPOLOGIES[seed % len(TOPOLOGIES)]
            graph = self._graph(made, topology)
            if seed % 3:
                graph = with_coarse_costs(graph, rng)
            batch = {f"short{t}": tiny_logprobs(rng, t, size) for t in (0, 1, 5, 8)}
            batch["flat"] = np.zeros((5, size.num_tokens), np.float32)
            more = dataclasses.replace(made, logprobs=batch | made.logprobs)
            self._record_tiny_graph(f"{seed}, {topology}", graph, more, seed)
            fewer = batch | {"utt00": made.logprobs["utt00"]}
            less = dataclasses.replace(made, logprobs=fewer)
            self._record_tiny_trie(f"{seed}", less)

    def _record_tiny_graph(
        self, case: str, graph: Any, made: SmallSet, seed: int
    ) -> None:
        phrases = dict(self._phrases(graph.words, graph.tokens, made))
        for i, changes in enumerate(TINY_OPTIONS):
            kinds = {"no boosts": None} | (phrases if i == seed % 3 else {})
            for backend in ("cpu", "reference", "emulated"):
                searched = "cpu" if backend == "emulated" else backend
                decoder = self._wfst(graph, changes, searched)
                if backend == "emulated":
                    self._emulate(decoder, seed)
                for kind, boosts in kinds.items():
                    mode = MODES[(seed + i) % 2]
                    record = getattr(self.recording, mode)
                    key = f"{case}, {i}, {backend}, {kind}"
                    record(key, decoder, made.logprobs, boosts)

    def _emulate(self, decoder: Any, seed: int) -> None:
        use_emulated_device(
            decoder,
            self.checkout,
            threads=(32, 64)[seed % 2],
            preempt=3,
            seed=seed,
            shared_slots=(0, 16, 64)[seed % 3],
            first_capacity=4,
        )

    def _record_tiny_trie(self, case: str, made: SmallSet) -> None:
        """A trie, bare tokens and greedy decoding, in numba and in plain Python."""
        files = {"tokens": made.tokens, **self.common}
        token_lm = {"lm": made.token_arpa}
        for backend in ("cpu", "reference"):
            how = files | {"backend": backend}
            trie = public("TrieDecoder")(**how, lexicon=made.lexicon, lm=made.arpa)
            bare = public("TrieDecoder")(**how, **token_lm)
            greedy = public("GreedyDecoder")(**how, **token_lm)
            words = dict(self._phrases(trie.words, trie.tokens, made))
            pieces = {k: v for k, v in words.items() if "tokens" in k}
            for name, decoder, kinds, cases in (
                ("trie", trie, words, TINY_TRIE),
                ("tokens", bare, pieces, TINY_TRIE),
                ("greedy", greedy, pieces, GREEDY),
            ):
                for options, changes in cases.items():
                    other = decoder.with_options(**changes)
                    for kind, boosts in ({"no boosts": None} | kinds).items():
                        key = f"{case}, {name}, {options}, {backend}, {kind}"
                        self.recording.decode(key, other, made.logprobs, boosts)

    def _record_wfst(self, made: SmallSet) -> None:
        for topology in ("normal", "compact"):
            graph = self._graph(made, topology)
            self.recording.note(topology, graph_record(graph))
            kinds = dict(self._phrases(graph.words, graph.tokens, made))
            for case, changes in WFST.items():
                decoder = self._wfst(graph, changes, "cpu")
                for kind, boosts in ({"no boosts": None} | kinds).items():
                    for mode in MODES:
                        key = f"{topology}, {case}, {kind}, {mode}"
                        record = getattr(self.recording, mode)
                        record(key, decoder, made.logprobs, boosts)
            decoder = self._wfst(graph, WFST["few active"], "cpu")
            self._emulate(decoder, seed=1)
            few = dict(list(made.logprobs.items())[:2])
            for kind, boosts in ({"no boosts": None} | kinds).items():
                if not isinstance(boosts, list):
                    key = f"{topology}, emulated, {kind}"
                    self.recording.decode(key, decoder, few, boosts)

    def _record_trie(self, made: SmallSet) -> None:
        files = {"tokens": made.tokens, "lexicon": made.lexicon, "lm": made.arpa}
        for lookahead in ("ngram", "unigram", "none"):
            options = public("TrieOptions")(lookahead=lookahead)
            trie = public("TrieDecoder")(**files, options=options, **self.common)
            kinds = dict(self._phrases(trie.words, trie.tokens, made))
            for case, changes in TRIE.items():
                decoder = trie.with_options(**changes)
                for kind, boosts in ({"no boosts": None} | kinds).items():
                    for mode in MODES if lookahead == "ngram" else MODES[:1]:
                        key = f"trie, {lookahead}, {case}, {kind}, {mode}"
                        record = getattr(self.recording, mode)
                        record(key, decoder, made.logprobs, boosts)

    def _record_tokens(self, made: SmallSet) -> None:
        for kind, cases in (("Trie", TRIE), ("Greedy", GREEDY)):
            files = {"tokens": made.tokens, "lm": made.token_arpa, **self.common}
            first = public(f"{kind}Decoder")(**files)
            lists = self._phrases((), first.tokens, made)
            for case, changes in cases.items():
                decoder = first.with_options(**changes)
                for said, boosts in ({"no boosts": None} | dict(lists)).items():
                    key = f"tokens, {kind.lower()}, {case}, {said}"
                    self.recording.decode(key, decoder, made.logprobs, boosts)

    def _phrases(
        self, words: tuple[str, ...], tokens: Any, made: SmallSet
    ) -> Iterator[tuple[str, Any]]:
        """Boosts of what is often said, which overlap and weigh the same."""
        count = len(made.logprobs)
        make, by_words = public("PhraseCompiler"), spelling().by_words
        if words:
            ids = {word: i for i, word in enumerate(words) if i}
            spoken = [[w for w in s if w in ids] for s in made.references.values()]
            few = [one for one in _short_texts(spoken) if " " not in one]
            some = {word: (1.5, -0.5, 1.5)[i % 3] for i, word in enumerate(few)}
            yield "words", [some if i % 3 else None for i in range(count)]
            pairs = [one for one in _short_texts(spoken) if " " in one]
            yield "several words", some | dict.fromkeys(pairs, 2.0)
            said = _weighted(_short_texts(spoken))
            yield "phrases of words", make(by_words(ids), words).compile(said)
            flat = public("PhraseOptions")(uniform=True)
            alike = make(by_words(ids), words, flat).compile(list(said))
            yield "words, all alike", alike
        pieces = [token for token in range(len(tokens)) if token != tokens.blank]
        names = [tokens.names[token] for token in pieces]
        own = SimpleNamespace(words=names, pronunciations=[(t,) for t in pieces])
        speller = spelling().by_lexicon(own)
        spoken = _spoken(tokens, made.logprobs)
        said = _weighted(_short_texts(spoken))
        how = public("PhraseOptions")(weights_are_totals=True, outside_cost=0.25)
        yield "tokens", make(speller, tokens).compile(said)
        yield "tokens, outside", make(speller, tokens, how).compile(said)
        flat = public("PhraseOptions")(uniform=True)
        yield "tokens, all alike", make(speller, tokens, flat).compile(list(said))
        edge = Counter(chain.from_iterable(spoken)).most_common(1)[0][0]
        inside = _weighted(_between(edge, spoken))
        whole = make(speller, tokens, None, tokens.ids[edge]).compile(inside)
        yield "tokens between boundaries", whole

    def _graph(self, made: SmallSet, topology: str) -> Any:
        return public("build_graph")(
            tokens=made.tokens,
            lexicon=made.lexicon,
            arpa=made.arpa,
            topology=topology,
        )

    def _wfst(self, graph: Any, changes: dict[str, Any], backend: str) -> Any:
        options = public("WfstOptions")(**changes)
        return public("WfstDecoder")(graph, options, backend, **self.common)


def with_coarse_costs(graph: Any, rng: np.random.Generator) -> Any:
    """The same graph with random costs, multiples of a quarter, many of them equal."""
    fst = graph.unpack()
    repeats = graph.arcs["ilabel"] >> 31 == 1  # the uppermost bit marks them
    cost = (rng.integers(-1, 6, fst.num_arcs) / 4).astype(np.float32)
    return type(graph).pack(dataclasses.replace(fst, cost=cost), repeats, graph.tables)


def tiny_logprobs(rng: np.random.Generator, frames: int, size: Size) -> np.ndarray:
    """Log-probs that mean nothing, float32 [T, V]: halves, some impossible."""
    path = rng.integers(1, size.num_tokens, frames).tolist()
    drawn = noisy_logprobs(rng, path, size)[:frames]
    drawn = np.round(2 * drawn) / 2
    drawn[rng.random(drawn.shape) < rng.choice([0, 0.05, 0.4])] = -np.inf
    return np.ascontiguousarray(drawn, np.float32)


def _spoken(tokens: Any, speech: Logprobs) -> list[list[str]]:
    """The most probable tokens of each utterance that has some, by name."""
    best = [np.argmax(x, axis=1) for x in speech.values() if x.size]
    starts = [x[np.flatnonzero(np.diff(x, prepend=-1))] for x in best]
    said = [[tokens.names[t] for t in x if t != tokens.blank] for x in starts]
    return [names for names in said if names]


def _short_texts(sequences: list[list[str]]) -> list[str]:
    """Different parts of sequences of names, one to three names long."""
    rng, parts = np.random.default_rng(len(sequences)), []
    for names in filter(None, sequences * 3):
        at = int(rng.integers(len(names)))
        parts.append(" ".join(names[at : at + int(rng.integers(1, 4))]))
    return list(dict.fromkeys(parts))[:20]


def _between(edge: str, sequences: list[list[str]]) -> list[str]:
    """Different parts that have a name, or an end of the sequence, on both sides."""
    parts = [
        " ".join(part)
        for names in sequences
        for same, part in groupby(names, lambda name: name == edge)
        if not same
    ]
    return sorted(dict.fromkeys(parts), key=len)[:20]


def _weighted(texts: list[str]) -> dict[str, float]:
    weights = (1.0, 1.0, 2.0, -1.0)
    return {text: weights[i % 4] for i, text in enumerate(texts)}
