"""NgramLM: a model by hand, the kernels, the oracle, KenLM, files, the errors."""

import io
import json
import logging
import mmap
from pathlib import Path

import lm_reference
import naive_cases
import naive_lm
import numpy as np
import pytest
from arpa_texts import REFUSED, TRIGRAMS, random_sentences
from compiled import compiled
from packed_models import pack_models

from wfstdec import NgramLM, load_lm, read_arpa, token_table
from wfstdec.errors import ArpaError, FormatError, InputError, OptionError, ShapeError
from wfstdec.lm import kernels
from wfstdec.text.tokens import EPSILON_WORD

LN10 = np.log(10)
DEMO = Path(__file__).parents[2] / "graphs/librispeech_demo"
INF = float("inf")


def lm_of(text, words, **options):
    return NgramLM.from_arpa(io.StringIO(text), (EPSILON_WORD, *words), **options)


def ids_of(words, sentence):
    """Word ids; words outside the table are ids beyond it."""
    ids = {word: i for i, word in enumerate(words, 1)}
    return [ids.get(word, len(words) + 1 + len(word)) for word in sentence]


def costs_of(lm, ids):
    """The costs of the words of a sentence, `</s>` last."""
    state, costs = lm.start, []
    for label in ids:
        cost, state = lm.step(state, label)
        costs.append(cost)
    return [*costs, lm.final(state)]


@pytest.mark.parametrize(
    ("sentence", "log10"),
    [
        ("the cat", [-0.25, -0.03125, 0.0625 - 1.25]),
        ("the cat sat", [-0.25, -0.03125, -0.75 - 0.125, -1.25]),
        ("cat the", [-0.5 - 1, 0.0625 - 0.75, -0.25 - 1.25]),
        ("the dog sat", [-0.25, -0.5 - 2, -0.015625, -1.25]),
        ("", [-0.5 - 1.25]),
    ],
)
def test_a_model_by_hand(sentence, log10):
    # The back-offs of `the cat` are paid where its history is left: -0.75.
    words = ["the", "cat", "sat"]
    expected = -LN10 * np.array(log10)
    if sentence == "the cat":
        expected[-1] += 0.75 * LN10
    lm = lm_of(TRIGRAMS, words)
    assert lm.unit == "word" and lm.num_labels == 4
    costs = costs_of(lm, ids_of(words, sentence.split()))
    assert costs == pytest.approx(expected.tolist(), rel=1e-6)


def test_states_are_the_histories_that_matter():
    lm = lm_of(TRIGRAMS, ["the", "cat", "sat"])
    # (), <s>, <unk>, the, cat, <s> the, the cat, the <unk>; `sat` and `cat sat` are
    # the empty history, `<s> the cat` is `the cat`.
    assert lm.num_states == 8
    assert lm.automaton.backoff_state[0] == -1 and lm.start == 1
    _, the_cat = lm.step(lm.step(lm.start, 1)[1], 2)
    assert lm.step(lm.step(lm.step(lm.start, 3)[1], 1)[1], 2)[1] == the_cat
    assert lm.step(the_cat, 3)[1] == 0


@pytest.mark.parametrize("label", [EPSILON_WORD, "<s>", "</s>"])
def test_marks_and_epsilon_are_never_predicted(label):
    words = ("the", "<s>", "</s>", "<unk>")
    lm = lm_of(TRIGRAMS, words)
    assert lm.step(lm.start, (EPSILON_WORD, *words).index(label))[0] == INF


def test_what_the_model_lacks():
    words = ["the", "cat", "sat", "dog", "emu"]
    backoff = (0.5 + 0.25) * LN10
    lm = lm_of(TRIGRAMS, words)
    the = lm.step(lm.start, 1)[1]
    for label in (4, 5, 6, 1000, 2**31 - 1):  # 6 and on: added at run time
        assert lm.step(the, label) == (pytest.approx(2.5 * LN10), lm.step(the, 4)[1])
    lm = lm_of(TRIGRAMS, words, unk_cost=7.0)
    the = lm.step(lm.start, 1)[1]
    assert lm.step(the, 4) == (pytest.approx(backoff + 7), 0)
    lm = lm_of(TRIGRAMS.replace("<unk>", "unkn"), words)
    assert lm.step(the, 4) == (INF, 0)


