"""Lattices of searches with added words: the same from all backends, n-best lists."""

import numpy as np
import pytest
from added_cases import drawn_search, frames, small_graph

from wfstdec import BoostEntry, WfstDecoder, WfstOptions
from wfstdec.wfst.backend_choice import BACKENDS


def contents(lattice):
    ends = lattice.search_cost, lattice.reached_final, lattice.words
    return lattice.states.tobytes(), lattice.arcs.tobytes(), ends


def test_lattices_are_those_of_the_specification(tmp_path):
    found = 0
    for i in range(150):
        rng = np.random.default_rng([9, i])
        reference, x, boosts = drawn_search(rng, tmp_path)
        reference = reference.with_options(lattice_beam=reference.options.beam / 2)
        decoder = WfstDecoder(reference.graph, reference.options, "cpu", threads=1)
        (one,), (other,) = (
            which.decode_lattice([x], boosts=[boosts]) for which in (reference, decoder)
        )
        assert contents(other) == contents(one), i
        (hyp,) = decoder.decode([x], boosts=[boosts])
        (best, *_), *_ = decoder.decode_nbest([x], boosts=[boosts])
        assert best == hyp
        found += (one.arcs["arc"] >= reference.graph.num_arcs).any()
    assert found > 30


@pytest.mark.parametrize("backend", BACKENDS)
def test_words_with_one_pronunciation_all_come_out(backend, tmp_path):
    options = WfstOptions(nbest=5)
    decoder = WfstDecoder(small_graph(tmp_path), options, backend)
    boosts = [BoostEntry(word, ["n b"], 1.0) for word in ("zz", "yy", "xx")]
    (hyps,) = decoder.decode_nbest([frames("nb")], boosts=boosts)
    assert [hyp.text for hyp in hyps] == ["xx", "yy", "zz"]
    assert len({hyp.total_cost for hyp in hyps}) == 1
