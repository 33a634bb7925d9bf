"""Nothing pruned: the searches equal the enumeration of alignments, all options."""

import io

import naive
import naive_cases
import naive_lm
import naive_phrases
import naive_transducer
import naive_transducer_beam
import numpy as np
import pytest
from table_transducers import random_transducer, texts_of

from wfstdec import PhraseOptions, TransducerDecoder, TransducerOptions, read_arpa
from wfstdec.transducer.forward import text_costs

INF = float("inf")
UNK_COST = 2.5
WIDE = {"beam_size": 130, "expansion_beta": 60, "expansion_gamma": INF}
SEARCHES = {
    "alsd": {"strategy": "alsd"},
    "aes": {"strategy": "aes"},
    "aes-without-prefix-search": {"strategy": "aes", "prefix_search": False},
}


class Case:
    def __init__(self, seed, **sizes):
        rng = np.random.default_rng(seed)
        self.rng, self.model = rng, random_transducer(rng, **sizes)
        self.weights = [float(w) for w in rng.choice([0.0, 0.3, 1.0, 1.7], 2)]
        self.weights = self.weights[: rng.integers(3)]
        if seed % 3 == 2:  # all but the first are taken off again
            self.weights[1:] = [-0.4 * weight for weight in self.weights[1:]]
        names = list(self.model.tokens)
        self.arpas = [naive_cases.random_arpa(rng, names)[0] for _ in self.weights]
        lengths = rng.integers(1, 4, size=rng.integers(3))
        self.phrases = {
            "".join(rng.choice(names, length)): float(rng.uniform(0.2, 2))
            for length in lengths
        }
        self.insertion = float(rng.choice([0.0, 0.5, -0.25]))

    def decoder(self, **options):
        lms = [read_arpa(io.StringIO(text)) for text in self.arpas]
        options = {"token_insertion": self.insertion, **WIDE} | options
        options = {"expansion_rounds": self.model.longest + 1} | options
        decoder = TransducerDecoder(
            self.model,
            lm=list(zip(lms, self.weights, strict=True)),
            unk_cost=UNK_COST,
            options=TransducerOptions(**options),
        )
        boosts = decoder.phrase_compiler(PhraseOptions()).compile(self.phrases)
        return decoder, boosts if self.phrases else None

    def expected(self, utterance=0, **options):
        names = self.model.tokens
        spelt = {text: [tuple(text)] for text in self.phrases}
        phrases = naive_phrases.Phrases(self.phrases, "token", spellings=spelt)
        boost = phrases.coster((), naive.Fillers())
        costers = [
            naive_lm.exact_word_coster(naive_lm.parse_arpa(text), UNK_COST)
            for text in self.arpas
        ]

        def cost_by(coster):
            def cost(prefix, token):
                history = ("<s>", *(names[p] for p in prefix))
                return coster(history, "</s>" if token is None else names[token])

            return cost

        found = naive_transducer.totals(
            self.model.joint(utterance),
            self.model.num_frames,
            durations=self.model.durations,
            costs=[
                (weight, cost_by(coster))
                for weight, coster in zip(self.weights, costers, strict=True)
                if weight
            ],
            boost=lambda text: boost((), tuple(names[p] for p in text)),
            insertion=self.insertion,
            **options,
        )
        found = named(self.model, found)
        return {text: total for text, total in found.items() if total > -INF}


def named(model, totals):
    names = model.tokens
    return {"".join(names[p] for p in text): total for text, total in totals.items()}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.share(keep=24)