def test_tokens_and_the_blank():
    tokens = token_table(["<blank>", "the", "cat", "sat", "<unk>"])
    lm = NgramLM.from_arpa(io.StringIO(TRIGRAMS), tokens)
    assert lm.unit == "token"
    costs, nextstates = lm.row(lm.start)
    assert costs.dtype == np.float32 and nextstates.dtype == np.int32
    assert costs[0] == INF and np.isfinite(costs[1:]).all()
    assert costs[1] == pytest.approx(0.25 * LN10)
    assert costs[4] == pytest.approx((0.5 + 3.5) * LN10)


def test_a_model_of_other_tokens():
    """Over words, or NeMo's: it would score all tokens alike, or allow none."""
    for names in (["<blank>", "a", "b"], ["<blank>", "<unk>", "a", "b"]):
        with pytest.raises(ArpaError, match="none of the 2 tokens, such as 'a', is a"):
            NgramLM.from_arpa(io.StringIO(TRIGRAMS), token_table(names))


def test_tokens_that_a_model_lacks_are_named(caplog):
    tokens = token_table(["<blank>", "the", "cat", "sat", "<unk>", "hat", "mat"])
    NgramLM.from_arpa(io.StringIO(TRIGRAMS), tokens)
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    text = "2 of 5 tokens are not in the language model, such as 'hat', 'mat'"
    assert record.getMessage() == text


def test_nemo_files_name_tokens_by_characters():
    names = ["a", "b", "c", "d"]
    tokens = token_table([*names, "<blank>"])
    text = TRIGRAMS
    for word, token in (("the", 0), ("cat", 1), ("sat", 3)):
        text = text.replace(word, chr(token + 100))
    lm = NgramLM.from_arpa(io.StringIO(text), tokens, nemo_tokens=True)
    plain = lm_of(TRIGRAMS, ["the", "cat", "sat"])
    same = {1: 0, 2: 1, 3: 3}
    for sentence in ([1, 2, 3], [2, 1], [3, 3, 1, 2], []):
        costs = costs_of(plain, sentence)
        assert costs_of(lm, [same[w] for w in sentence]) == costs
    assert lm.step(lm.start, 2)[0] == pytest.approx(4.0 * LN10)  # <unk>
    assert lm.step(lm.start, 4)[0] == INF  # the blank


def random_lm(seed, **options):
    rng = np.random.default_rng(seed)
    words = [*naive_cases.WORD_NAMES[:4], *naive_cases.LM_ONLY_NAMES[:1], "oov"]
    text, _ = naive_cases.random_arpa(rng, words[:4], **options)
    return rng, words, text


def bits(array):
    return np.asarray(array, np.float32).view(np.uint32).tolist()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.share(keep=10)
def test_kernels_equal_the_reference(seed):
    rng, words, text = random_lm(seed, ties=seed % 3 == 0)
    lms = [lm_of(text, words), lm_of(text, words, unk_cost=3.0)]
    lm = pack_models(lms)
    size = lm.num_labels
    step_of, final_of = compiled(kernels.step), compiled(kernels.final)
    costs, nextstates = np.empty(size, np.float32), np.empty(size, np.int32)
    for model in (0, 1):
        first = model * lms[0].num_states
        for state in range(first, first + lms[model].num_states):
            expected = lm_reference.row(lm.automaton, model, state, size)
            kernels.row(lm.automaton, model, state, costs, nextstates)
            assert bits(costs) == bits(expected[0])
            assert nextstates.tolist() == expected[1].tolist()
            found = [
                step_of(lm.automaton, model, state, label) for label in range(size)
            ]
            assert [f[0] for f in found] == costs.tolist()
            assert [f[1] for f in found] == nextstates.tolist()
            final = lm.automaton.final_cost[state]
            if model == 0:
                assert bits(lms[0].row(state)[0]) == bits(costs)
                assert bits([lms[0].final(state)]) == bits([final])
            assert final_of(lm.automaton, state) == final


