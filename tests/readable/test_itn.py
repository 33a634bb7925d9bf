"""Inverse text normalisation: English pairs, partitions, streaming, files, errors."""

import gzip
import itertools
import random
from pathlib import Path

import pytest

from wfstdec.errors import FormatError, GrammarError
from wfstdec.readable.itn import ItnGrammar, Segment, load_itn

ROOT = Path(__file__).parents[2]
PAIRS = [
    line.split("\t")
    for line in (ROOT / "tests/data/itn_en.tsv").read_text("utf-8").splitlines()
]
UNCHANGED = (ROOT / "tests/data/itn_unchanged_en.txt").read_text("utf-8").splitlines()
VOCABULARY = "a b c d".split()


@pytest.fixture(scope="module")
def english():
    return load_itn("en")


def shown(segments):
    return " ".join(segment.text for segment in segments)


def kinds(segments):
    return [segment.kind for segment in segments if segment.kind]


def assert_partition(segments, words):
    assert [s.first for s in segments] == [0, *(s.last for s in segments)][:-1]
    assert (segments[-1].last if segments else 0) == len(words)
    for segment in segments:
        assert segment.first < segment.last
        if segment.kind is None:
            assert [segment.text] == words[segment.first : segment.last]


def test_english_pairs(english):
    assert len(PAIRS) >= 400
    for spoken, written, names in PAIRS:
        segments = english(spoken.split())
        assert (shown(segments), kinds(segments)) == (written, names.split()), spoken
        assert_partition(segments, spoken.split())


def test_sentences_without_numbers_are_unchanged(english):
    assert len(UNCHANGED) == 200
    for line in UNCHANGED:
        assert shown(english(line.split())) == line


def test_times_are_those_of_the_words(english):
    words = "He paid THREE hundred dollars at half past two".split()
    assert english(words) == [
        Segment(0, 1, "He", None),
        Segment(1, 2, "paid", None),
        Segment(2, 5, "$300", "MONEY"),
        Segment(5, 6, "at", None),
        Segment(6, 9, "2:30", "TIME"),
    ]
    assert english([]) == []
    assert english(["a b", "ten", ""])[1].text == "10"
    assert english(["ß", "ten"]) == [
        Segment(0, 1, "ß", None),
        Segment(1, 2, "10", "NUM"),
    ]


def test_single_digits_are_written_by_en_all(english):
    words = "one of the five and twenty one".split()
    assert shown(english(words)) == "one of the five and 21"
    assert shown(load_itn("en:all")(words)) == "1 of the 5 and 21"
    assert kinds(load_itn("en:all")(["zero"])) == ["NUM"]


# A grammar of strings: its oracle is a dict, with no transducer.


def random_entries(rng):
    """Spoken words to (written, cost); costs are exact in binary."""
    entries = {}
    for _ in range(rng.randint(1, 8)):
        words = tuple(rng.choice(VOCABULARY) for _ in range(rng.randint(1, 4)))
        entries[words] = (
            str(len(entries)),
            rng.choice([0, 0, 0, 0.5, 1, 1.5, 2.5, -1]),
        )
    return entries


def grammar_of(entries, folder, max_words=4):
    pynini = pytest.importorskip("pynini")
    rules = [
        pynini.cross(" ".join(words), written) + pynini.accep("", weight=cost)
        for words, (written, cost) in entries.items()
    ]
    path = folder / "toy.fst"
    pynini.union(*rules).rmepsilon().write(str(path))
    loaded = load_itn(path)
    return ItnGrammar(loaded.ranges, max_words=max_words)


def all_partitions(words, entries, start=0):
    """All partitions with their costs: tuples of (end, written or None)."""
    if start == len(words):
        yield 0.0, ()
        return
    steps = [(start + 1, None, 0.0)]
    for end in range(start + 1, len(words) + 1):
        if words[start:end] in entries:
            written, cost = entries[words[start:end]]
            steps.append((end, written, cost - (end - start)))
    for end, written, step_cost in steps:
        for cost, rest in all_partitions(words, entries, end):
            yield step_cost + cost, ((end, written), *rest)


def best_by_enumeration(words, entries):
    """Least cost; then longer ranges from the left, rewritten ones first."""

    def rank(partition):
        cost, steps = partition
        return cost, [(-end, written is None) for end, written in steps]

    _, steps = min(all_partitions(tuple(words), entries), key=rank)
    return list(steps)


def steps_of(segments):
    return [(s.last, s.text if s.kind else None) for s in segments]


def test_best_partition_equals_enumeration(tmp_path):
    rng = random.Random(1)
    for _ in range(500):
        entries = random_entries(rng)
        words = [rng.choice(VOCABULARY) for _ in range(rng.randint(1, 8))]
        segments = grammar_of(entries, tmp_path)(words)
        assert steps_of(segments) == best_by_enumeration(words, entries)
        assert_partition(segments, words)


def settled_by_enumeration(words, entries):
    """How many first words have one result for all ways to continue.

    An entry that begins in the words and ends behind them may be completed; so may
    none. The words before each of these places have their best partition.
    """
    heads = {len(words)}
    for i in range(len(words)):
        rest = tuple(words[i:])
        if any(len(e) > len(rest) and e[: len(rest)] == rest for e in entries):
            heads.add(i)
    paths = [
        best_by_enumeration(words[:head], entries) if head else [] for head in heads
    ]
    common = 0
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        common = steps[0][0]
    return common


