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
UNBOUNDED = WfstOptions(beam=np.inf, max_active=None)
KINDS = [
    *(("wfst", sep, topology) for sep in "|-" for topology in ("normal", "compact")),
    *(("trie", sep, "normal") for sep in "|-"),
]


@pytest.fixture
def decoder_of(tmp_path):
    def make(kind, separator=None, topology="normal", **more):
        graph = small_graph(tmp_path, topology, separator)
        if kind == "wfst":
            return WfstDecoder(graph, g2p="spelling", **more)
        files = {name: tmp_path / name for name in ("tokens", "lexicon", "lm")}
        return TrieDecoder(**files, separator=separator, g2p="spelling", **more)

    return make


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


def least_total(rows, phrases, unk_cost, separator, topology):
    """Over all alignments; `compact` may also leave out blanks of equal tokens."""
    costs: dict = {}
    for alignment in itertools.product(range(len(NAMES)), repeat=len(rows)):
        total = -rows[np.arange(len(rows)), alignment].sum()
        if topology == "normal":
            texts = [naive_search.collapse(alignment, 0)]
        else:
            runs = [
                (token, len(list(run))) for token, run in itertools.groupby(alignment)
            ]
            ways = [range(1, n + 1) if token else [0] for token, n in runs]
            texts = [
                tuple(t for (t, _), n in zip(runs, way, strict=True) for _ in range(n))
                for way in itertools.product(*ways)
            ]
        for text in texts:
            costs[text] = min(total, costs.get(text, np.inf))
    return min(
        total + least_cost(tuple(NAMES[t] for t in text), phrases, unk_cost, separator)
        for text, total in costs.items()
    )


@pytest.mark.parametrize("unk_cost", [None, 0.4])
@pytest.mark.parametrize(("kind", "sep", "topology"), KINDS)
def test_costs_are_those_of_all_readings(kind, sep, topology, unk_cost, decoder_of):
    separator = sep if sep in NAMES else None
    decoder, rng = decoder_of(kind, separator, topology), np.random.default_rng(3)
    num_unk = num_words = 0
    for _ in range(6):
        words = rng.choice(["an", "ban", "b", "n", "na", "aa"], 3, replace=False)
        cuts = [rng.choice(words, rng.integers(1, 3)).tolist() for _ in range(3)]
        phrases = [tuple(one) for one in cuts]
        rows = np.log(rng.dirichlet(np.full(len(NAMES), 0.4), 5)).astype(np.float32)
        given = [" ".join(one) for one in phrases] + ["[unk]"] * bool(unk_cost)
        strict = WfstDecoder.of_phrases(
            decoder, given, UNBOUNDED, unk_cost=unk_cost or 2.0
        )
        [found] = strict.decode([rows])
        expected = least_total(rows, phrases, unk_cost, separator, topology)
        assert found.total_cost == pytest.approx(expected, abs=1e-4)
        num_unk += "[unk]" in found.text
        num_words += len(found.words)
    assert num_words > 1 and (num_unk > 0) == bool(unk_cost)


@pytest.mark.parametrize("kind", ["wfst", "trie"])
@pytest.mark.parametrize(
    ("phrases", "spoken", "text", "starts"),
    [
        ("an ban,ban nab", "an|ban|nab", None, ()),  # no phrase from the end of another
        ("an ban,ban nab", "an|ban|ban|nab", "an ban ban nab", (0, 3, 7, 11)),
        (
            "an,an ban",
            "an|an|ban|an",
            "an an ban an",
            (0, 3, 6, 10),
        ),  # one begins with another
        (
            "an ban,AN  ban,an ban",
            "an|ban|",
            "an ban",
            (0, 3),
        ),  # twice; in another case
        ("an", "_____", "", ()),
        ("ban,[unk]", "nab|a_ab|ban|bb", "[unk] ban [unk]", (0, 9, 13)),
        ("ban,[unk]", "ban|ban", "ban ban", (0, 4)),
        ("an ban,[unk]", "an|an|ban", "[unk] an ban", (0, 3, 6)),
    ],
)
def test_phrases_by_hand(kind, phrases, spoken, text, starts, decoder_of):
    decoder = decoder_of(kind, "|")
    strict = WfstDecoder.of_phrases(decoder, phrases.split(","))
    [found] = strict.decode([frames(spoken)])
    assert found.reached_final == (text is not None)
    if text is None:
        return
    assert found.text == text
    assert tuple(word.start_frame for word in found.words) == starts
    sessions = strict.sessions(lattices=True)
    session = sessions.open()
    for row in frames(spoken):
        sessions.advance({session: row[None]})
    assert sessions.close_nbest(session)[0] == found
    [confident] = strict.decode([frames(spoken)], confidence=True)
    assert confident.text == text


def test_costs_are_those_of_one_phrase_in_all(decoder_of):
    """A phrase that is given twice, or in another case, is no likelier."""
    decoder = decoder_of("wfst", "|")
    costs = [
        WfstDecoder.of_phrases(decoder, list(phrases)).decode([frames("an|ban")])[0]
        for phrases in (("an ban", "b"), ("an ban", "b", "An ban", "b "))
    ]
    assert costs[0].graph_cost == costs[1].graph_cost == pytest.approx(2 * np.log(3))


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
        (["an", "an zoo", "kip"], "2 words .* without pronunciation: 'kip', 'zoo'"),
        (["an [unk]"], "inside of a phrase, expected it alone"),
    ],
)
@pytest.mark.parametrize("kind", ["wfst", "trie"])
def test_lists_that_no_decoder_can_have(kind, phrases, message, decoder_of):
    with pytest.raises(OptionError, match=message):
        WfstDecoder.of_phrases(decoder_of(kind), phrases)


def test_a_decoder_without_words_is_refused():
    with pytest.raises(OptionError, match="GreedyDecoder without words, expected a W"):
        WfstDecoder.of_phrases(GreedyDecoder(tokens=list(NAMES)), ["an"])


def test_the_cost_of_unk_is_checked(decoder_of):
    with pytest.raises(OptionError, match="token_cost=-1"):
        WfstDecoder.of_phrases(decoder_of("trie"), ["an", "[unk]"], unk_cost=-1.0)