@pytest.mark.parametrize("unk", ["model", "cost"])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.share(keep=12)
def test_the_oracle_agrees(seed, unk):
    """Unigrams only, suffixes missing, `<unk>` in n-grams, back-offs above 1."""
    rng, words, text = random_lm(seed)
    parsed = naive_lm.parse_arpa(text)
    options = {"unk_cost": 4.5} if unk == "cost" else {}
    lm = lm_of(text, words, **options)
    if unk == "cost":  # `<unk>` is then no word of the model
        cost = {g: c for g, c in parsed.cost.items() if "<unk>" not in g}
        backoff = {g: b for g, b in parsed.backoff.items() if "<unk>" not in g}
        parsed = naive_lm.Ngrams(parsed.order, cost, backoff)
    has_unk = ("<unk>",) in parsed.cost
    score = naive_lm.exact_scorer(parsed, options.get("unk_cost"), has_unk)
    for sentence in random_sentences(rng, words, 40):
        expected = score(sentence)
        assert lm.total(ids_of(words, sentence)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_kenlm_refuses(text):
    words = ["a", "the", "cat", "sat"]
    lm = lm_of(text, words, unk_cost=7.0)
    score = naive_lm.exact_scorer(naive_lm.parse_arpa(text.replace("<unk>", "u")), 7.0)
    for sentence in random_sentences(np.random.default_rng(5), words, 50):
        found = lm.total(ids_of(words, sentence))
        assert found == pytest.approx(score(sentence), rel=1e-6, abs=1e-3)


def assert_kenlm_agrees(path, lm, words, sentences):
    """Pairs of equal states; a missing `<unk>` costs 100 (log10) in KenLM."""
    kenlm = pytest.importorskip("kenlm")
    peer = kenlm.Model(str(path))
    together = {}
    for sentence in sentences:
        theirs, ours = kenlm.State(), lm.start
        peer.BeginSentenceWrite(theirs)
        for word, label in zip(sentence, ids_of(words, sentence), strict=True):
            after = kenlm.State()
            expected = -peer.BaseScore(theirs, str(word), after) * LN10
            cost, ours = lm.step(ours, label)
            theirs = after
            assert cost == pytest.approx(expected, rel=1e-6, abs=1e-6), sentence
            together.setdefault(ours, set()).add(theirs)
        total = lm.total(ids_of(words, sentence))
        expected = -peer.score(" ".join(sentence)) * LN10
        assert total == pytest.approx(expected, rel=1e-6), sentence
    return together


def assert_same_states(together):
    """Histories that are one state here are one in KenLM, and the other way round."""
    assert all(len(theirs) == 1 for theirs in together.values())
    assert len(set().union(*together.values())) == len(together)


@pytest.mark.peers
def test_kenlm_agrees_on_a_real_model_and_real_sentences():
    path = DEMO / "lm.arpa.gz"
    model = read_arpa(path)
    words = [w for w in model.words if w not in ("<s>", "</s>", "<unk>")]
    lines = (DEMO / "refs.txt").read_text("utf-8").splitlines()
    sentences = [line.split()[1:] for line in lines]
    assert len(sentences) > 20
    lm = NgramLM.from_arpa(model, (EPSILON_WORD, *words))
    assert lm.num_arcs > 200_000
    together = assert_kenlm_agrees(path, lm, words, sentences)
    assert_same_states(together)
    state = lm.step(lm.start, ids_of(words, ["the"])[0])[1]
    costs, _ = lm.row(state)
    assert np.exp(-costs[np.isfinite(costs)].astype(float)).sum() <= 1


@pytest.mark.parametrize("mapped_bytes", [0, 1 << 26])
def test_saved_and_loaded(tmp_path, mapped_bytes, monkeypatch):
    monkeypatch.setattr("wfstdec.lm.ngram.MAPPED_BYTES", mapped_bytes)
    rng, words, text = random_lm(3)
    lm = lm_of(text, words)
    for _ in range(2):  # a second time over the first
        lm.save(tmp_path / "lm")
        loaded = load_lm(tmp_path / "lm")
        assert (loaded.unit, loaded.num_labels) == (lm.unit, lm.num_labels)
        for one, other in zip(lm.automaton, loaded.automaton, strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other)
            assert not other.flags.writeable
            while isinstance(other, np.ndarray):
                other = other.base
            assert isinstance(other, mmap.mmap) == (mapped_bytes == 0)
    assert [path.name for path in tmp_path.iterdir()] == ["lm"]
    assert loaded.total([1, 2, 3]) == lm.total([1, 2, 3])


@pytest.mark.parametrize("content", [b"", b"\x7f" * 5000], ids=["cut", "overwritten"])
def test_files_that_change_do_no_harm_to_a_loaded_model(tmp_path, content):
    lm_of(TRIGRAMS, ["the", "cat", "sat"]).save(tmp_path / "lm")
    loaded = load_lm(tmp_path / "lm")
    before = loaded.total([1, 2, 3])
    for file in (tmp_path / "lm").glob("*.npy"):
        assert file.stat().st_mode & 0o222 == 0  # nothing writes to it by mistake
        file.chmod(0o644)
        file.write_bytes(content)
    assert loaded.total([1, 2, 3]) == before


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("arc_next", lambda a: a + 10**6),
        ("arc_next", lambda a: a.astype(np.int64)),
        ("arc_label", lambda a: a[::-1]),
        ("arc_cost", lambda a: a * np.float32("nan")),
        ("final_cost", lambda a: a[:-1]),
        ("backoff_state", np.abs),
        ("label_alias", lambda a: a + 9),
    ],
)
def test_damaged_files(tmp_path, name, change):
    lm_of(TRIGRAMS, ["the", "cat", "sat"]).save(tmp_path / "lm")
    file = tmp_path / "lm" / f"{name}.npy"
    file.chmod(0o644)
    np.save(file, change(np.load(file)))
    with pytest.raises(FormatError, match="the model is damaged; save it again"):
        load_lm(tmp_path / "lm")


