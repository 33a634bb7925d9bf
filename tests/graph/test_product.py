"""Graphs as products of T and rows of LG: taken apart, composed, stored, damaged."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from added_cases import random_calls_product
from random_graphs import random_graph, random_logprobs, random_product
from text_graphs import text_graph
from wfst_reference_backend import ReferenceBackend
from wfst_searches import NO_BOOSTS, bits

from wfstdec.errors import GraphError
from wfstdec.graph import file as packed_file
from wfstdec.graph.packed import load_graph
from wfstdec.graph.product import (
    AFTER_BLANK,
    IN_TOKEN,
    NO_BLANK,
    Product,
    arc_splits,
    compose,
    product_from,
)
from wfstdec.search.threads import CallBudget
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.options import WfstOptions

BY_HAND = """
    0 2 _  -   0
    0 1 a  A   0.5
    1 1 a' -   0
    1 2 _  -   0
    1 3 -  B   0.25
    2 2 _  -   0
    2 1 a  A   0.5
    3 3 a' -   0
    3 4 b  -   1
    4 4 b' -   0
    4 3 a  -   2
    4 0
"""
"""State 0 is the start, 1 is in `a`, 2 is behind a blank of both; no blank follows the
other two, each of which has a row of its own."""


def drawn(i):
    """A random product of either topology, some with OOV exits."""
    rng = np.random.default_rng([i, 21])
    if i % 3 == 0:
        return random_calls_product(rng)
    return random_product(rng, topology=("normal", "compact")[i % 2])


def test_a_product_by_hand():
    product = text_graph(BY_HAND).product
    assert product.kind.tolist() == [
        IN_TOKEN,
        IN_TOKEN,
        AFTER_BLANK,
        NO_BLANK,
        NO_BLANK,
    ]
    assert product.token.tolist() == [0, 2, 0, 2, 3]
    assert product.row.tolist() == [0, 0, 0, 1, 2]
    assert product.row_splits.tolist() == [0, 1, 2, 3]
    assert product.num_epsilons.tolist() == [0, 1, 0, 0, 0]
    assert product.arcs["nextstate"].tolist() == [1, 4, 3]
    assert not product.has_hubs


def test_random_products_are_composed_bit_for_bit():
    for i in range(60):
        graph = drawn(i)
        product = graph.product
        arcs, splits = compose(product)
        assert arcs.tobytes() == graph.arcs.tobytes(), i
        assert np.array_equal(splits, graph.state_arc_splits)
        assert arc_splits(product)[-1] == graph.num_arcs
        reduced, _ = compose(product, reduced=True)
        assert len(reduced) <= graph.num_arcs


def test_stored_products_are_the_graphs_that_they_were(tmp_path):
    path = tmp_path / "graph.npz"
    for i in range(40):
        graph = drawn(i)
        graph.save(path)
        stored = load_graph(path)
        assert "arcs" not in stored.__dict__ and stored.product is not None
        assert repr(stored) == repr(graph) and stored.fingerprint == graph.fingerprint
        assert "arcs" not in stored.__dict__
        for name in ("state_num_epsilons", "final_cost", "epsilon_rank"):
            assert getattr(stored, name).tobytes() == getattr(graph, name).tobytes()
        for other in (stored, replace(stored), pickle.loads(pickle.dumps(stored))):
            assert other.arcs.tobytes() == graph.arcs.tobytes()
            assert other.describe() == graph.describe()
        stored.save(path)  # its arcs are there by now
        assert load_graph(path).fingerprint == graph.fingerprint


def test_a_search_on_rows_makes_no_arcs(tmp_path):
    rng = np.random.default_rng(4)
    graph = random_product(rng, 6)
    graph.save(tmp_path / "graph.npz")
    stored = load_graph(tmp_path / "graph.npz")
    options, x = WfstOptions(beam=9.0), random_logprobs(rng, 9, 6)
    (found,) = CpuBackend(stored).decode_group([x], options, NO_BOOSTS, CallBudget())
    assert "arcs" not in stored.__dict__
    (expected,) = ReferenceBackend(graph).decode([x], options, [NO_BOOSTS])
    assert bits(found) == bits(expected)


def test_what_is_no_product_is_stored_arc_by_arc(tmp_path):
    path = tmp_path / "graph.npz"
    graph = random_graph(np.random.default_rng(0))
    assert graph.product is None
    graph.save(path)
    arrays, _ = packed_file.read_arrays(path)
    assert "arcs" in arrays and "lg_arcs" not in arrays


def test_files_of_before_are_read(tmp_path):
    """Every graph was written arc by arc up to version 4."""
    path = tmp_path / "graph.npz"
    for i in range(6):
        graph = drawn(i)
        packed_file.write_arrays(path, graph._arrays(), graph.fingerprint)
        old = load_graph(path)
        assert old.fingerprint == graph.fingerprint and "arcs" in old.__dict__


def test_a_changed_byte_is_found(tmp_path):
    path = tmp_path / "graph.npz"
    drawn(1).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["lg_arcs"]["cost"][0] += 1
    np.savez(path, **arrays)
    with pytest.raises(GraphError, match="the file is damaged"):
        load_graph(path)


def bad(name, change):
    """Parts of a product with one of them changed."""
    arrays = text_graph(BY_HAND).product.arrays()
    arrays[f"lg_{name}"] = change(arrays[f"lg_{name}"].copy())
    return arrays


def put(i, value, field=None):
    def change(array):
        (array if field is None else array[field])[i] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("kind", lambda a: a.astype(np.int32), "expected unsigned integers"),
        ("arcs", lambda a: a["cost"], "expected arcs"),
        ("row", lambda a: a.astype(np.uint64) + (1 << 40), "'lg_row' has"),
        ("token", lambda a: a[:-1], "tokens of 5 states"),
        ("row_splits", put(1, 9), "do not cover"),
        ("num_epsilons", put(0, 1), "do not cover"),
        ("kind", put(2, IN_TOKEN), "inconsistent rows"),
        ("kind", put(2, 9), "kind of a state 9, expected 0 to 3"),
        ("row", put(1, 3), "row of a state 3"),
        ("token", lambda a: a.astype(np.uint32) + (1 << 30), "token before a state"),
        ("arcs", put(0, 5, "nextstate"), "nextstate of LG 5"),
        ("epsilons", put(0, 5, "nextstate"), "nextstate of LG 5"),
        ("arcs", put(0, 2, "nextstate"), "inconsistent rows"),  # to a blank
        ("epsilons", put(0, 4, "nextstate"), "inconsistent rows"),  # to another token
        ("token", put(2, 2), "inconsistent rows"),
        ("kind", put(0, 3), "inconsistent rows"),
        ("row", put(1, 1), "inconsistent rows"),  # one without a blank
    ],
)
def test_parts_that_do_not_belong_together(name, change, message):
    with pytest.raises(GraphError, match=message):
        product_from(bad(name, change), 1, 3)


def test_whatever_is_changed_a_graph_is_sound_or_refused(tmp_path):
    """Digests are made anew: a file may come from anybody."""
    path, refused, whole = tmp_path / "graph.npz", 0, 0
    for i in range(200):
        rng = np.random.default_rng([i, 22])
        graph = drawn(int(rng.integers(20)))
        arrays = graph.product.arrays() | graph._other_arrays()
        names = [
            name for name in arrays if name.startswith("lg_") and len(arrays[name])
        ]
        name = str(rng.choice(names))
        array = arrays[name] = arrays[name].copy()
        at, most = int(rng.integers(len(array))), graph.num_states + 1
        field = array[rng.choice(array.dtype.names)] if array.dtype.names else array
        field[at] = rng.integers(0, min(most, 200))
        packed_file.write_arrays(path, arrays, graph.fingerprint)
        try:
            stored = load_graph(path)
        except GraphError:
            refused += 1
            continue
        whole += 1
        packed_file.write_arrays(path, stored._arrays(), "")
        with pytest.raises(GraphError, match="fingerprint"):  # nothing else
            load_graph(path)
        again = Product(**stored.product._asdict())
        assert compose(again)[0].tobytes() == stored.arcs.tobytes()
    assert refused > 40 and whole > 10
