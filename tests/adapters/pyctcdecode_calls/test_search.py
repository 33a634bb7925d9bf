"""The search's machinery: what Python answers, what grows, threads, orders."""

import copy
import pickle

import numpy as np
import pytest
from prefix_cases import random_arpa, random_case

from wfstdec.adapters.pyctcdecode import (
    Alphabet,
    BeamSearchDecoderCTC,
    HotwordScorer,
    LanguageModel,
    MultiLanguageModel,
    build_ctcdecoder,
)
from wfstdec.adapters.pyctcdecode.logprobs import keep_tokens
from wfstdec.adapters.pyctcdecode.search import store_pool

pytestmark = pytest.mark.usefixtures("quiet")


class RecordingModel(LanguageModel):
    """Language model that the search cannot recognise, and asks."""

    asked = 0

    def score(self, prev_state, word, is_last_word=False):
        self.asked += 1
        return super().score(prev_state, word, is_last_word)


class Bare:
    """No class of ours: the four methods alone."""

    def __init__(self, model):
        self.order, self.get_start_state = model.order, model.get_start_state
        self.score_partial_token, self.score = model.score_partial_token, model.score


def decoders(case, faithful, wrap):
    """Make two decoders: one has the model in its kernels, one on its host."""
    build = build_ctcdecoder(
        case.labels, case.arpa, case.unigrams, **case.lm, faithful=faithful
    )
    known = build._language_model.unigrams
    lm = dict(case.lm, score_boundary=case.lm["lm_score_boundary"])
    del lm["lm_score_boundary"]
    model = RecordingModel(case.arpa, known, **lm)
    return build, BeamSearchDecoderCTC(
        Alphabet.build_alphabet(case.labels), wrap(model), faithful=faithful
    )


def numbers(beams):
    return np.array([beam[3:] for beam in beams])


@pytest.mark.parametrize("faithful", [True, False])
@pytest.mark.parametrize("wrap", [lambda model: model, Bare], ids=["own", "bare"])
def test_models_in_python_give_the_same(wrap, faithful, tmp_path):
    done = 0
    for seed in range(3000, 3080):
        case = random_case(seed, tmp_path)
        if case.arpa is None:
            continue
        compiled, asked = decoders(case, faithful, wrap)
        one, two = (
            decoder.decode_beams(case.logits, **case.options)
            for decoder in (compiled, asked)
        )
        if wrap is Bare and not faithful and any(beam[0] == "" for beam in one):
            continue  # it cannot tell what the end alone costs
        assert [beam[:3] for beam in one] == [beam[:3] for beam in two]
        assert np.allclose(numbers(one), numbers(two), atol=1e-5)
        done += 1
    assert done > 20


def test_the_mean_of_two_models(tmp_path):
    models = []
    for seed in range(2):
        path = tmp_path / f"{seed}.arpa"
        path.write_text(random_arpa(np.random.default_rng(seed), 2), "utf-8")
        models.append(LanguageModel(str(path), ["a", "ab", "b"], alpha=0.5 + seed))
    both = MultiLanguageModel(models)
    alphabet = Alphabet.build_alphabet(["", " ", "a", "b"])
    logits = 3 * np.random.default_rng(5).normal(size=(9, 4))
    for text, states, _, logit, total in BeamSearchDecoderCTC(
        alphabet, both
    ).decode_beams(logits)[:5]:
        sums = []
        for model, state in zip(models, states, strict=True):
            at, whole = model.get_start_state(), 0.0
            for word in text.split():
                score, at = model.score(at, word)
                whole += score
            assert at == state
            sums.append(whole + model.score_end(at))
        assert total - logit == pytest.approx(sum(sums) / 2, abs=1e-5)


class Own:
    """A model as the trie decoder takes it: costs, and no class of ours."""

    def __init__(self, scorer):
        self._scorer, self.order, self.words = scorer, scorer.order, set(scorer.words)

    def start(self):
        return self._scorer.start()

    def score(self, state, word):
        return self._scorer.score(state, word)

    def finish(self, state):
        return self._scorer.finish(state)


