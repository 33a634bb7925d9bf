"""Cases of the oracle in the product: their graphs; is a result the oracle's best?"""

import io

import naive
import numpy as np
import pytest

import wfstdec
from wfstdec import (
    Boosts,
    Lexicon,
    PhraseCompiler,
    PhraseOptions,
    read_arpa,
    read_lexicon,
    token_table,
)
from wfstdec.boost.phrases import by_lexicon, by_words


def graph_of(case, **options):
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


def boosts_of_case(case, graph, folder):
    """The boosted words and phrases of a case whose graph was made by files."""
    options = PhraseOptions(**case.phrases.options)
    speller, labels = by_words(graph.word_ids), graph.words
    if case.phrases.unit == "token":
        path, labels = folder / "lexicon", graph.tokens
        lexicon = read_lexicon(path, labels, has_probs=case.lexicon_has_probs)
        separator = case.separator and labels.ids[case.separator]
        optional = case.separator_optional
        speller = by_lexicon(lexicon, separator=separator, separator_optional=optional)
    compiler = PhraseCompiler(speller, labels, options)
    return Boosts(case.boosts, compiler.compile(case.phrases.weights))


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