def test_all_texts_have_the_totals_of_the_oracle(seed, search):
    case = Case(seed)
    merge = ("sum", "max")[seed % 2]
    blank_scored = bool(seed // 2 % 2)
    expected = case.expected(merge=merge, blank_scored=blank_scored)
    decoder, boosts = case.decoder(
        merge=merge, blank_scored=blank_scored, **SEARCHES[search]
    )
    (hyps,) = decoder.decode_nbest([case.model.frames()], boosts=boosts)
    assert texts_of(hyps) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    totals = [hyp.total_cost for hyp in hyps]
    assert totals == sorted(totals)


def test_length_norm_ranks_by_the_total_per_token():
    changed = 0
    for seed in range(30):
        case = Case(seed)
        decoder, boosts = case.decoder(length_norm="mean")
        (hyps,) = decoder.decode_nbest([case.model.frames()], boosts=boosts)
        rank = [hyp.total_cost / (len(hyp.token_ids) + 1) for hyp in hyps]
        assert rank == sorted(rank)
        expected = case.expected()
        assert texts_of(hyps) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        totals = [hyp.total_cost for hyp in hyps]
        changed += totals != sorted(totals)
    assert changed > 5


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.share(keep=8)
def test_greedy_takes_what_the_model_prefers(seed):
    """By plain Python: the blank by the model alone, the token by all."""
    case = Case(seed)
    decoder, boosts = case.decoder(strategy="greedy", max_symbols=2)
    (hyp,) = decoder.decode([case.model.frames()], boosts=boosts)
    text = tuple(case.model.tokens.index(token.text) for token in hyp.tokens)
    assert text == greedy_text(case, decoder, boosts)


def greedy_text(case, decoder, boosts):
    model, joint = case.model, case.model.joint()
    durations, blank = model.durations, model.blank
    lms = [lm for lm, _ in decoder.lms]
    states = [lm.start for lm in lms]
    boost = boosts.start if boosts else None
    t, text, run = 0, (), 0
    while t < model.num_frames:
        tokens, of_blank, lasts = joint(t, text)
        d = 0 if lasts is None else durations[int(np.argmax(lasts))]
        if max(tokens) < of_blank or run == 2 or max(tokens) == -INF:
            shortest = min((d for d in durations if d > 0), default=1)
            t, run = t + (d if d and run < 2 else shortest), 0
            continue
        gains = []
        for token, lp in enumerate(tokens):
            label = token + (token >= blank)
            costs = [lm.step(s, label)[0] for lm, s in zip(lms, states, strict=True)]
            pairs = zip(decoder.lms, costs, strict=True)
            lp -= sum(weight * cost for (_, weight), cost in pairs if weight)
            lp -= boosts.step(boost, label)[0] if boosts else 0.0
            gains.append(lp)
        token = int(np.argmax(gains))
        label = token + (token >= blank)
        states = [lm.step(s, label)[1] for lm, s in zip(lms, states, strict=True)]
        boost = boosts.step(boost, label)[1] if boosts else None
        text, t, run = (*text, token), t + d, 0 if d else run + 1
    return text


@pytest.mark.parametrize("beam_size", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(300, 380))
@pytest.mark.share(keep=16)
def test_narrow_beams_equal_the_plain_reading(seed, beam_size):
    case = Case(seed)
    case.weights, case.arpas, case.phrases, case.insertion = [], [], {}, 0.0
    merge = ("sum", "max")[seed % 2]
    options = {"beam_size": beam_size, "merge": merge, "max_symbols": 1 + seed % 3}
    expected = naive_transducer_beam.alsd(
        case.model.joint(),
        case.model.num_frames,
        durations=case.model.durations,
        **options,
    )
    decoder, _ = case.decoder(**options)
    (hyps,) = decoder.decode_nbest([case.model.frames()])
    assert texts_of(hyps) == pytest.approx(named(case.model, expected), abs=1e-6)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("beam_size", [1, 2, 3, 4])
@pytest.mark.share(keep=2)
def test_durations_behind_the_end_are_one_hypothesis_at_any_width(beam_size, dense):
    """A hundred models of one or two frames; up to four durations end all of them."""
    cut = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        durations = tuple(int(d) for d in rng.permutation(5))
        model = random_transducer(rng, durations, num_frames=1 + seed % 2)
        options = {"beam_size": beam_size, "merge": ("sum", "max")[seed // 2 % 2]}
        given = model.joint(), model.num_frames
        expected = naive_transducer_beam.alsd(
            *given, durations=durations, max_symbols=2, **options
        )
        decoder = TransducerDecoder(
            model, options=TransducerOptions(max_symbols=2, **options)
        )
        decoder._backend.dense = dense
        (hyps,) = decoder.decode_nbest([model.frames()])
        assert texts_of(hyps) == pytest.approx(named(model, expected), abs=1e-6)
        cut += any(token.end_frame == model.num_frames for token in hyps[0].tokens)
    assert cut > 20


@pytest.mark.parametrize("seed", range(40))
def test_costs_of_whole_texts(seed):
    """Sums over all alignments of each text, prefixes shared or not."""
    rng = np.random.default_rng([7, seed])
    model = random_transducer(rng, num_utterances=2)
    for utterance in range(2):
        length = int(rng.integers(model.num_frames + 1))
        joint, durations = model.joint(utterance), model.durations
        want = naive_transducer.totals(joint, length, durations=durations)
        texts = rng.permutation(len(want)).tolist()
        texts = [list(want)[i] for i in texts]
        frames = model.frames(utterance, length)
        found = text_costs(model, frames, texts)
        assert found == pytest.approx([-want[text] for text in texts], abs=1e-9)
        assert found[:1] == text_costs(model, frames, texts[:1])
    assert text_costs(model, frames, []) == []


@pytest.mark.parametrize("options", [{"strategy": "greedy"}, *SEARCHES.values()])
@pytest.mark.parametrize("seed", range(6))
def test_a_model_that_is_taken_off_again_changes_nothing(seed, options):
    case = Case(seed)
    arpa = naive_cases.random_arpa(case.rng, list(case.model.tokens))[0]
    lm = read_arpa(io.StringIO(arpa))
    options = TransducerOptions(**{**WIDE, **options, "beam_size": 20})
    plain = TransducerDecoder(case.model, unk_cost=UNK_COST, options=options)
    both = TransducerDecoder(
        case.model, lm=[(lm, 0.7), (lm, -0.7)], unk_cost=UNK_COST, options=options
    )
    frames = [case.model.frames()]
    for before, after in zip(plain.decode(frames), both.decode(frames), strict=True):
        assert after.text == before.text
        assert after.total_cost == pytest.approx(before.total_cost, abs=1e-4)
