"""Cases of the oracle in the product: their graphs; is a result the oracle's best?"""

import io

import naive
import numpy as np
import pytest

import wfstdec
from wfstdec import Lexicon, read_arpa, token_table


def graph_of(case, **options):
    """The graph of a case, from objects."""
    tokens = token_table(case.tokens, case.blank)
    entries = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    lexicon = Lexicon(
        tuple(entry.word for entry in entries),
        tuple(tuple(map(tokens.index, entry.tokens)) for entry in entries),
        np.array([entry.cost for entry in entries], np.float32),
    )
    return wfstdec.build_graph(
        tokens=tokens,
        lexicon=lexicon,
        lm=read_arpa(io.BytesIO(case.arpa.encode())),
        topology=case.topology,
        separator=case.separator,
        separator_optional=case.separator_optional,
        silence=case.silence,
        silence_prob=case.silence_prob,
        unk_cost=case.unk_cost,
        **options,
    )


def graph_by_files(case, folder, **options):
    """The graph of a case, by way of files."""
    texts = {"tokens": case.tokens_text, "lexicon": case.lexicon, "lm": case.arpa}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return wfstdec.build_graph(
        **{name: folder / name for name in texts},
        topology=case.topology,
        separator=case.separator,
        separator_optional=case.separator_optional,
        silence=case.silence,
        silence_prob=case.silence_prob,
        blank=case.blank,
        unk_cost=case.unk_cost,
        **{"minimize": False} | options,
    )


def words_of(hyp):
    return tuple(word.text for word in hyp.words)


def frames_of(hyp):
    return tuple((word.start_frame, word.end_frame) for word in hyp.words)


def close_to(cost):
    return pytest.approx(cost, rel=1e-5, abs=1e-4)


def assert_best(hyp, best):
    """Check that a hypothesis is one of the oracle's best: cost, words, times."""
    assert hyp.reached_final == (best.cost < np.inf)
    if hyp.reached_final:
        assert hyp.total_cost == close_to(best.cost)
        assert words_of(hyp) in best.ties
        assert frames_of(hyp) in best.ties[words_of(hyp)]
