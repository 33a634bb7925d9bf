"""Alignments of small cases against all alignments, readings and segmentations."""

import naive
import naive_cases
import numpy as np
import pytest

from wfstdec import AlignOptions, ForcedAligner, Lexicon, token_table
from wfstdec.align.search import STAR

CASES = 60


def draw(seed, num_tokens=5):
    """A case and a text of its words, now and then with a word twice, or none."""
    rng = np.random.default_rng(seed)
    fillers = str(rng.choice(naive_cases.FILLERS))
    num_tokens = int(rng.integers(2 if fillers == "none" else 3, num_tokens + 1))
    case = naive_cases.random_case(
        rng, plain=True, fillers=fillers, num_tokens=num_tokens
    )
    entries = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    words = list(dict.fromkeys(entry.word for entry in entries))
    return case, entries, list(rng.choice(words, rng.choice(4)))


def aligner_of(case, entries, options=None, **how):
    tokens = token_table(case.tokens, case.blank)
    lexicon = Lexicon(
        tuple(entry.word for entry in entries),
        tuple(tuple(map(tokens.index, entry.tokens)) for entry in entries),
        np.array([entry.cost for entry in entries], np.float32),
    )
    return ForcedAligner(
        tokens,
        lexicon,
        separator=case.separator,
        separator_optional=case.separator_optional,
        silence=case.silence,
        silence_prob=case.silence_prob,
        topology=case.topology,
        options=options,
        **how,
    )


def cost_of_text(text, skip_cost):
    """Cost of words for a text: left out words cost, others may only be the star."""

    def cost(spoken):
        spoken = [word for word in spoken if word != STAR]
        left = iter(text)
        if not all(word in left for word in spoken):  # in this order?
            return np.inf
        missing = len(text) - len(spoken)
        return missing * skip_cost if missing else 0.0

    return cost


def solve(
    case, entries, text, skip_cost=np.inf, insert_cost=None, insert_frame_cost=0.0
):
    """The oracle's answer; the star is so much less probable than the frame's best."""
    x, tokens = case.logprobs, list(case.tokens)
    if insert_cost is not None:
        tokens.append(STAR)
        entries = [*entries, naive.Entry(STAR, (STAR,), insert_cost)]
        best = x.max(axis=1, keepdims=True, initial=-np.inf)
        x = np.concatenate([x, best - insert_frame_cost], axis=1)
    return naive.best(
        x,
        tokens=tokens,
        blank=case.blank,
        lexicon=entries,
        sentence_cost=cost_of_text(text, skip_cost),
        topology=case.topology,
        fillers=naive.Fillers(
            case.separator, case.separator_optional, case.silence, case.silence_prob
        ),
    )


def check(alignment, best, text):
    assert alignment.reached_end == np.isfinite(best.cost)
    if not alignment.reached_end:
        return
    assert alignment.total_cost == pytest.approx(best.cost, abs=1e-4)
    assert [text[i] for i in alignment.positions] == [w.text for w in alignment.words]
    assert list(alignment.positions) == sorted(set(alignment.positions))
    frames = tuple((w.start_frame, w.end_frame) for w in alignment.words)
    spoken = tuple(w.text for w in alignment.words)
    assert (spoken, frames) in {
        (
            tuple(word for word in words if word != STAR),
            tuple(t for word, t in zip(words, times, strict=True) if word != STAR),
        )
        for words, all_times in best.ties.items()
        for times in all_times
    }


def costs_of(kind, seed):
    rng, costs = np.random.default_rng(seed), {}
    if kind == "put in":
        costs["insert_cost"] = float(rng.choice([0.0, 1.0, 4.0]))
        costs["insert_frame_cost"] = float(rng.choice([0.0, 0.25]))
    if kind == "left out" or (kind == "put in" and rng.random() < 0.5):
        costs["skip_cost"] = float(rng.choice([0.5, 3.0]))
    return costs


@pytest.mark.parametrize(
    ("kind", "chunk"),
    [("as it is", i) for i in range(8)]
    + [(kind, 20 + i) for kind in ("left out", "put in") for i in range(3)],
)
@pytest.mark.share(keep=3)
def test_texts_are_aligned_as_the_oracle_does(kind, chunk):
    for seed in range(chunk * CASES, (chunk + 1) * CASES):
        case, entries, text = draw(seed, num_tokens=4 if kind == "put in" else 5)
        costs = costs_of(kind, seed)
        aligner = aligner_of(case, entries, AlignOptions(**costs))
        alignment = aligner.align(case.logprobs, text)
        check(alignment, solve(case, entries, text, **costs), text)
        assert all(token.text != STAR for token in alignment.tokens)
        if kind == "as it is":
            assert alignment.exact or not alignment.reached_end
        elif kind == "left out" and alignment.reached_end:
            left = {
                i
                for m in alignment.misfits
                if m.kind == "left out"
                for i in range(m.first_word, m.end_word)
            }
            assert left == set(range(len(text))) - set(alignment.positions)


def test_a_narrow_beam_is_widened_until_the_proof_holds():
    """From a beam of 0, the exact search comes to the oracle's cost all the same."""
    narrow = AlignOptions(beam=0.0, exact=True)
    for seed in range(3000, 3000 + CASES):
        case, entries, text = draw(seed)
        alignment = aligner_of(case, entries, narrow).align(case.logprobs, text)
        check(alignment, solve(case, entries, text), text)
        assert alignment.exact == alignment.reached_end


def test_what_is_called_exact_is_exact():
    """Narrow beams lose the best path here and there, and call nothing exact then."""
    called, lost = 0, 0
    for seed in range(4000, 4000 + 2 * CASES):
        case, entries, text = draw(seed)
        beam = float(np.random.default_rng(seed).choice([0.0, 1.0, 4.0]))
        aligner = aligner_of(case, entries, AlignOptions(beam=beam))
        alignment = aligner.align(case.logprobs, text)
        best = solve(case, entries, text)
        if not alignment.reached_end:
            assert best.cost == np.inf
            continue
        called += alignment.exact
        lost += alignment.total_cost > best.cost + 1e-4
        if alignment.exact:
            check(alignment, best, text)
    assert called > 20 and lost > 3


def test_the_reference_says_the_same():
    for seed in range(5000, 5020):
        case, entries, text = draw(seed)
        options = AlignOptions(skip_cost=2.0, insert_cost=2.0)
        both = [
            aligner_of(case, entries, options, backend=name).align(case.logprobs, text)
            for name in ("cpu", "reference")
        ]
        assert both[0] == both[1]
