"""The backends of the trie decoder: the same bits, whatever the way to them."""

import itertools
import math

import naive_search_cases
import numpy as np
import pytest
from reference_backends import HOST_BACKENDS
from trie_searches import bits, draw, search

from wfstdec import Lexicon, TrieDecoder, TrieOptions, token_table
from wfstdec.errors import BoostError, OptionError
from wfstdec.search.backend import make_backend
from wfstdec.search.threads import CallBudget
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu import backend as cpu_backend
from wfstdec.trie.cpu.arrays import FRONTIER, STAMP
from wfstdec.trie.cpu.backend import CpuBackend, CpuSearch
from wfstdec.trie.cpu.merge import MAX_STAMP
from wfstdec.trie.options import BACKENDS

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]
OTHERS = [name for name in HOST_BACKENDS if name != "reference"]


@pytest.mark.parametrize("num_tokens", [64, 65, 150])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.share(keep=1)
def test_tokens_that_share_bits(name, num_tokens):
    """Children of a node as bits: one for each of 64 tokens, shared where V is more."""
    names = ["<blank>", *map(chr, range(0x4E00, 0x4E00 + num_tokens - 1))]
    near = [v for v in range(1, num_tokens) if v % 64 in (0, 1, 7, 63)]
    for seed in range(6):
        rng = np.random.default_rng([seed, num_tokens])
        some = {tuple(rng.choice(near, rng.integers(1, 4)).tolist()) for _ in range(60)}
        if seed % 2:  # the root has more children than tokens are near
            some |= {(v,) for v in range(1, num_tokens)}
        prons = tuple(sorted(some))
        words = tuple("".join(names[v] for v in pron) for pron in prons)
        decoder = TrieDecoder(
            tokens=token_table(names),
            lexicon=Lexicon(words, prons, np.zeros(len(words), np.float32)),
            options=TrieOptions(beam=5.0, beam_size=9, merge=["max", "sum"][seed // 3]),
        )
        logits = rng.normal(0, 1, (9, num_tokens))
        logits[:, near] += 3
        logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        backends = [
            make_backend(BACKENDS, n, decoder._space) for n in (name, "reference")
        ]
        found, want = (search(one, decoder, None, [logprobs]) for one in backends)
        assert found == want, seed


@pytest.mark.parametrize("merge", ["max", "sum"])
@pytest.mark.parametrize("name", OTHERS)
def test_costs_that_rounding_makes_equal(name, merge):
    """Entries one rounding apart before re-basing, and equal after it, are a tie."""
    for seed, kind in itertools.product(range(15, 21), ("none", "tokens", "pieces")):
        _, case, decoder, boosts = draw(seed, kind)
        wide = decoder.with_options(
            beam=40.0,
            beam_size=100_000,
            token_top_k=None,
            merge=merge,
            nbest=1000,
            blank_skip_threshold=None,
        )
        few_values = np.round(np.tile(case.logprobs, (2, 1))[:6] * 8) / 8 - 0.3
        space = wide._space
        backend, reference = (
            make_backend(BACKENDS, n, space) for n in (name, "reference")
        )
        want = search(reference, wide, boosts, [few_values])
        assert search(backend, wide, boosts, [few_values]) == want, (seed, kind)


@pytest.mark.parametrize("name", HOST_BACKENDS)
def test_the_least_phase_is_not_of_the_best_entry(name):
    """After two frames "a" has two phases of 0.1705, "a b" one of 0.2035."""
    probs = [[0.1, 0.55, 0.3, 0.05], [0.31, 0.31, 0.37, 0.01], [0.45, 0.1, 0.09, 0.36]]
    decoder = TrieDecoder(
        tokens=token_table(["<blank>", "a", "b", "c"]),
        options=TrieOptions(beam=0.3, merge="sum", nbest=9),
        backend=name,
    )
    (hyps,) = decoder.decode_nbest([np.log(np.array(probs))])
    assert [hyp.text for hyp in hyps] == ["a", "a b", "a b c"]
    found = [math.exp(-hyp.total_cost) for hyp in hyps]
    a, b = 0.55 * 0.31, 0.55 * 0.37
    assert found == pytest.approx([2 * a * 0.45, b * 0.45, b * 0.36])


def frame_of(rng, kind, num_tokens):
    """A frame: any token may begin, a few may, or none, since it is a blank."""
    x = np.full((1, num_tokens), -40.0)
    x[0, 0] = -0.7
    near = {"any": num_tokens, "few": 3, "blank": 0}[kind]
    x[0, rng.permutation(num_tokens)[:near]] = np.round(rng.uniform(-6, -4, near), 1)
    return x.astype(np.float32)


@pytest.mark.parametrize("merge", ["max", "sum"])
def test_sessions_in_turn_in_scratch_that_others_left(merge):
    """The table may be fresh, too small or too large, and its stamps go round."""
    num_tokens, most = 72, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        decoder = TrieDecoder(
            tokens=token_table(["<blank>", *map(chr, range(0x4E00, 0x4E47))]),
            options=TrieOptions(merge=merge, nbest=2, beam=9.0, beam_size=66),
        )
        (none,) = decoder._boosts.compile(None, 1)
        backend, reference = (
            make_backend(BACKENDS, n, decoder._space) for n in ("cpu", "reference")
        )
        sessions = [backend.start(decoder.options, none) for _ in range(3)]
        # Of many tokens, then blanks; of few; of any frames.
        chances = [0.1, 0.3, 0.6], [0.0, 0.6, 0.4], [0.1, 0.5, 0.4]
        frames = [[], [], []]
        for n in [0, 1, 0, *rng.integers(3, size=9)]:
            first = "any" if n == 0 and not frames[0] else "blank"
            kind = rng.choice(["any", "few", "blank"], p=chances[n])
            x = frame_of(rng, kind if frames[n] else first, num_tokens)
            frames[n].append(x)
            kept = backend.scratches._kept
            if rng.random() < 0.2:
                kept.clear()
            for scratch in kept:
                if rng.random() < 0.3:
                    scratch.value.counts[STAMP] = MAX_STAMP - rng.integers(2)
            sessions[n].advance(x)
            most = max(most, sessions[n].state.counts[FRONTIER])
        for session, x in zip(sessions, frames, strict=True):
            want = search(reference, decoder, None, x)
            assert bits(session.finish()) == want, seed
    assert most > 64


@pytest.mark.parametrize("merge", ["max", "sum"])
def test_a_trace_that_is_settled_within_a_group(monkeypatch, merge):
    """Long utterances of a short trace; room for one token at first."""
    monkeypatch.setattr(cpu_backend, "FRAMES_PER_ROW", 1 << 30)
    rng, case, decoder, boosts = draw(6, "pieces")
    decoder = decoder.with_options(
        beam=8.0, beam_size=6, merge=merge, nbest=2, token_top_k=None
    )
    (compiled,) = decoder._boosts.compile(boosts, 1)
    x = case.logprobs.astype(np.float32)
    batch = [x[rng.integers(0, len(x), n)] for n in (40, 3, 90, 0, 60)]
    backend = CpuBackend(decoder._space, first_capacity=1)
    grown, grow = [], CpuSearch._grow
    monkeypatch.setattr(CpuSearch, "_grow", lambda *a: grown.append(a[1]) or grow(*a))
    pace = CallBudget()
    pace.frames, pace.note = 7, lambda *_: None  # most utterances are cut
    inputs = backend.inputs_of(decoder.options, compiled)
    found = CpuSearch(backend, inputs).decode(batch, pace, range(len(batch)))
    reference = make_backend(BACKENDS, "reference", decoder._space)
    expected = [search(reference, decoder, boosts, [x]) for x in batch]
    assert list(map(bits, found)) == expected
    assert {arrays.GROW_TRACE, arrays.GROW_ROWS, arrays.GROW_CANDIDATES} <= set(grown)


def test_options_that_do_not_fit():
    _, case, decoder, _ = draw(0, "tokens")
    arguments = naive_search_cases.decoder_arguments(case)
    with pytest.raises(OptionError, match="without a lexicon, expected 0"):
        TrieDecoder(**arguments, options=TrieOptions(word_insertion=1.0))
    other = "none" if decoder.options.lookahead != "none" else "ngram"
    with pytest.raises(OptionError, match="make another decoder"):
        decoder.with_options(lookahead=other)
    with pytest.raises(OptionError, match="merge='mean', expected 'max', 'sum'"):
        TrieOptions(merge="mean")
    with pytest.raises(BoostError, match="expected a mapping"):
        decoder.decode([case.logprobs], boosts=3)
