"""Punctuation: the search by enumeration, streams, other languages, files."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from wfstdec.cli.main import main
from wfstdec.errors import FormatError, OptionError, ShapeError
from wfstdec.lm.ngram import NgramLM
from wfstdec.readable.kernels import Scales, search_places
from wfstdec.readable.options import BuildOptions
from wfstdec.readable.printed import EVENTS, read_printed
from wfstdec.readable.punctuation import (
    ENGLISH,
    enter,
    load_punctuation,
    make_scales,
    new_search,
)
from wfstdec.readable.training import build_punctuation, count_pauses, f_score
from wfstdec.text.arpa import ArpaModel, NgramTable

HELD_OUT = Path(__file__).parents[1] / "data" / "punctuation_en.txt"
WORDS = 3
LABELS = ("<eps>", *(f"<{e}>" for e in EVENTS[1:]), *"abc")
FIRST_WORD = LABELS.index("a")


@pytest.fixture(scope="module")
def english():
    return load_punctuation()


@pytest.fixture(scope="module")
def held_out():
    return read_printed(HELD_OUT.read_text("utf-8").splitlines())


# Reading printed text


def test_printed_text_is_words_events_and_forms():
    lines = ["“Yes,” said Mr. Bly—the one from St. Ives. “Why?—No!” To Ives now;"] * 9
    words, events, forms = read_printed([*lines, "It’s 5 p.m. now."])
    assert words[:10] == "yes said mr bly the one from st ives why".split()
    assert [EVENTS[e][:4] for e in events[:11]] == (
        "comm none none dash none none none none peri ques excl".split()
    )
    assert forms[:4] == ["Yes", "said", "Mr.", "Bly"]
    assert words[-4:] == ["it's", "NUM", "pm", "now"]
    assert forms[-4:] == ["It's", "5", "p.m.", "now"]


# The search


def random_ngrams(random):
    """Costs and back-offs of n-grams up to 3 labels, by tuples."""
    names = range(1, len(LABELS))
    rows = [(n,) for n in names]
    pairs = [p for p in itertools.product(names, repeat=2) if random.random() < 0.4]
    triples = [
        (*p, n)
        for p in pairs
        for n in names
        if (p[1], n) in pairs and random.random() < 0.3
    ]
    return {
        row: random.uniform((1.9, 0.0), (4, 1)) for row in [*rows, *pairs, *triples]
    }


def arpa_of(ngrams):
    tables = []
    for order in (1, 2, 3):
        rows = [row for row in ngrams if len(row) == order]
        cost, backoff = np.array([ngrams[row] for row in rows]).reshape(-1, 2).T
        words = np.array(rows, np.int32).reshape(-1, order)
        tables.append(NgramTable(words, cost.copy(), backoff * (order < 3)))
    marks = len(LABELS) + np.arange(2, dtype=np.int32)[:, None]
    first = tables[0]
    tables[0] = NgramTable(
        np.concatenate([[[0]], first.words, marks]).astype(np.int32),
        np.concatenate([[99], first.cost, [99, 99]]),
        np.concatenate([[0], first.backoff, [0, 0]]),
    )
    return ArpaModel((*LABELS, "<s>", "</s>"), tuple(tables))


def ngram_cost(ngrams, history, label):
    """-log p(label | history) by backing off; kept among the n-grams."""
    history = tuple(history)[-2:]
    if (*history, label) not in ngrams:
        backoff = ngrams[history][1] if history in ngrams else 0.0
        ngrams[*history, label] = backoff + ngram_cost(ngrams, history[1:], label), 0.0
    return ngrams[*history, label][0]


def costs_of_all(
    ngrams, scales, words, allowed, evidence, events=(), level=0, row=None
):
    """The costs of all strings of allowed events, straight from the definition."""
    n, (costs, odds, pauses) = len(events), evidence
    row = row or (EVENTS.index("period"), words[0])
    if n == len(words):
        return {events: 0.0}
    found = {}
    for event in allowed[n]:
        total, asked, after = 0.0, level, row
        total += scales.network * costs[n, event] + scales.prior[event]
        total += scales.asks[level, event]
        if pauses[n] >= 0:
            total += scales.pause * scales.pauses[pauses[n], event]
        if event:
            total += scales.lm * ngram_cost(ngrams, row, event)
            after = (*row, event)
            own = sum(odds[n] > bound for bound in scales.levels)
            asked = own if scales.ends[event] else max(own, level)
        elif n + 1 == len(words):
            some = sum(math.exp(-ngram_cost(ngrams, row, e)) for e in range(1, 8))
            total -= scales.lm * math.log(max(1 - some, 1e-6))
        if n + 1 < len(words):
            total += scales.lm * ngram_cost(ngrams, after, words[n + 1])
            after = (*after, words[n + 1])
        given = ngrams, scales, words, allowed, evidence, (*events, int(event))
        for string, rest in costs_of_all(*given, asked, after).items():
            found[string] = total + rest
    return found


def random_scales(random):
    return make_scales(
        lm=random.uniform(0.2, 1),
        network=random.uniform(0.2, 1),
        pause=random.uniform(0.2, 1),
        prior=random.normal(size=8),
        asks=random.normal(size=(6, 8)),
        pauses=random.normal(size=(8, 8)),
        levels=[-1, -0.5, 0, 0.5, 1],
        beam=100.0,
        max_delay=14,
    )


def test_search_equals_enumeration_of_all_events():
    random = np.random.default_rng(5)
    for _ in range(200):
        ngrams = random_ngrams(random)
        automaton = NgramLM.from_arpa(arpa_of(ngrams), LABELS).automaton
        scales: Scales = random_scales(random)
        words = random.integers(FIRST_WORD, FIRST_WORD + WORDS, 6).astype(np.int32)
        costs = random.uniform(0, 3, (6, 8)).astype(np.float32)
        allowed = [random.choice(8, 3, replace=False) for _ in words]
        for row, events in zip(costs, allowed, strict=True):
            row[np.isin(np.arange(8), events, invert=True)] += 1000
        odds = random.normal(size=6).astype(np.float32)
        pauses = random.integers(-1, 8, 6).astype(np.int32)
        search, decided = new_search(automaton), np.zeros(32, np.int32)
        enter(automaton, search, words[0])
        given = automaton, scales, search, words, 0, costs, odds, pauses, True, decided
        assert search_places(*given) == 6
        evidence = costs, odds, pauses
        every = costs_of_all(ngrams, scales, words, allowed, evidence)
        assert len(every) == 3**6
        found = every[tuple(decided[:6].tolist())]
        assert found == pytest.approx(min(every.values()), abs=1e-3)


# Streams


def utterances(words, random, count):
    """Cut words into utterances of 1 to 20."""
    found, at = [], 0
    for _ in range(count):
        size = int(random.integers(1, 21))
        found.append([words[(at + i) % len(words)] for i in range(size)])
        at += size
    return found


def test_streams_equal_whole_utterances_for_any_chunks(english, held_out):
    random = np.random.default_rng(3)
    stream, whole = english.stream(), english.stream()
    for tokens in utterances(held_out[0], random, 200):
        pauses = random.exponential(0.1, len(tokens)).tolist()
        expected = whole.end(tokens, pauses)
        chunk = int(random.integers(1, len(tokens) + 1))
        settled = ((), ())
        for count in range(chunk, len(tokens), chunk):
            # Words that still change are behind those settled.
            arrived = [*tokens[:count], "wrong", "NUM"][: count + count % 3]
            gaps = [*pauses[:count], None, None][: len(arrived)]
            shown = stream.feed(arrived, gaps, num_settled=count)
            size = len(settled[0])
            assert shown.num_settled >= size
            assert (shown.events[:size], shown.forms[:size]) == settled
            size = shown.num_settled
            settled = shown.events[:size], shown.forms[:size]
        size = len(settled[0])
        shown = stream.end(tokens, pauses)
        assert (shown.events[:size], shown.forms[:size]) == settled
        assert shown == expected and shown.num_settled == len(tokens)


def test_words_settle_within_a_bounded_delay(english, held_out):
    stream, words = english.stream(), held_out[0]
    bound = english.right + english.scales.max_delay
    behind = []
    for count in range(1, len(words) + 1):
        shown = stream.feed(words[:count])
        behind.append(count - shown.num_settled)
    assert max(behind) <= bound
    assert np.median(behind) <= english.right + 1


def test_a_sentence_continues_over_the_end_of_an_utterance(english):
    stream = english.stream()
    first = stream.end("i have been to the".split())
    assert first.forms[0] == "I" and not first.events[-1] and stream.sentence_is_open
    second = stream.end("house of my father".split(), last=True)
    assert second.forms[0] == "house" and second.text.endswith("father.")
    assert not stream.sentence_is_open
    assert stream.end(["the", "dog"]).forms[0] == "The"


def test_only_the_end_of_a_file_has_to_end_a_sentence(english):
    tokens = "and then they went into the".split()
    assert english.punctuate(tokens, last=False).events[-1] == 0
    assert english.punctuate(tokens).text.endswith(".")
    assert english.punctuate([]).text == ""


def test_wrong_input_is_refused(english):
    stream = english.stream()
    stream.feed(["a", "b"])
    with pytest.raises(OptionError, match="differ from those settled"):
        stream.feed(["a", "c"])
    with pytest.raises(OptionError, match="num_settled=3, expected 2 to 2"):
        stream.feed(["a", "b"], num_settled=3)
    with pytest.raises(ShapeError, match="1 pauses, expected 2"):
        stream.feed(["a", "b"], [0.1])


# Models of other languages


GERMAN = [
    "Der Hund sieht die Katze. Die Katze sieht den Hund.",
    "Wo ist der Hund? Der Hund ist im Haus.",
    "Im Haus ist die Katze, und der Hund sieht das Haus.",
    "Wo ist die Katze? Die Katze ist im Haus.",
]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def test_german_nouns_have_capitals_by_the_words_alone(tmp_path):
    path = write(tmp_path / "de.txt", GERMAN * 60)
    model = build_punctuation([path], options=BuildOptions(passes=8))
    shown = model.punctuate("wo ist die katze die katze sieht den hund".split())
    assert shown.text == "Wo ist die Katze? Die Katze sieht den Hund."


def test_a_language_of_fifty_words(tmp_path):
    random = np.random.default_rng(0)
    first = [f"ka{a}" for a in "aeioulmnrs"]
    rest = [f"lo{a}{b}" for a in "bcdfghk" for b in "aeiou"] + [
        "luka",
        "mo",
        "na",
        "su",
    ]
    lines = []
    for _ in range(600):
        words = [random.choice(first), *random.choice(rest, random.integers(2, 6))]
        asks = random.random() < 0.4
        line = " ".join(["qu", *words[1:]] if asks else words)
        lines.append(line.capitalize() + ("?" if asks else "."))
    path = write(
        tmp_path / "text.txt", [" ".join(lines[i : i + 4]) for i in range(597)]
    )
    model = build_punctuation([path], options=BuildOptions(passes=6))
    model.save(tmp_path / "made.npz")
    model = load_punctuation(tmp_path / "made.npz")
    words = "qu loba lobe lobi kao loca loce qu mo na".split()
    assert model.punctuate(words).text == "Qu loba lobe lobi? Kao loca loce. Qu mo na?"


def test_pauses_are_counted_by_events(tmp_path):
    line = '{"text": "Yes, it is.", "words": [[0, 0.3], [0.9, 1], [1, 1.2]]}'
    costs = count_pauses(write(tmp_path / "speech.jsonl", [line] * 50))
    comma, none = EVENTS.index("comma"), EVENTS.index("none")
    assert costs[:, comma].argmin() == 5 and costs[:, none].argmin() == 0
    with pytest.raises(FormatError, match=r"bad\.jsonl"):
        count_pauses(write(tmp_path / "bad.jsonl", ["yes"]))


# Files


def test_what_is_no_model_is_refused_by_name(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"x\.npz: not a readable punctuation model"):
        load_punctuation(path)
    np.savez(path, header=np.frombuffer(b'{"format": "a", "version": 1}', np.uint8))
    with pytest.raises(FormatError, match=r"x\.npz: found \('a', 1\), expected"):
        load_punctuation(path)
    with pytest.raises(FormatError, match="text.txt: 2 words without punctuation"):
        build_punctuation([write(tmp_path / "text.txt", ["a b", "c"])])
    with pytest.raises(OptionError, match="order=5"):
        BuildOptions(order=5)


@pytest.mark.parametrize("name", ["embedding", "groups", "weight_2", "lm_arc_next"])
def test_a_damaged_model_is_refused_by_name(tmp_path, name):
    with np.load(ENGLISH) as file:
        arrays = dict(file)
    arrays[name] = arrays[name][:-1]
    np.savez(tmp_path / "cut.npz", **arrays)
    with pytest.raises(FormatError, match=r"cut\.npz"):
        load_punctuation(tmp_path / "cut.npz")


# The shipped model


@pytest.mark.parametrize(
    "text",
    [
        "Yes, said Mr. Bly. Why do you ask?",
        "The meeting is on Thursday, because John is not available on Wednesday.",
        "What do you want?",
    ],
)
def test_the_shipped_model_writes_plain_sentences(english, text):
    words, *_ = read_printed([text])
    words = [w.lower() for w in words]
    assert english.punctuate(words).text == text


def test_the_shipped_model_reaches_its_bars_on_held_out_text(english, held_out):
    words, events, forms = held_out
    shown = english.punctuate(words)
    pair = np.array(events), np.array(shown.events)
    assert ENGLISH.stat().st_size <= 5_000_000
    for event, bar in {"comma": 45, "period": 50}.items():
        assert f_score(*pair, EVENTS.index(event)) >= bar
    capitals = [np.array([f != f.lower() for f in fs]) for fs in (forms, shown.forms)]
    assert f_score(*capitals, True) >= 65


def test_the_command_builds_a_model(tmp_path):
    text, made = write(tmp_path / "de.txt", GERMAN * 60), tmp_path / "de.punct.npz"
    given = ["build-punctuation", str(text), "--output", str(made), "--passes", "1"]
    assert main([*given, "--quiet"]) == 0
    assert load_punctuation(made).punctuate(["hund"]).forms == ("Hund",)
    assert main([*given[:1], str(tmp_path / "none.txt"), *given[2:]]) == 1
