"""Are the answers right? What `tools.bench.trie` asks before it prints a time.

faults = compare_backends(case, settings, make)       # cpu and reference, all bits
costs = TextCosts(case, texts)                        # an independent route
faults = check_hypotheses(case, costs, hypotheses)
costs.cost(utterance, text)                              # the best that a text can cost

Nothing here is of the search, of the language model's automaton or of its queries: the
model is read line by line, alignments are found by dynamic programming over the states
of a text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tools.bench import reference
from tools.bench.cases import Case
from tools.bench.costs import TOLERANCE
from tools.data.forced_alignment import Pronunciations, force_align, sausage
from wfstdec.compare.comparison import Setting
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.files import read_lines
from wfstdec.trie.decoder import TrieDecoder

SHORT, FEW = 40, 3
"""Frames and utterances that the reference, plain Python, is given."""

Words = tuple[str, ...]


class NgramScorer:
    """Sentence costs by true back-off, from the lines of an ARPA file.

    Only n-grams whose words occur next to each other in the sentences are kept.

    Args:
        arpa: The file.
        sentences: All that will be asked for.
    """

    def __init__(self, arpa: str, sentences: Iterable[Words]) -> None:
        lines = read_lines(arpa)
        counts = [line for line in lines[:20] if line.startswith("ngram ")]
        self._order, wanted = len(counts), set()
        for sentence in map(_with_marks, sentences):
            for start in range(len(sentence)):
                for length in range(1, self._order + 1):
                    wanted.add(sentence[start : start + length])
        self._costs: dict[Words, tuple[float, float]] = {}
        length = 0
        for line in lines:
            if line.endswith("-grams:"):
                length = int(line[1 : line.index("-")])
                continue
            fields = line.split()
            ngram = tuple(fields[1 : length + 1])
            if length and ngram in wanted and len(fields) > length:
                backoff = float(fields[length + 1]) if fields[length + 1 :] else 0.0
                values = -float(fields[0]), -backoff
                self._costs[ngram] = values[0] * math.log(10), values[1] * math.log(10)

    def cost(self, sentence: Words) -> float:
        """Nats, `</s>` included; `inf` with a word that the model lacks."""
        words = _with_marks(sentence)
        return sum(self._word_cost(words[:i], words[i]) for i in range(1, len(words)))

    def _word_cost(self, history: Words, word: str) -> float:
        backoff = 0.0
        for length in range(min(len(history), self._order - 1), -1, -1):
            context = history[len(history) - length :]
            if (*context, word) in self._costs:
                return backoff + self._costs[*context, word][0]
            backoff += self._costs.get(context, (0.0, 0.0))[1]
        return math.inf


class TextCosts:
    """Costs of texts by their best alignment and pronunciations, nats.

    Args:
        case: The log-probs, lexicon, language model and scale.
        sentences: All that will be asked for: words, or tokens without a lexicon.
    """

    def __init__(self, case: Case, sentences: Iterable[Words]) -> None:
        self._case = case
        self._scorer = NgramScorer(str(case.arpa), sentences)
        self._said: dict[str, list[Sequence[int]]] = {}
        if case.lexicon is not None:
            lexicon = case.lexicon
            for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
                self._said.setdefault(word, []).append(spelt)
        self._known: dict[tuple[str, str], float] = {}

    def lm_cost(self, sentence: Words) -> float:
        """The language model's cost, before its scale."""
        return self._scorer.cost(sentence)

    def cost(self, utterance: str, text: str) -> float:
        """The least total of a text of words; `inf` where the lexicon lacks one."""
        key, words = (utterance, text), tuple(text.split())
        if not all(word in self._said for word in words):
            return math.inf
        if key not in self._known:
            acoustic = self._aligned([self._said[word] for word in words], utterance)
            self._known[key] = acoustic + self._case.lm_scale * self.lm_cost(words)
        return self._known[key]

    def _aligned(self, words: Sequence[Pronunciations], utterance: str) -> float:
        case, logprobs = self._case, self._case.speech.logprobs[utterance]
        separator = case.tokens.index(case.separator) if case.separator else None
        states = sausage(words, case.tokens.blank, separator)
        path = force_align(logprobs, states)
        if len(path) < len(logprobs):
            return math.inf
        tokens = np.array(states.tokens)[path]
        return -float(logprobs[np.arange(len(path)), tokens].sum(dtype=np.float64))


def compare_backends(
    case: Case, settings: Sequence[Setting], make: Callable[[str], TrieDecoder]
) -> list[str]:
    """Where the CPU backend and the reference differ, in lines; of short utterances.

    Args:
        case: Whose utterances.
        settings: At which both search.
        make: Makes a decoder for a backend.
    """
    reference.load()
    fast, plain = map(make, ("cpu", "reference"))
    step = max(1, len(case.utterances) // FEW)
    utterances = [
        np.ascontiguousarray(rows[:SHORT]) for rows in case.utterances[::step]
    ]
    faults = []
    for setting in settings:
        ours = fast.with_options(**setting).decode(utterances)
        expected = plain.with_options(**setting).decode(utterances)
        faults += [
            f"{setting}: cpu {a.total_cost!r} {a.text!r}, reference {b.total_cost!r} "
            f"{b.text!r}"
            for a, b in zip(ours, expected, strict=True)
            if a != b
        ]
    return faults


def check_hypotheses(
    case: Case, costs: TextCosts, hypotheses: Mapping[str, Hypothesis], *, best: bool
) -> list[str]:
    """Hypotheses whose costs are not those of their words and tokens, in lines.

    Args:
        case: What they were decoded with.
        costs: Of all their sentences.
        hypotheses: By utterance.
        best: The total is that of the alignment they give (`merge="max"`); else it is
            a sum of which this is a part, and not above it.
    """
    faults = []
    for utterance, found in hypotheses.items():
        acoustic = alignment_cost(case.speech.logprobs[utterance], found, case)
        graph = costs.lm_cost(sentence_of(case, found)) if found.reached_final else 0.0
        total = acoustic + case.lm_scale * graph
        pairs = [("total", found.total_cost, total)]
        if best and found.reached_final:
            pairs.append(("acoustic", found.acoustic_cost, acoustic))
            pairs.append(("graph", found.graph_cost, graph))
        for name, ours, expected in pairs:
            difference = (ours - expected) / max(1.0, abs(expected))
            off = abs(difference) if best else difference
            if not off <= TOLERANCE and found.reached_final:
                faults.append(
                    f"{utterance}: {name} {ours:.6f}, expected {expected:.6f}"
                )
    return faults


def alignment_cost(logprobs: np.ndarray, found: Hypothesis, case: Case) -> float:
    """The acoustic cost of the tokens at the frames that a hypothesis gives."""
    tokens = np.full(len(logprobs), case.tokens.blank)
    for token, start, end in zip(found.token_ids, *found.token_frames, strict=True):
        tokens[start:end] = token
    return -float(logprobs[np.arange(len(tokens)), tokens].sum(dtype=np.float64))


def sentence_of(case: Case, found: Hypothesis) -> Words:
    """Labels that the language model scores: words, or tokens without a lexicon."""
    if case.lexicon is not None:
        return tuple(word.text for word in found.words)
    return tuple(case.tokens.names[token] for token in found.token_ids)


def _with_marks(sentence: Words) -> Words:
    return ("<s>", *sentence, "</s>")
