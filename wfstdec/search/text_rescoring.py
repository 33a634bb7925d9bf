"""n-best lists under a model of texts that the user brings, a neural one for example.

better = rescore_texts(decoder.decode_nbest(logprobs), log_probs, lm_scale=0.5)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from wfstdec.errors import OptionError, ShapeError
from wfstdec.search.hypothesis import Hypothesis


def rescore_texts(
    lists: Sequence[Sequence[Hypothesis]],
    log_probs: Callable[[list[str]], Sequence[float]],
    *,
    lm_scale: float = 1.0,
    graph_weight: float = 0.0,
    acoustic_scale: float = 1.0,
) -> list[list[Hypothesis]]:
    """Order lists by new totals; of equal ones the first stays first.

        graph_cost = -log_prob + graph_weight * the old graph_cost
        total_cost = acoustic_scale * acoustic_cost + lm_scale * graph_cost
                     + insertion_cost + boost_cost

    Args:
        lists: Hypotheses of each utterance, such as `decode_nbest` gives.
        log_probs: Natural log-probabilities of texts; called once, with every text
            once.
        lm_scale: Multiplies the new graph cost.
        graph_weight: Weight of the old graph cost.
        acoustic_scale: That of the search.

    Raises:
        OptionError: A scale or weight is no finite number.
        ShapeError: Not as many log-probabilities as texts, or NaN among them.
    """
    for name, value in (
        ("lm_scale", lm_scale),
        ("graph_weight", graph_weight),
        ("acoustic_scale", acoustic_scale),
    ):
        if not math.isfinite(value):
            raise OptionError(f"{name}={value!r}, expected a finite number")
    texts = list(dict.fromkeys(hyp.text for hyps in lists for hyp in hyps))
    found = [float(value) for value in log_probs(texts)]
    if len(found) != len(texts) or any(map(math.isnan, found)):
        raise ShapeError(
            f"log_probs gave {len(found)} numbers, NaN among them or not, expected "
            f"{len(texts)} log-probabilities, one for each text"
        )
    known = dict(zip(texts, found, strict=True))

    def priced(hyp: Hypothesis) -> Hypothesis:
        graph = -known[hyp.text]
        if graph_weight:
            graph += graph_weight * hyp.graph_cost
        rest = lm_scale * graph + hyp.insertion_cost + hyp.boost_cost
        total = acoustic_scale * hyp.acoustic_cost + rest
        return replace(hyp, graph_cost=graph, total_cost=total)

    return [sorted(map(priced, hyps), key=lambda hyp: hyp.total_cost) for hyps in lists]