def test_folders_that_are_no_models(tmp_path):
    with pytest.raises(FormatError, match="header.json: cannot read: No such file"):
        load_lm(tmp_path)
    lm = lm_of(TRIGRAMS, ["the"])
    with pytest.raises(FormatError, match="exists and is not a language model"):
        lm.save(tmp_path)
    with pytest.raises(FormatError, match="cannot write"):
        lm.save(tmp_path / "none" / "lm")
    lm.save(tmp_path / "lm")
    header = tmp_path / "lm/header.json"
    content = json.loads(header.read_text())
    header.write_text(json.dumps(content | {"version": 0}))
    with pytest.raises(FormatError, match="expected a language model of version 2"):
        load_lm(tmp_path / "lm")
    header.write_text("{")
    with pytest.raises(FormatError, match="not a readable language model"):
        load_lm(tmp_path / "lm")
    header.write_text(json.dumps(content))
    (tmp_path / "lm/arc_cost.npy").chmod(0o644)
    (tmp_path / "lm/arc_cost.npy").write_bytes(b"")
    with pytest.raises(FormatError, match="not a readable language model"):
        load_lm(tmp_path / "lm")


@pytest.mark.parametrize("mark", ["<s>", "</s>"])
def test_a_model_without_sentence_marks(mark):
    text = "\\data\\\nngram 1=2\n\n\\1-grams:\n-1 MARK\n-1 a\n\n\\end\\\n"
    other = {"<s>": "</s>", "</s>": "<s>"}[mark]
    with pytest.raises(ArpaError, match=f"the model has no {mark}, expected <s> and"):
        lm_of(text.replace("MARK", other), ["a"])


def test_options_that_mean_nothing():
    tokens = token_table(["<blank>", "a"])
    with pytest.raises(ArpaError, match="word 'the', expected the character of token"):
        NgramLM.from_arpa(io.StringIO(TRIGRAMS), tokens, nemo_tokens=True)
    with pytest.raises(OptionError, match="nemo_tokens with a word table"):
        lm_of(TRIGRAMS, ["the"], nemo_tokens=True)
    with pytest.raises(OptionError, match="unk_cost=nan, expected nats"):
        lm_of(TRIGRAMS, ["the"], unk_cost=float("nan"))


def test_queries_that_mean_nothing():
    lm = lm_of(TRIGRAMS, ["the"])
    top = lm.num_states - 1
    with pytest.raises(InputError, match=f"state {top + 1}, expected 0 to {top}"):
        lm.step(top + 1, 1)
    with pytest.raises(InputError, match="label -1, expected 0 or more"):
        lm.step(0, -1)
    with pytest.raises(ShapeError, match="1 labels, expected 2 as states"):
        lm.step_batch([0, 0], [1])
    with pytest.raises(ShapeError, match="states is float64"):
        lm.final_batch([0.5])
    assert lm.step_batch([], [])[0].shape == (0,)
