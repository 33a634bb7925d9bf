"""Punctuation: the choice of events, streams, other languages, files."""

from pathlib import Path

import numpy as np
import pytest

from wfstdec.cli.main import main
from wfstdec.errors import FormatError, ShapeError
from wfstdec.readable.kernels import Scales, choose
from wfstdec.readable.options import BuildOptions
from wfstdec.readable.printed import EVENTS, read_printed
from wfstdec.readable.punctuation import ENGLISH, load_punctuation
from wfstdec.readable.training import build_punctuation, count_pauses, f_score

HELD_OUT = Path(__file__).parents[1] / "data" / "punctuation_en.txt"


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


# The choice of events


def chosen_by_definition(scales, costs, asks, pauses, level, first):
    """Events one behind the other, straight from the definition."""
    events = []
    for n in range(len(costs)):
        total = {event: float(costs[n, event]) for event in range(8)}
        for event in total:
            total[event] += scales.prior[event] + scales.asks[level, event]
            if pauses[n] >= 0:
                total[event] += scales.pauses[pauses[n], event]
        event = min(total, key=total.get)
        if n == 0 and first is not None:
            event = first
        own = sum(asks[n] > bound for bound in scales.levels)
        if EVENTS[event] in ("period", "question", "exclamation"):
            level = own
        elif event:
            level = max(level, own)
        events.append(event)
    return events, level


@pytest.mark.parametrize("first", [None, 0, 1, 3])
def test_choice_of_events_equals_its_definition(first):
    random = np.random.default_rng(5)
    for _ in range(50):
        shapes = {"prior": 8, "asks": (6, 8), "levels": 5, "pauses": (8, 8)}
        arrays = {
            n: random.normal(size=s).astype(np.float32) for n, s in shapes.items()
        }
        scales = Scales(**arrays)
        costs = random.uniform(0, 3, (20, 8)).astype(np.float32)
        asks = random.normal(size=20).astype(np.float32)
        pauses = random.integers(-1, 8, 20).astype(np.int32)
        decided = -1 if first is None else first
        events, levels = choose(scales, costs, asks, pauses, 2, decided)
        given = scales, costs, asks, pauses, 2, first
        assert (events.tolist(), levels[-1]) == chosen_by_definition(*given)


# Streams


def utterances(words, random, count):
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
        settled = ([], [])
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
    behind = []
    for count in range(1, len(words) + 1):
        shown = stream.feed(words[:count])
        behind.append(count - shown.num_settled)
    assert max(behind) <= english.right


def test_a_sentence_continues_over_the_end_of_an_utterance(english):
    stream = english.stream()
    first = stream.end("i have been to the".split())
    assert first.forms[0] == "I" and not first.events[-1]
    second = stream.end("house of my father".split(), last=True)
    assert second.forms[0] == "house" and second.text.endswith("father.")
    assert stream.end(["the", "dog"]).forms[0] == "The"


def test_only_the_end_of_a_file_has_to_end_a_sentence(english):
    tokens = "and then they went into the".split()
    assert english.punctuate(tokens, last=False).events[-1] == 0
    assert english.punctuate(tokens).text.endswith(".")
    assert english.punctuate([]).text == ""


def test_wrong_input_is_refused(english):
    with pytest.raises(ShapeError, match="1 pauses, expected 2"):
        english.stream().feed(["a", "b"], [0.1])


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
    with pytest.raises(FormatError, match=r"x\.npz: found .*'a'.*, expected"):
        load_punctuation(path)
    with pytest.raises(FormatError, match="text.txt: 2 words without punctuation"):
        build_punctuation([write(tmp_path / "text.txt", ["a b", "c"])])


@pytest.mark.parametrize("name", ["embedding", "bias_1", "weight_2", "asks"])
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
    assert load_punctuation(made).punctuate(["hund"]).forms == ["Hund"]
    assert main([*given[:1], str(tmp_path / "none.txt"), *given[2:]]) == 1
