"""The part of `results.py` on sets that are made up, small and full of ties.

made = Made(recording, checkout, folder)
made.record_set("V=40", Size(num_tokens=40, num_words=300))
made.record_tiny(range(18))                # every backend, the emulated device too
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from itertools import chain, groupby, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from checkouts import use_emulated_device
from recordings import Logprobs, Recording
from results_real import TOPOLOGIES, graph_record
from small_sets import Size, SmallSet, noisy_logprobs, write_set

import wfstdec
from wfstdec.boost import phrases as spelling

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
        graph = wfstdec.build_graph(**arguments)
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
            if seed % 3 == 1:
                graph = with_coarse_costs(graph, rng)
            elif seed % 3 == 2:
                graph, topology = random_graph(graph, rng), "none"
            batch = {f"short{t}": tiny_logprobs(rng, t, size) for t in (0, 1, 5, 8)}
            batch["flat"] = np.zeros((5, size.num_tokens), np.float32)
            more = dataclasses.replace(made, logprobs=batch | made.logprobs)
            self._record_tiny_graph(f"{seed}, {topology}", graph, more, seed)
            if seed % 2:
                continue
            fewer = batch | {"utt00": made.logprobs["utt00"]}
            less = dataclasses.replace(made, logprobs=fewer)
            self._record_tiny_trie(f"{seed}", less)

    def _record_tiny_graph(
        self, case: str, graph: Any, made: SmallSet, seed: int
    ) -> None:
        every = self._boosts(graph.words, graph.tokens, made)
        for i, changes in enumerate(TINY_OPTIONS):
            kinds = every if i == seed % 3 else {"no boosts": None}
            for backend in ("cpu", "reference", "emulated"):
                searched = "cpu" if backend == "emulated" else backend
                decoder = self._wfst(graph, changes, searched)
                if backend == "emulated":
                    self._emulate(decoder, seed)
                for kind, boosts in kinds.items():
                    key = f"{case}, {i}, {backend}, {kind}"
                    self._record(MODES[(seed + i) % 2], key, decoder, made, boosts)

    def _record(
        self, mode: str, key: str, decoder: Any, made: SmallSet, boosts: Any
    ) -> None:
        getattr(self.recording, mode)(key, decoder, made.logprobs, boosts)

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
            trie = wfstdec.TrieDecoder(**how, lexicon=made.lexicon, lm=made.arpa)
            bare = wfstdec.TrieDecoder(**how, **token_lm)
            greedy = wfstdec.GreedyDecoder(**how, **token_lm)
            every = self._boosts(trie.words, trie.tokens, made)
            pieces = self._boosts((), trie.tokens, made)
            for name, decoder, kinds, cases in (
                ("trie", trie, every, TINY_TRIE),
                ("tokens", bare, pieces, TINY_TRIE),
                ("greedy", greedy, pieces, GREEDY),
            ):
                for options, changes in cases.items():
                    other = decoder.with_options(**changes)
                    for kind, boosts in kinds.items():
                        key = f"{case}, {name}, {options}, {backend}, {kind}"
                        self.recording.decode(key, other, made.logprobs, boosts)

    def _record_wfst(self, made: SmallSet) -> None:
        for topology in ("normal", "compact"):
            graph = self._graph(made, topology)
            self.recording.note(topology, graph_record(graph))
            kinds = self._boosts(graph.words, graph.tokens, made)
            for case, changes in WFST.items():
                decoder = self._wfst(graph, changes, "cpu")
                for kind, mode in product(kinds, MODES):
                    key = f"{topology}, {case}, {kind}, {mode}"
                    self._record(mode, key, decoder, made, kinds[kind])
            decoder = self._wfst(graph, WFST["few active"], "cpu")
            self._emulate(decoder, seed=1)
            few = dict(list(made.logprobs.items())[:2])
            for kind, boosts in kinds.items():
                if not isinstance(boosts, list):
                    key = f"{topology}, emulated, {kind}"
                    self.recording.decode(key, decoder, few, boosts)

    def _record_trie(self, made: SmallSet) -> None:
        files = {"tokens": made.tokens, "lexicon": made.lexicon, "lm": made.arpa}
        for lookahead in ("ngram", "unigram", "none"):
            options = wfstdec.TrieOptions(lookahead=lookahead)
            trie = wfstdec.TrieDecoder(**files, options=options, **self.common)
            kinds = self._boosts(trie.words, trie.tokens, made)
            modes = MODES if lookahead == "ngram" else MODES[:1]
            for case, kind, mode in product(TRIE, kinds, modes):
                decoder = trie.with_options(**TRIE[case])
                key = f"trie, {lookahead}, {case}, {kind}, {mode}"
                self._record(mode, key, decoder, made, kinds[kind])

    def _record_tokens(self, made: SmallSet) -> None:
        for kind, cases in (("Trie", TRIE), ("Greedy", GREEDY)):
            files = {"tokens": made.tokens, "lm": made.token_arpa, **self.common}
            first = getattr(wfstdec, f"{kind}Decoder")(**files)
            kinds = self._boosts((), first.tokens, made)
            for case, changes in cases.items():
                decoder = first.with_options(**changes)
                for said, boosts in kinds.items():
                    key = f"tokens, {kind.lower()}, {case}, {said}"
                    self.recording.decode(key, decoder, made.logprobs, boosts)

    def _boosts(
        self, words: tuple[str, ...], tokens: Any, made: SmallSet
    ) -> dict[str, Any]:
        """Boosts of what is often said, which overlap and weigh the same; and none."""
        kinds = {"no boosts": None}
        if words:
            kinds |= self._word_boosts(words, made)
        return kinds | self._token_boosts(tokens, made)

    def _word_boosts(self, words: tuple[str, ...], made: SmallSet) -> dict[str, Any]:
        ids = {word: i for i, word in enumerate(words) if i}
        spoken = [[w for w in s if w in ids] for s in made.references.values()]
        texts = _short_texts(spoken)
        few = [text for text in texts if " " not in text]
        some = {word: (1.5, -0.5, 1.5)[i % 3] for i, word in enumerate(few)}
        several = {text: 2.0 for text in texts if " " in text}
        make, speller = wfstdec.PhraseCompiler, spelling.by_words(ids)
        flat = wfstdec.PhraseOptions(uniform=True)
        count = len(made.logprobs)
        return {
            "words": [some if i % 3 else None for i in range(count)],
            "several words": some | several,
            "phrases of words": make(speller, words).compile(_weighted(texts)),
            "phrases of words, alike": make(speller, words, flat).compile(texts),
        }

    def _token_boosts(self, tokens: Any, made: SmallSet) -> dict[str, Any]:
        pieces = [token for token in range(len(tokens)) if token != tokens.blank]
        names = [tokens.names[token] for token in pieces]
        own = SimpleNamespace(words=names, pronunciations=[(t,) for t in pieces])
        make, speller = wfstdec.PhraseCompiler, spelling.by_lexicon(own)
        spoken = _spoken(tokens, made.logprobs)
        texts = _short_texts(spoken)
        totals = {"weights_are_totals": True, "outside_cost": 0.25}
        outside = wfstdec.PhraseOptions(**totals)
        flat = wfstdec.PhraseOptions(uniform=True)
        edge = Counter(chain.from_iterable(spoken)).most_common(1)[0][0]
        whole = make(speller, tokens, None, tokens.ids[edge])
        return {
            "tokens": make(speller, tokens).compile(_weighted(texts)),
            "tokens, outside": make(speller, tokens, outside).compile(_weighted(texts)),
            "tokens, alike": make(speller, tokens, flat).compile(texts),
            "tokens, whole": whole.compile(_weighted(_between(edge, spoken))),
        }

    def _graph(self, made: SmallSet, topology: str) -> Any:
        files = {"tokens": made.tokens, "lexicon": made.lexicon, "arpa": made.arpa}
        return wfstdec.build_graph(**files, topology=topology)

    def _wfst(self, graph: Any, changes: dict[str, Any], backend: str) -> Any:
        options = wfstdec.WfstOptions(**changes)
        return wfstdec.WfstDecoder(graph, options, backend, **self.common)


def with_coarse_costs(graph: Any, rng: np.random.Generator) -> Any:
    """Draw a graph's costs anew, as multiples of a quarter, many of them equal."""
    fst = graph.unpack()
    repeats = graph.arcs["ilabel"] >> 31 == 1  # the uppermost bit marks them
    cost = (rng.integers(-1, 6, fst.num_arcs) / 4).astype(np.float32)
    fst = dataclasses.replace(fst, cost=cost)
    return type(graph).pack(fst, repeats, graph.vocabulary, graph.info)


