"""Random cases for kernels in emulation: graphs, batches, boosts, devices."""

from cuda_emulation.device import EmulatedDevice
from random_graphs import (
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)

from wfstdec import CompiledBoosts
from wfstdec.boost.compiled import compile_word_boosts


def draw(rng, num_utterances=3, **kinds):
    """A graph, and for each utterance log-probs and boosts; options for all."""
    graph = random_graph(rng, **kinds)
    batch = [
        random_logprobs(rng, int(t), len(graph.tokens))
        for t in rng.integers(0, 9, num_utterances)
    ]
    boosts = []
    for _ in batch:
        words = compile_word_boosts(random_boosts(rng, graph), graph.word_ids)[0]
        phrases = random_phrases(rng, graph) if rng.random() < 0.5 else None
        boosts.append(CompiledBoosts(words, phrases))
    return graph, random_options(rng), batch, boosts


def random_device(rng, threads, preempt=0):
    """Blocks of any size; so is the table in shared memory."""
    slots = int(rng.choice([0, 16, 32, 64, 512]))
    seed = int(rng.integers(1 << 30))
    return EmulatedDevice(threads, preempt=preempt, seed=seed, shared_slots=slots)
