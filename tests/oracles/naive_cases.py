"""Random small cases for the oracle and the library, as plain data and file text.

`random_case(rng)` draws a `Case`; `solve(case)` lets the oracle read and decode it;
the library reads the same texts with its own readers.

    case = random_case(np.random.default_rng(17))
    answer = solve(case)            # a naive.Best
"""

from dataclasses import dataclass, field
from typing import Any

import naive
import naive_lm
import numpy as np
from naive_phrases import Phrases

WORD_NAMES = ("ann", "bob", "cy", "dee", "éva", "fin's")
LM_ONLY_NAMES = ("zed", "yak")
BLANK_NAMES = ("<blank>", "<blk>", "<b>", "<pad>", "[PAD]", "<ctc_blank>", "-", "_")
FILLERS = ("none", "separator", "separator_optional", "silence")


@dataclass(frozen=True)
class Case:
    """Input of a decoding; boosts and phrases have only words of possible sentences."""

    tokens: list[str]
    blank: str
    lexicon: str
    lexicon_has_probs: bool
    arpa: str
    logprobs: np.ndarray  # float32 [T, V]
    topology: str = "normal"
    separator: str | None = None
    separator_optional: bool = False
    silence: str | None = None
    silence_prob: float = 0.5
    unk_cost: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    boosts: dict[str, float] = field(default_factory=dict)
    phrases: Phrases | None = None

    @property
    def tokens_text(self):
        return "".join(f"{token}\n" for token in self.tokens)

    @property
    def usable_words(self):
        entries = naive.parse_lexicon(self.lexicon, self.lexicon_has_probs)
        known = naive_lm.parse_arpa(self.arpa).cost
        words = {entry.word for entry in entries}
        return {w for w in words if (w,) in known or self.unk_cost is not None}


def solve(case, *, tolerance=1e-4, exact_lm=False, logprobs=None):
    """The oracle's answer; exact_lm: true back-off (as kenlm), not epsilons (as G)."""
    scorer = naive_lm.exact_scorer if exact_lm else naive_lm.epsilon_scorer
    lexicon = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    fillers = naive.Fillers(
        case.separator, case.separator_optional, case.silence, case.silence_prob
    )
    phrases = case.phrases
    return naive.best(
        case.logprobs if logprobs is None else logprobs,
        tokens=case.tokens,
        blank=case.blank,
        lexicon=lexicon,
        sentence_cost=scorer(naive_lm.parse_arpa(case.arpa), case.unk_cost),
        topology=case.topology,
        fillers=fillers,
        options=naive.Options(**case.options),
        boosts=case.boosts,
        phrase_cost=phrases.coster(lexicon, fillers) if phrases else None,
        tolerance=tolerance,
    )


def random_case(
    rng,
    *,
    topology=None,
    fillers=None,
    num_tokens=None,
    num_frames=None,
    order=None,
    ties=None,
    plain=False,
):
    """Draw a case; fillers but "none" need num_tokens >= 3; ties: coarse grids."""
    topology = topology or str(rng.choice(naive.TOPOLOGIES))
    fewest = 2 if fillers in (None, "none") else 3
    num_tokens = num_tokens or int(rng.integers(fewest, 6))
    if fillers is None:
        fillers = "none" if num_tokens == 2 else str(rng.choice(FILLERS))
    if num_frames is None:
        num_frames = int(rng.choice(7, p=[0.04, 0.06, 0.1, 0.2, 0.2, 0.2, 0.2]))
    ties = bool(rng.random() < 0.3) if ties is None else ties

    tokens, blank, filler, letters = random_tokens(rng, num_tokens, fillers)
    lexicon, has_probs, words = random_lexicon(rng, letters)
    arpa, known = random_arpa(rng, words, order=order, ties=ties)
    unk_cost = float(rng.choice([0.5, 4.0])) if rng.random() < 0.4 else None
    usable = [w for w in words if w in known or unk_cost is not None]
    entries = naive.parse_lexicon(lexicon, has_probs)
    hint = random_sentence_frames(rng, tokens, entries, blank, filler, num_frames)
    return Case(
        tokens=tokens,
        blank=blank,
        lexicon=lexicon,
        lexicon_has_probs=has_probs,
        arpa=arpa,
        logprobs=random_logprobs(rng, num_frames, num_tokens, ties=ties, hint=hint),
        topology=topology,
        separator=filler if fillers.startswith("separator") else None,
        separator_optional=fillers == "separator_optional",
        silence=filler if fillers == "silence" else None,
        silence_prob=float(rng.choice([0.5, 0.2, 0.9])),
        unk_cost=unk_cost,
        options={} if plain else random_options(rng),
        boosts={} if plain else random_boosts(rng, usable),
    )