def random_graph(like: Any, rng: np.random.Generator, num_states: int = 6) -> Any:
    """A graph that means nothing, with the tables of another one.

    Arcs between few states, of few labels and costs: the search meets in one state by
    many ways, at one cost. Epsilon arcs lead onwards, and state 0 everywhere.
    """
    state = np.repeat(np.arange(num_states), 9)
    nextstate = rng.integers(0, num_states, len(state))
    nextstate[:num_states] = np.arange(num_states)
    few = rng.choice(len(like.tokens), 4, replace=False) + 1
    epsilon = (state < nextstate) & (rng.random(len(state)) < 0.3)
    says = rng.random(len(state)) < 0.6
    fst = dataclasses.replace(
        like.unpack(),
        start=0,
        final_cost=np.where(np.arange(num_states) % 3, 0.0, np.inf).astype(np.float32),
        state_arc_splits=np.arange(num_states + 1) * 9,
        ilabel=np.where(epsilon, 0, rng.choice(few, len(state))).astype(np.int32),
        olabel=np.where(says, rng.integers(1, len(like.words), len(state)), 0),
        nextstate=nextstate.astype(np.int32),
        cost=(rng.integers(0, 3, len(state)) / 4).astype(np.float32),
    )
    repeats = ~epsilon & (rng.random(len(state)) < 0.25)
    return type(like).pack(fst, repeats, like.vocabulary, like.info)


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