def test_a_model_of_ones_own(tmp_path):
    (tmp_path / "lm.arpa").write_text(random_arpa(np.random.default_rng(0), 3), "utf-8")
    compiled = LanguageModel(str(tmp_path / "lm.arpa"), ["a", "ab", "bb"])
    own = LanguageModel(Own(compiled.scorer), ["a", "ab", "bb"])
    assert own.unigrams == compiled.unigrams == {"a", "ab"}
    alphabet = Alphabet.build_alphabet(["", " ", "a", "b"])
    logits = 3 * np.random.default_rng(5).normal(size=(14, 4))
    one, two = (
        BeamSearchDecoderCTC(alphabet, model).decode_beams(logits)
        for model in (compiled, own)
    )
    assert [beam[:3] for beam in one] == [beam[:3] for beam in two]
    assert np.allclose(numbers(one), numbers(two), atol=1e-5)


def test_growing_changes_nothing(tmp_path):
    for seed in range(4000, 4030):
        case = random_case(seed, tmp_path, most_frames=30)
        decoder = build_ctcdecoder(case.labels, case.arpa, case.unigrams, **case.lm)
        expected = decoder.decode_beams(case.logits, **case.options)
        decoder._pool = store_pool(first_size=2)
        assert decoder.decode_beams(case.logits, **case.options) == expected


def test_threads_and_company_change_nothing(tmp_path):
    case = random_case(7, tmp_path)
    rng, count = np.random.default_rng(0), len(case.labels)
    batch = [3 * rng.normal(size=(rng.integers(0, 40), count)) for _ in range(24)]
    one, many = (
        build_ctcdecoder(case.labels, case.arpa, **case.lm, threads=threads)
        for threads in (1, 4)
    )
    expected = [one.decode_beams(logits) for logits in batch]
    found = many.decode_beams_batch(object(), batch)
    assert found == [[(text, *rest) for text, _, *rest in beams] for beams in expected]
    texts = many.decode_batch(None, batch, prune := 100)
    assert texts == [one.decode(logits, prune) for logits in batch]


def test_copies_and_pickles_are_decoders_of_their_own(tmp_path):
    (tmp_path / "lm.arpa").write_text(random_arpa(np.random.default_rng(0), 3), "utf-8")
    labels = ["", " ", "a", "b", "c"]
    decoder = build_ctcdecoder(labels, str(tmp_path / "lm.arpa"), threads=2)
    logits = 3 * np.random.default_rng(1).normal(size=(12, 5))
    expected = decoder.decode_beams(logits)
    for other in (copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))):
        assert other.decode_beams(logits) == expected
        other.reset_params(alpha=2.0)
        assert other.decode_beams(logits) != expected
        assert decoder.decode_beams(logits) == expected


def test_tokens_are_visited_as_a_set_of_python_is_gone_through():
    rng = np.random.default_rng(0)
    for size in (2, 40, 300, 3000):
        x = (4 * rng.normal(size=(60, size))).astype(np.float32)
        kept = keep_tokens(x, float(rng.choice([-4.0, -12.0])))
        for t, best in enumerate(x.argmax(axis=1).tolist()):
            found = kept.tokens[kept.splits[t] : kept.splits[t + 1]].tolist()
            assert found == list(set(sorted(found)) | {best})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tokens_near_the_best_are_kept_with_their_log_probs(dtype):
    rng = np.random.default_rng(2)
    for num_tokens in (1, 5, 64, 65, 300):
        x = (5 * rng.normal(size=(7, num_tokens))).astype(dtype)
        x[3, 0] = -np.inf if num_tokens > 1 else 0
        wide = x.astype(np.float64)
        logps = np.maximum(
            wide - np.logaddexp.reduce(wide, axis=1, keepdims=True), np.log(1e-15)
        )
        for least in (-1.0, -5.0, -40.0):
            kept = keep_tokens(x, least)
            for t in range(7):
                here = slice(kept.splits[t], kept.splits[t + 1])
                near = set(np.flatnonzero(logps[t] >= least)) | {logps[t].argmax()}
                assert sorted(kept.tokens[here]) == sorted(near)
                expected = logps[t, kept.tokens[here]]
                assert np.allclose(kept.logps[here], expected, atol=2e-6)


def test_hotwords_in_python():
    scorer = HotwordScorer.build_scorer(["new york", "newer"], 6.0)
    assert "ne" in scorer and "x" not in scorer and "" in scorer
    assert scorer.score("new new yorker york") == 18.0
    assert scorer.score_partial_token("ne") == pytest.approx(4.0)
    assert scorer.score_partial_token("newe") == pytest.approx(6 * 4 / 5)
    empty = HotwordScorer.build_scorer([" "])
    assert "" not in empty and empty.score("a") == 0.0