def random_tokens(rng, num_tokens, fillers):
    """The table in random order; its blank; its filler; the tokens left for words."""
    blank = str(rng.choice(BLANK_NAMES))
    filler = {"none": None, "silence": "SIL"}.get(fillers, "<wb>")
    letters = list("abcd")[: num_tokens - (1 if filler is None else 2)]
    tokens = [blank, *letters] + ([] if filler is None else [filler])
    return [tokens[i] for i in rng.permutation(num_tokens)], blank, filler, letters


def random_lexicon(rng, letters):
    """Text, whether it has probabilities, and words; pronunciations are often alike."""
    words = list(WORD_NAMES[: rng.integers(1, len(WORD_NAMES) + 1)])
    entries: list[tuple[str, tuple[str, ...]]] = []
    for word in words * 2:
        if any(word == w for w, _ in entries) and rng.random() < 0.7:
            continue  # most words have one pronunciation
        pron = tuple(rng.choice(letters, size=rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2])))
        if entries and rng.random() < 0.4:
            base = entries[rng.integers(len(entries))][1]
            pron = (base, (*base, pron[0]), (*base, base[-1]))[rng.integers(3)]
        if (word, pron) not in entries:
            entries.append((word, pron))
    has_probs = bool(rng.random() < 0.5)
    lines = []
    for i in rng.permutation(len(entries)):
        word, pron = entries[i]
        prob = [f"{rng.choice([1.0, 0.5, 0.25, 0.1]):g}"] if has_probs else []
        lines.append(rng.choice([" ", "\t"]).join([word, *prob, " ".join(pron)]))
    return "".join(f"{line}\n" for line in lines), has_probs, list(dict(entries))


def random_arpa(rng, words, *, order=None, ties=False, pruned_suffixes=True):
    """ARPA text and the words that it knows (at least one of the given).

    Higher n-grams are random subsets whose prefixes exist and whose suffixes may not
    (pruned_suffixes); back-offs are often missing, and now and then above 1 or exactly
    1. Some of the given words may be missing; `<unk>` and words that no lexicon has may
    be there.
    """
    order = order or int(rng.integers(1, 4))
    known = [w for w in words if rng.random() < 0.8] or words[:1]
    vocabulary = known + [w for w in (*LM_ONLY_NAMES, "<unk>") if rng.random() < 0.3]
    grams: list[list[tuple[str, ...]]] = [
        [("<s>",), *((w,) for w in vocabulary), ("</s>",)]
    ]
    density = rng.uniform(0.2, 0.8)
    while len(grams) < order:
        longer = [
            (*gram, w)
            for gram in grams[-1]
            for w in [*vocabulary, "</s>"]
            if gram[-1] != "</s>"
            and rng.random() < density
            and (pruned_suffixes or (*gram[1:], w) in grams[-1])
        ]
        if not longer:
            break
        grams.append(longer)
    counts = "".join(f"ngram {n}={len(g)}\n" for n, g in enumerate(grams, 1))
    text = f"\\data\\\n{counts}"
    for n, section in enumerate(grams, 1):
        has_backoff = n < len(grams)
        lines = [
            _arpa_line(rng, section[i], has_backoff=has_backoff, ties=ties)
            for i in rng.permutation(len(section))
        ]
        text += f"\n\\{n}-grams:\n{''.join(lines)}"
    return f"{text}\n\\end\\\n", set(known)


