"""Tuning: against grids that are searched whole, on errors that are made to measure."""

import itertools
import random

import numpy as np
import pytest

from wfstdec.compare import Speech, tune
from wfstdec.compare.comparison import Outcome
from wfstdec.compare.tuning import COARSE, HALVINGS
from wfstdec.errors import OptionError

WORDS = 400
SPEECH = Speech({"u": np.zeros((1, 2), np.float32)}, {"u": ("a",) * WORDS})
RANGES = {"lm_scale": (0.2, 1.8), "word_insertion": (-4.0, 4.0)}


class Landscape:
    """A search that makes as many errors as a function of its setting says."""

    def __init__(self, errors):
        self.errors, self.asked = errors, []

    def prepare(self, setting):
        self.asked.append(tuple(setting.values()))
        wrong = self.errors(**setting)
        text = " ".join(["a"] * (WORDS - wrong) + ["b"] * wrong)
        return lambda utterances, boosts: [Outcome(text)]


def bowl(scale, insertion):
    def errors(lm_scale, word_insertion):
        distance = 5 * abs(lm_scale - scale) + abs(word_insertion - insertion)
        return round(20 * distance)

    return errors


def finest(ranges):
    parts = (COARSE - 1) * 2**HALVINGS
    return itertools.product(
        *(
            [round(low + (high - low) * i / parts, 6) for i in range(parts + 1)]
            for low, high in ranges.values()
        )
    )


def test_bowls_have_the_optimum_of_the_whole_grid():
    rng = random.Random(2)
    for _ in range(20):
        errors = bowl(rng.uniform(0.3, 1.7), rng.uniform(-3.5, 3.5))
        search = Landscape(errors)
        tuning = tune(search.prepare, SPEECH, RANGES, max_trials=200)
        least = min(errors(*place) for place in finest(RANGES))
        assert tuning.best.errors.total == least
        assert tuning.complete and tuning.borders == []
        assert len(set(search.asked)) == len(search.asked) == len(tuning.trials)
        assert [tuple(t.setting.values()) for t in tuning.trials] == search.asked


def test_of_equals_the_smaller_insertion_wins_then_the_scale_nearer_to_one():
    def flat(lm_scale, word_insertion):
        return 10 + round(abs(word_insertion - 1) > 1)  # 0 to 2 are alike

    best = tune(Landscape(flat).prepare, SPEECH, RANGES).best
    assert best.setting == {"lm_scale": 1.0, "word_insertion": 0.0}

    def corner(lm_scale, word_insertion):  # the scale is 1, or the insertion 0
        return 9 - round(lm_scale == 1.0) - round(word_insertion == 0.0)

    def either(lm_scale, word_insertion):
        return 9 + round(corner(lm_scale, word_insertion) != 8)

    best = tune(Landscape(either).prepare, SPEECH, RANGES).best
    assert best.setting == {"lm_scale": 0.95, "word_insertion": 0.0}
    ranges = {"lm_scale": (0.2, 0.8), "word_insertion": (-2.0, 2.0)}
    best = tune(Landscape(lambda **_: 7).prepare, SPEECH, ranges).best
    assert best.setting == {"lm_scale": 0.8, "word_insertion": 0.0}


def test_a_step_is_repeated_as_long_as_it_helps():
    path = {(1.0, 0.0): 9, (1.2, 1.0): 8, (1.2, 2.0): 7, (1.2, 3.0): 6}

    def errors(lm_scale, word_insertion):
        return path.get((lm_scale, word_insertion), 10)

    tuning = tune(Landscape(errors).prepare, SPEECH, RANGES)
    assert tuple(tuning.best.setting.values()) == (1.2, 3.0)


def test_an_optimum_on_the_border_is_said():
    tuning = tune(Landscape(bowl(2.5, -9)).prepare, SPEECH, RANGES)
    assert tuning.best.setting == {"lm_scale": 1.8, "word_insertion": -4.0}
    assert tuning.borders == [
        "lm_scale 1.8 is the upper end of its range",
        "word_insertion -4 is the lower end of its range",
    ]


def test_fixed_values_and_a_scale_of_zero_are_no_borders():
    ranges = {"lm_scale": (0.0, 1.0), "word_insertion": (1.0, 1.0)}
    search = Landscape(lambda lm_scale, word_insertion: round(100 * lm_scale))
    tuning = tune(search.prepare, SPEECH, ranges)
    assert tuning.best.setting == {"lm_scale": 0.0, "word_insertion": 1.0}
    assert tuning.borders == []
    assert {place[1] for place in search.asked} == {1.0}


def test_the_number_of_trials_is_bounded_and_two_runs_do_the_same():
    runs = [
        tune(Landscape(bowl(0.77, 1.3)).prepare, SPEECH, RANGES, max_trials=30)
        for _ in "ab"
    ]
    assert len(runs[0].trials) == 30 and not runs[0].complete
    assert runs[0] == runs[1]
    one = tune(Landscape(bowl(1, 0)).prepare, SPEECH, RANGES, max_trials=1)
    assert one.best.setting == {"lm_scale": 1.0, "word_insertion": 0.0}


@pytest.mark.parametrize("max_trials", [1, 8, 80])
def test_the_default_setting_is_the_first_trial(max_trials):
    """However few there are, so that the best is never worse."""
    default = {"lm_scale": 0.8, "word_insertion": 0.5}
    search = Landscape(bowl(0.8, 0.5))
    options = {"max_trials": max_trials, "default": default}
    tuning = tune(search.prepare, SPEECH, RANGES, **options)
    assert tuning.default is tuning.trials[0] and tuning.default.stage == "default"
    assert tuning.default.setting == tuning.best.setting == default
    assert len(tuning.trials) == len(search.asked) <= max_trials
    narrow = {"lm_scale": (0.2, 0.6), "word_insertion": (-4.0, 4.0)}
    tuning = tune(search.prepare, SPEECH, narrow, **options)  # leaves it out
    assert tuning.default not in tuning.trials and tuning.default.errors.total == 0


@pytest.mark.parametrize(
    "ranges, trials, message",
    [
        (RANGES, 0, "max_trials=0, expected 1 or more"),
        ({}, 9, "no ranges, expected at least one"),
        ({"lm_scale": (1.0, 0.5)}, 9, "range of lm_scale 1.0 to 0.5, expected the"),
        ({"lm_scale": (0.0, float("nan"))}, 9, "range of lm_scale 0.0 to nan"),
    ],
)
def test_faulty_ranges(ranges, trials, message):
    with pytest.raises(OptionError, match=message):
        tune(Landscape(bowl(1, 0)).prepare, SPEECH, ranges, max_trials=trials)
