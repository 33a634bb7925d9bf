"""The account of costs: what a total is made of."""

from wfstdec import WfstOptions
from wfstdec.search.hypothesis import CostAccount, insertion_cost

OPTIONS = WfstOptions(acoustic_scale=0.5, lm_scale=2.0)


def test_the_account_of_a_path():
    costs = CostAccount.of_path(
        OPTIONS, graph=3.0, acoustic=8.0, insertion=1.5, boost=-2.0
    )
    assert costs == CostAccount(9.5, 3.0, 8.0, 1.5, -2.0)


def test_the_account_of_summed_alignments():
    given = {"total": 9.5, "graph": 3.0, "insertion": 1.5, "boost": -2.0}
    assert CostAccount.of_total(OPTIONS, **given).acoustic_cost == 8.0
    without = WfstOptions(acoustic_scale=0.0)
    assert CostAccount.of_total(without, **given).acoustic_cost == 0.0


def test_no_insertion_is_plus_zero():
    assert str(insertion_cost(-1.0, 0)) == "0.0"
    assert insertion_cost(0.5, 3) == 1.5
