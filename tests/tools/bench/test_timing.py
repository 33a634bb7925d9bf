"""Times by turns."""

from tools.bench.timing import Turns, fastest


def test_turns_alternate():
    ran, clock = [], iter(range(100))
    functions = {name: lambda name=name: ran.append(name) for name in ("a", "b")}
    turns = Turns(functions, lambda: next(clock))
    turns.repeat(3)
    assert ran == list("abbaab") and turns.seconds == {"a": [1] * 3, "b": [1] * 3}


def test_who_is_slow_runs_twice():
    now = [0.0]

    def work(seconds):
        now[0] += seconds
        return seconds

    turns = Turns({"a": lambda: work(1), "b": lambda: work(9)}, lambda: now[0])
    assert turns.take() == {"a": 1, "b": 9}
    turns.repeat(3, slow=5)
    assert turns.seconds == {"a": [1] * 4, "b": [9] * 2}


def test_the_fastest_of_some_calls():
    seconds, returned = fastest(lambda: 7, repeats=2)
    assert returned == 7 and 0 <= seconds < 1
