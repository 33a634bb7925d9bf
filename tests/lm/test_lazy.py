"""Models on demand: tables that grow, labels, states and their order, answers."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from compiled import compiled
from own_models import ById, WholeText

from wfstdec import NgramLM, UserLM
from wfstdec.jit import kernel
from wfstdec.lm.kernels import UNKNOWN, final, state_order, step, unanswered
from wfstdec.lm.on_demand import LmArrays, OnDemandLM, digest

final, state_order = compiled(final), compiled(state_order)
step, unanswered = compiled(step), compiled(unanswered)

WORDS = ("<eps>", "a", "b", "c", "d")


@kernel
def score_all(lm, sentences, costs):
    """The cost of each of N sentences, int32 [N, n]."""
    for i in range(len(sentences)):
        state, total = lm.model_start[0], np.float32(0)
        for label in sentences[i]:
            cost, state = step(lm, 0, state, label)
            total += cost
        costs[i] = total + final(lm, state)


def totals(lm, sentences):
    """All of them by one kernel, redone until nothing is missing; and how often."""
    costs, redone = np.zeros(len(sentences), np.float32), 0
    with LmArrays(lm) as arrays:
        while True:
            score_all(arrays.now, sentences, costs)
            if not arrays.answer():
                return costs, redone
            redone += 1


def sentences(count, length=4, seed=0):
    return np.random.default_rng(seed).integers(1, 5, (count, length)).astype(np.int32)


@pytest.mark.parametrize("make", [WholeText, ById])
def test_a_kernel_finds_what_python_does(make):
    lm, given = OnDemandLM(make(), WORDS), sentences(200)
    costs, redone = totals(lm, given)
    assert redone == 5  # words one after the other, then the end
    expected = [make().total([WORDS[label] for label in one]) for one in given]
    assert costs == pytest.approx(np.array(expected, np.float32), rel=1e-6)
    with LmArrays(lm):  # the table is taken: another one is filled by what is known
        again, redone = totals(lm, given[::-1].copy())
    assert redone == 0 or np.array_equal(again, costs[::-1])
    with LmArrays(lm), LmArrays(lm):
        again, redone = totals(lm, given)
    assert redone == 5 and np.array_equal(again, costs)
    assert totals(lm, given)[1] < 5  # its table is there still


def test_threads_ask_once():
    class CountedWords(WholeText):
        def __init__(self):
            super().__init__()
            self.asked, self.inside = [], 0

        def score(self, state, word):
            self.inside += 1
            assert self.inside == 1
            self.asked.append((state, word))
            found = super().score(state, word)
            self.inside -= 1
            return found

    lm = OnDemandLM(CountedWords(), WORDS)
    given, found = sentences(500, length=5), {}
    want, _ = totals(OnDemandLM(WholeText(), WORDS), given)

    def work(i):
        found[i] = totals(lm, given[i * 50 :])[0]

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(found[i], want[i * 50 :]) for i in range(6))
    assert len(set(lm.model.asked)) == len(lm.model.asked)


def test_answers_are_let_go_of_when_there_are_many():
    lm = OnDemandLM(WholeText(), WORDS, max_pairs=20)
    first = lm.answers()
    want, _ = totals(lm, sentences(50))
    assert lm.answers() is not first and lm.answers().num_pairs == 0
    assert np.array_equal(totals(lm, sentences(50))[0], want)


def test_a_word_that_the_model_does_not_know():
    class Some(WholeText):
        words = ("a", "b")

    class WithUnk(WholeText):
        words = ("a", "<unk>")

    queries = LmArrays(OnDemandLM(Some(), WORDS)).__enter__()
    assert queries.step(0, 3)[0] == np.inf and queries.step(0, 1)[0] < np.inf
    queries = LmArrays(OnDemandLM(WithUnk(), WORDS)).__enter__()
    assert queries.step(0, 2) == queries.step(0, UNKNOWN)
    assert OnDemandLM(Some(), WORDS).unk_cost() == np.inf
    assert OnDemandLM(WithUnk(), WORDS).word_costs()[1] < np.inf


def test_nothing_is_asked_behind_what_is_not_known():
    lm = OnDemandLM(WholeText(), WORDS)
    with LmArrays(lm) as arrays:
        cost, after = step(arrays.now, 0, 0, 1)
        assert (cost, after) == (np.inf, -1) and unanswered(arrays.now)
        assert step(arrays.now, 0, -1, 1) == (np.inf, -1)
        assert final(arrays.now, -1) == np.inf and arrays.answer()
        assert lm.answers().num_pairs == 1


def test_a_model_that_fails_leaves_nothing_half_done():
    class Down(WholeText):
        broken = True

        def score(self, state, word):
            if self.broken and word == "c":
                raise ConnectionError
            return super().score(state, word)

    lm, given = OnDemandLM(Down(), WORDS), sentences(100)
    with pytest.raises(ConnectionError):
        totals(lm, given)
    only_a = np.full((1, 3), 1, np.int32)
    want = WholeText().total(["a", "a", "a"])
    assert totals(lm, only_a)[0] == pytest.approx([want], rel=1e-6)
    lm.model.broken = False
    want, _ = totals(OnDemandLM(WholeText(), WORDS), given)
    assert np.array_equal(totals(lm, given)[0], want)


def test_digests_are_the_same_in_every_run():
    ask = (
        "from wfstdec.lm.on_demand import digest; print(digest(('a', 'b', None, 2.5)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", ask],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{digest(('a', 'b', None, 2.5))}\n"}


def test_the_order_of_states_does_not_depend_on_their_numbers():
    for make in (WholeText, ById):
        orders = []
        for first, second in ((1, 2), (2, 1)):
            with LmArrays(OnDemandLM(make(5), WORDS)) as arrays:
                found = {}
                for label in (first, second):
                    _, state = arrays.step(arrays.start, label)
                    found[label] = arrays.orders(np.array([state]))[0]
                    assert found[label] == state_order(arrays.now, state)
                orders.append(found)
        assert orders[0] == orders[1]


def test_what_a_model_of_ones_own_is():
    assert isinstance(WholeText(), UserLM) and isinstance(ById(), UserLM)
    assert not isinstance("lm.arpa", UserLM) and not issubclass(NgramLM, UserLM)