def _arpa_line(rng, gram, *, has_backoff, ties):
    prob = -float(rng.choice([0, 0.25, 0.5, 1])) if ties else rng.uniform(-2, -0.05)
    first = "-99" if gram == ("<s>",) and rng.random() < 0.8 else f"{prob:.5g}"
    fields = [first, " ".join(gram)]
    if has_backoff and gram[-1] != "</s>" and rng.random() < 0.7:
        backoff = rng.choice([0, -0.25, -0.5]) if ties else rng.uniform(-1.2, 0.2)
        fields.append(f"{backoff:.5g}")
    return "\t".join(fields) + "\n"


def random_sentence_frames(rng, tokens, entries, blank, filler, num_frames):
    """Draw a sentence as a token per frame, perhaps cut off; [] in some cases."""
    frames: list[int] = []
    if rng.random() < 0.3:
        return frames
    while len(frames) < num_frames:
        between = [blank] if filler is None else [filler]
        between = between if rng.random() < 0.6 else []
        for token in (*entries[rng.integers(len(entries))].tokens, *between):
            frames += [tokens.index(token)] * int(rng.choice([1, 2], p=[0.8, 0.2]))
            frames += [tokens.index(blank)] * int(rng.choice([0, 1], p=[0.8, 0.2]))
    return frames[:num_frames]


def random_logprobs(rng, num_frames, num_tokens, *, ties=False, hint=None):
    """Log-probs float32 [T, V], some of them -inf in some cases.

    With ties they are multiples of 1/4 and the rows do not sum to 1. A hint is a
    token for each frame that becomes more probable.
    """
    x = rng.normal(scale=rng.choice([0.3, 2.0]), size=(num_frames, num_tokens))
    if hint:
        x[np.arange(num_frames), hint] += 5
    if ties:
        x = np.round(4 * (x - x.max(initial=0))) / 4
    else:
        x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
    if rng.random() < 0.3:
        x[rng.random(x.shape) < 0.1] = -np.inf
    return x.astype(np.float32)


def random_options(rng):
    """Scales and penalties, each of them often at its default."""
    values = {
        "acoustic_scale": (1.0, 1.0, 0.5, 1.7, 0.0),
        "lm_scale": (1.0, 1.0, 0.6, 2.0, 0.0),
        "word_insertion": (0.0, 0.0, 1.25, -0.75),
        "blank_penalty": (0.0, 0.0, 1.5, -0.5),
        "blank_skip_threshold": (None, None, None, 0.43, 0.81),
    }
    return {name: some[rng.integers(len(some))] for name, some in values.items()}


def random_boosts(rng, words):
    """A bonus in nats, now and then negative, for some of the words."""
    if rng.random() < 0.5:
        return {}
    return {w: float(rng.choice([0.5, 3.0, -1.0])) for w in words if rng.random() < 0.5}


def random_phrases(rng, words, unit=None):
    """Phrases of one to three words, some of them penalties, and their worth."""
    weights = {
        " ".join(rng.choice(words, rng.integers(1, 4))): float(
            rng.choice([1.0, 0.5, 0.25, 2.0, -1.0, 0.0])
        )
        for _ in range(rng.integers(1, 6))
    }
    options = {
        "c0": float(rng.choice([1.0, 0.5])),
        "beta": float(rng.choice([2.0, 1.0, 0.0])),
        "uniform": bool(rng.random() < 0.3),
        "weights_are_totals": bool(rng.random() < 0.3),
    }
    return Phrases(weights, unit or str(rng.choice(["word", "token"])), options)