def test_settled_words_equal_enumeration_and_never_change(tmp_path):
    rng = random.Random(2)
    longest = 0
    for _ in range(150):
        entries = random_entries(rng)
        grammar = grammar_of(entries, tmp_path)
        words = [rng.choice(VOCABULARY) for _ in range(rng.randint(1, 6))]
        segments, settled = grammar.partial(words)
        assert settled == settled_by_enumeration(words, entries)
        assert segments == grammar(words)
        longest += settled == len(words)
        kept = [s for s in segments if s.last <= settled]
        assert (kept[-1].last if kept else 0) == settled
        for more in itertools.chain.from_iterable(
            itertools.product(VOCABULARY, repeat=n) for n in range(4)
        ):
            continued = best_by_enumeration(words + list(more), entries)
            assert continued[: len(kept)] == steps_of(kept)
            # The words behind the settled ones are a sentence of their own.
            rest = steps_of(grammar([*words[settled:], *more]))
            assert [(end + settled, text) for end, text in rest] == continued[
                len(kept) :
            ]
    assert 20 < longest < 130


def test_streamed_english_equals_whole_sentences(english):
    rng = random.Random(3)
    words = [
        w for spoken, _, _ in rng.sample(PAIRS, 60) for w in (*spoken.split(), "so")
    ]
    segments, begin = [], 0
    for end in range(1, len(words) + 1):
        found, settled = english.partial(words[begin:end])
        segments += [
            s._replace(first=s.first + begin, last=s.last + begin)
            for s in found
            if s.last <= settled
        ]
        begin += settled
        assert end - begin <= 32
    begin = segments[-1].last
    rest = english(words[begin:])
    rest = [s._replace(first=s.first + begin, last=s.last + begin) for s in rest]
    assert segments + rest == english(words)


# Files: pynini writes them.


def far_of(path, rules, far_type="sttable"):
    pynini = pytest.importorskip("pynini")
    with pynini.Far(str(path), "w", far_type=far_type) as far:
        for name in sorted(rules):
            far.add(name, rules[name])
    return path


def rewrite_of(spoken, written):
    pynini = pytest.importorskip("pynini")
    byte = pynini.union(*(pynini.escape(chr(i)) for i in range(32, 127)))
    edge = pynini.union("[BOS]", "[EOS]", " ")
    return pynini.cdrewrite(pynini.cross(spoken, written), edge, edge, byte.closure())


@pytest.mark.parametrize("far_type", ["sttable", "stlist"])
def test_rules_of_a_far(tmp_path, far_type):
    pynini = pytest.importorskip("pynini")
    itn = pynini.string_map([("one", "1"), ("two", "2"), ("two one", "21")])
    rules = {
        "ITN": itn,
        "helper": pynini.accep("x"),
        "rewrite1": rewrite_of("b b c", "BBC"),
    }
    grammar = load_itn(far_of(tmp_path / "rules.far", rules, far_type))
    words = "on b b c two one".split()
    assert grammar(words) == [
        Segment(0, 1, "on", None),
        Segment(1, 4, "BBC", None),
        Segment(4, 6, "21", "NUM"),
    ]
    assert grammar.partial(words) == (grammar(words), 0)


@pytest.mark.parametrize(
    ("spoken", "rule", "expected"),
    [
        ("um so", ("um ", ""), [Segment(0, 2, "so", None)]),
        ("so um", (" um", ""), [Segment(0, 2, "so", None)]),
        (
            "go on",
            ("on", "on on"),
            [Segment(0, 1, "go", None), Segment(1, 2, "on on", None)],
        ),
        ("a b", ("a b", "c d"), [Segment(0, 2, "c d", None)]),
        ("a x", ("b", "c"), [Segment(0, 1, "a", None), Segment(1, 2, "x", None)]),
        ("é b", ("b", "c"), [Segment(0, 1, "é", None), Segment(1, 2, "b", None)]),
    ],
)
def test_a_rewrite_keeps_the_times_of_common_words(tmp_path, spoken, rule, expected):
    pynini = pytest.importorskip("pynini")
    byte = pynini.union(*(pynini.escape(chr(i)) for i in range(32, 127)))
    fst = pynini.cdrewrite(pynini.cross(*rule), "", "", byte.closure())
    grammar = load_itn(far_of(tmp_path / "r.far", {"rewrite": fst}))
    assert grammar(spoken.split()) == expected


BAD = {
    "accepts the empty string": lambda p: p.cross("a", "b").closure(),
    "deletes words": lambda p: p.union(p.cross("a", ""), p.cross("b", "c")),
    "compile it with pynini's token_type='byte'": lambda p: (
        p.accep("é", token_type="utf8") + p.accep("ł", token_type="utf8")
    ),
    "cost is negative": lambda p: (
        p.cross("a", "b") + p.closure(p.cross("", p.accep("c", weight=-1)))
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_rule_is_named_with_its_file(tmp_path, message):
    pynini = pytest.importorskip("pynini")
    path = far_of(tmp_path / "bad.far", {"ITN": BAD[message](pynini)})
    with pytest.raises(GrammarError, match=message) as error:
        load_itn(path)
    assert str(path) in str(error.value) and "rule 'ITN'" in str(error.value)


def test_a_far_without_the_rule_and_no_far_are_named(tmp_path):
    pynini = pytest.importorskip("pynini")
    rules = {"x": pynini.accep("a"), "y": pynini.accep("b")}
    with pytest.raises(FormatError, match=r"two\.far: has the rules x, y.*'ITN'"):
        load_itn(far_of(tmp_path / "two.far", rules))
    (tmp_path / "no.far").write_bytes(b"not a FAR at all")
    with pytest.raises(FormatError, match=r"no\.far: not a FAR"):
        load_itn(tmp_path / "no.far")
    (tmp_path / "no.fst").write_bytes(gzip.compress(b"\0\1"))
    for name in ("no.fst", "missing.fst", "missing.far"):
        with pytest.raises(FormatError, match=name):
            load_itn(tmp_path / name)
