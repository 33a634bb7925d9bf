"""Costs of a frame's tokens: by hand, and the kernel against plain Python."""

import numpy as np
import pytest
from pricing_reference import price_frame

from wfstdec import GreedyOptions, WfstOptions
from wfstdec.search.logprobs import price, pricing_of

INF = np.inf


def by_kernel(logprobs, pricing, blank):
    unscaled, costs = np.empty((2, len(logprobs)), np.float32)
    price(pricing, blank, logprobs, unscaled, costs)
    return unscaled, costs


@pytest.mark.parametrize("priced", [price_frame, by_kernel])
@pytest.mark.parametrize(
    ("options", "unscaled", "costs"),
    [
        ({}, [1, 2, INF], [1, 2, INF]),
        ({"acoustic_scale": 0.5}, [1, 2, INF], [0.5, 1, INF]),
        ({"acoustic_scale": 0}, [1, 2, INF], [0, 0, INF]),
        ({"blank_penalty": 3}, [4, 2, INF], [4, 2, INF]),
        ({"blank_skip_threshold": 0.3}, [1, INF, INF], [1, INF, INF]),
        ({"blank_skip_threshold": 0.4}, [1, 2, INF], [1, 2, INF]),
    ],
)
def test_a_frame_by_hand(priced, options, unscaled, costs):
    logprobs = np.array([-1, -2, -INF], np.float32)
    found = priced(logprobs, pricing_of(WfstOptions(**options)), 0)
    assert [list(part) for part in found] == [unscaled, costs]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.share(keep=8)
def test_the_kernel_has_the_bits_of_plain_python(seed):
    rng = np.random.default_rng(seed)
    logprobs = np.log(rng.dirichlet(np.ones(9))).astype(np.float32)
    logprobs[rng.random(9) < 0.2] = -INF
    options = WfstOptions(
        acoustic_scale=rng.choice([1, 0, 0.3]),
        blank_penalty=rng.choice([0, -1.7, 2.1]),
        blank_skip_threshold=rng.choice([None, 0.1]),
    )
    blank, pricing = int(rng.integers(9)), pricing_of(options)
    expected = np.array(price_frame(logprobs, pricing, blank), np.float32)
    found = np.array(by_kernel(logprobs, pricing, blank))
    assert found.view(np.uint32).tolist() == expected.view(np.uint32).tolist()


def test_the_greedy_search_skips_nothing():
    assert pricing_of(GreedyOptions()) == pricing_of(WfstOptions())
