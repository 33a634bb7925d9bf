"""Decoders of phrases alone: by hand, and against every reading of every alignment."""

import functools
import itertools

import naive_search
import numpy as np
import pytest
from added_cases import frames, small_graph

import wfstdec
from wfstdec import GreedyDecoder, TrieDecoder, WfstDecoder, WfstOptions
from wfstdec.errors import OptionError

pytestmark = pytest.mark.usefixtures("quiet")
NAMES = "_abn|"


@pytest.fixture
def decoder_of(tmp_path):
    def make(kind, separator=None, topology="normal"):
        graph = small_graph(tmp_path, topology, separator)
        if kind == "greedy":
            return GreedyDecoder(tokens=list(NAMES))
        if kind == "wfst":
            return WfstDecoder(graph, g2p="spelling")
        files = {name: tmp_path / name for name in ("tokens", "lexicon", "lm")}
        return TrieDecoder(**files, separator=separator, g2p="spelling")

    return make


@functools.cache
def least_cost(tokens, phrases, unk_cost, separator):
    """The least cost of all ways to read tokens as phrases and `[unk]`."""
    entry_cost = np.log(len(set(phrases)) + (unk_cost is not None) + 1)

    @functools.cache
    def cost(i, rest, begins):
        """Of the tokens from `i` on, after a word; `rest`: of the phrase under way."""
        best = entry_cost if i == len(tokens) and not rest else np.inf
        if tokens[i : i + 1] == (separator,):
            best = min(best, cost(i + 1, rest, True))
        if not begins:
            return best
        ways = [(rest, 0)] if rest else [(one, entry_cost) for one in phrases]
        for (word, *others), price in ways:
            end = i + len(word)
            if tokens[i:end] == tuple(word):  # words are spelled by their tokens
                others = tuple(others)
                best = min(best, price + cost(end, others, separator is None))
        for end in range(i + 1, len(tokens) + 1) if unk_cost and not rest else ():
            if separator not in (tokens[i], tokens[end - 1]):
                inside = tokens[i:end].count(separator)
                price = entry_cost + unk_cost * (end - i - inside)
                price += min(unk_cost, 0.9 * entry_cost) * inside
                best = min(best, price + cost(end, (), separator is None))
        return best

    return cost(0, (), True)


@pytest.mark.parametrize("unk_cost", [None, 0.4])
@pytest.mark.parametrize("kind", ["wfst", "trie"])
@pytest.mark.parametrize("separator", ["|", None])
def test_costs_are_those_of_all_readings(kind, separator, unk_cost, decoder_of):
    decoder, rng = decoder_of(kind, separator), np.random.default_rng(3)
    texts = []
    for _ in range(6):
        words = rng.choice(["an", "ban", "b", "n", "na", "aa"], 3, replace=False)
        sizes = rng.integers(1, 3, 3)
        phrases = tuple(tuple(rng.choice(words, n).tolist()) for n in sizes)
        given = [" ".join(one) for one in phrases]
        given += [f"{given[0]} "] + ["[unk]"] * bool(unk_cost)  # one of them twice
        strict = WfstDecoder.of_phrases(decoder, given, unk_cost=unk_cost or 2.0)
        rows = np.log(rng.dirichlet(np.full(len(NAMES), 0.4), 5)).astype(np.float32)
        [found] = strict.with_options(beam=np.inf, max_active=None).decode([rows])
        costs = []
        for alignment in itertools.product(range(len(NAMES)), repeat=len(rows)):
            text = tuple(NAMES[t] for t in naive_search.collapse(alignment, 0))
            cost = least_cost(text, phrases, unk_cost, separator)
            costs.append(cost - rows[range(len(rows)), alignment].sum())
        assert found.total_cost == pytest.approx(min(costs), abs=1e-4)
        texts += found.text.split()
    assert len(texts) > 1 and ("[unk]" in texts) == bool(unk_cost)


@pytest.mark.parametrize("topology", [None, "normal", "compact"])
@pytest.mark.parametrize(
    ("phrases", "spoken", "text", "starts"),
    [
        ("an ban,ban nab", "an|ban|nab", None, ()),  # no phrase from the end of another
        ("an ban,ban nab", "an|ban|ban|nab", "an ban ban nab", (0, 3, 7, 11)),
        ("an,an ban", "an|an|ban|an", "an an ban an", (0, 3, 6, 10)),
        ("an ban,AN  ban,an ban", "an|ban|", "an ban", (0, 3)),
        ("an", "_____", "", ()),
        ("ban,[unk]", "nab|a_ab|ban|bb", "[unk] ban [unk]", (0, 9, 13)),
        ("ban,[unk]", "ban|ban", "ban ban", (0, 4)),
        ("an ban,[unk]", "an|an|ban", "[unk] an ban", (0, 3, 6)),
    ],
)
def test_phrases_by_hand(topology, phrases, spoken, text, starts, decoder_of):
    decoder = decoder_of("wfst" if topology else "trie", "|", topology or "normal")
    strict = WfstDecoder.of_phrases(decoder, phrases.split(","))
    [found] = strict.decode([frames(spoken)])
    assert found.reached_final == (text is not None)
    if text is not None:
        assert found.text == text
        assert tuple(word.start_frame for word in found.words) == starts


def test_pieces_and_options_are_the_decoders():
    names = ["<blk>", "\u2581tu", "rn", "\u2581stop", "\u2581", "s"]
    lexicon = wfstdec.Lexicon(("turn", "stop"), ((1, 2), (3,)), np.zeros(2, np.float32))
    options = wfstdec.TrieOptions(beam=25.0, lm_scale=0.5, acoustic_scale=0.7)
    decoder = TrieDecoder(
        tokens=names, lexicon=lexicon, options=options, frame_shift_s=0.08
    )
    strict = WfstDecoder.of_phrases(decoder, ["stop", "[unk]"])
    rows = np.full((5, 6), -20, np.float32)
    rows[range(5), [3, 0, 1, 2, 5]] = 0
    [found] = strict.decode([rows])
    assert found.text == "stop [unk]" and found.words[1].start_s == 0.16
    assert strict.options == WfstOptions(beam=25.0, acoustic_scale=0.7)


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        ([], "expected at least one word each"),
        (["an", " "], "expected at least one word each"),
        (["[unk]"], "expected at least one word each"),
        ("an ban", "expected a list or tuple"),
        (["an", "an zoo", "kip"], "Decoder without pronunciations of .*'kip', 'zoo'"),
        (["an [unk]"], "without pronunciations of .*'\\[unk\\]'"),
    ],
)
@pytest.mark.parametrize("kind", ["wfst", "trie", "greedy"])
def test_lists_that_no_decoder_can_have(kind, phrases, message, decoder_of):
    with pytest.raises(OptionError, match=message):
        WfstDecoder.of_phrases(decoder_of(kind), phrases)
