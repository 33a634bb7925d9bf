"""The ARPA reader: what it accepts, its numbers to the last bit, what it refuses."""

import gzip
import io
import math

import naive_cases
import naive_lm
import numpy as np
import pytest
from arpa_texts import arpa_of

from wfstdec import read_arpa
from wfstdec.errors import ArpaError, FormatError
from wfstdec.text.arpa_model import parse_number

LN10 = math.log(10)
SMALL = arpa_of(
    "-99 <s> -0.5; -1 </s>; -0.25 a 0.125; -2 naïve",
    "-0.75 <s> a -0.3; -1.5 a naïve; 0 a </s>",
)


def read(text):
    return read_arpa(io.BytesIO(text.encode()))


def assert_equal(model, other):
    assert model.words == other.words
    assert model.order == other.order
    for table, other_table in zip(model.ngrams, other.ngrams, strict=True):
        np.testing.assert_array_equal(table.words, other_table.words)
        np.testing.assert_array_equal(table.cost, other_table.cost)
        np.testing.assert_array_equal(table.backoff, other_table.backoff)


def test_a_bigram_model_by_hand(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(SMALL, encoding="utf-8")
    model = read_arpa(path)
    assert model.words == ("<s>", "</s>", "a", "naïve")
    assert (model.bos, model.eos, model.unk) == (0, 1, None)
    assert model.index["naïve"] == 3
    assert model.order == 2
    unigrams, bigrams = model.ngrams
    assert (len(unigrams), len(bigrams)) == (4, 3)
    assert unigrams.words.tolist() == [[0], [1], [2], [3]]
    assert bigrams.words.tolist() == [[0, 2], [2, 3], [2, 1]]
    nats = np.float32([99 * LN10, LN10, 0.25 * LN10, 2 * LN10])
    np.testing.assert_array_equal(unigrams.cost, nats)
    np.testing.assert_array_equal(
        unigrams.backoff, np.float32([0.5 * LN10, 0, -0.125 * LN10, 0])
    )
    np.testing.assert_array_equal(
        bigrams.cost, np.float32([0.75 * LN10, 1.5 * LN10, 0])
    )
    assert bigrams.backoff.tolist() == [0, 0, 0]  # the highest order has none
    for table in model.ngrams:
        dtypes = table.words.dtype, table.cost.dtype, table.backoff.dtype
        assert dtypes == (np.int32, np.float32, np.float32)
        assert not np.signbit(table.cost).any()


SAME = {
    "CRLF": SMALL.replace("\n", "\r\n"),
    "spaces": SMALL.replace("\t", "  "),
    "tabs between words": SMALL.replace("<s> a", "<s>\ta").replace("a n", "a\tn"),
    "spaces at line ends": SMALL.replace("\n", " \t\n"),
    "spaces at line starts": SMALL.replace("\n-", "\n  -"),
    "blank lines": SMALL.replace("\n", "\n\n"),
    "no blank lines": SMALL.replace("\n\n", "\n"),
    "text around": f"made by hand\nngram 1=9\n\n{SMALL}that is all\n",
    "byte-order mark": f"\ufeff{SMALL}",
    "no newline at the end": SMALL.rstrip(),
    "SRILM's header": SMALL.replace("ngram 1=4", "ngram  1 =  4"),
    "explicit back-offs": SMALL.replace("</s>\n", "</s> 0\n"),
    "other number forms": SMALL.replace("-0.25", "-.25").replace("-1.5", "-15.E-1"),
    "rounded above zero": SMALL.replace("\n0\t", "\n1.2e-05\t"),
    "minus zero": SMALL.replace("\n0\t", "\n-0.0\t"),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_other_ways_to_write_the_same(text):
    assert_equal(read(text), read(SMALL))


def test_sources(tmp_path):
    packed = gzip.compress(SMALL.encode())
    (tmp_path / "lm.arpa.gz").write_bytes(packed)
    halves = packed + gzip.compress(b"\n")  # two members, as `cat` makes them
    for source in (
        str(tmp_path / "lm.arpa.gz"),
        io.BytesIO(packed),
        io.BytesIO(halves),
        io.StringIO(SMALL),
    ):
        assert_equal(read_arpa(source), read(SMALL))
    with open(tmp_path / "lm.arpa.gz", "rb") as file:
        assert_equal(read_arpa(file), read(SMALL))


@pytest.mark.parametrize("order", range(1, 7))
def test_orders(order):
    names = ["<s>", "a", "b", "</s>"]
    text = "\\data\\\n" + "".join(f"ngram {n}=2\n" for n in range(1, order + 1))
    text = text.replace("1=2", "1=4")
    for n in range(1, order + 1):
        grams = names if n == 1 else [" ".join(["a"] * n), " ".join(["b"] * n)]
        text += f"\n\\{n}-grams:\n" + "".join(f"-{n} {g} -0.5\n" for g in grams)
    model = read(f"{text}\n\\end\\\n")
    assert model.order == order
    for n, table in enumerate(model.ngrams[1:], start=2):
        assert table.words.tolist() == [[1] * n, [2] * n]
        np.testing.assert_array_equal(table.cost, np.float32(n * LN10))
        np.testing.assert_array_equal(
            table.backoff, np.float32(0.5 * LN10 if n < order else 0)
        )


def test_odd_words_survive():
    words = [
        "<unk>",
        "\\word",
        "\u00a0",
        "a\u2028b",
        "-1.5",
        "ß\x85",
        "\U0001d11e",
        "#0",
    ]
    lines = "".join(f"-1\t{word}\t-0.5\n" for word in words)
    bigrams = "".join(f"-1\t{word} {word}\n" for word in words)
    model = read(
        f"\\data\\\nngram 1={len(words)}\nngram 2={len(words)}\n"
        f"\\1-grams:\n{lines}\\2-grams:\n{bigrams}\\end\\\n"
    )
    assert model.words == tuple(words)
    assert (model.bos, model.eos, model.unk) == (None, None, 0)
    assert model.ngrams[1].words.tolist() == [[w, w] for w in range(len(words))]


def test_upper_case_unk_and_impossible_words():
    model = read(SMALL.replace("-2\tnaïve", "-inf\t<UNK>").replace("naïve", "<UNK>"))
    assert model.unk == 3
    assert model.ngrams[0].cost[3] == math.inf


def test_a_count_of_zero_is_an_empty_section():
    text = SMALL.replace("ngram 2=3\n", "ngram 2=3\nngram 3=0\n")
    model = read(text.replace("\\end", "\\3-grams:\n\n\\end"))
    assert model.ngrams[2].words.shape == (0, 3)
    assert model.ngrams[1].backoff[0] == np.float32(0.3 * LN10)


def test_numbers_are_read_to_the_last_bit_of_float32():
    rng = np.random.default_rng(11)
    texts = ["-0", "+1", "1.", ".5", "1e5", "-1.25E-3", "0e999", "1e-400", "-1e6"]
    texts += [
        "0." + "0" * 30 + "123",
        "123456789012345678901234567890e-35",
        "9" * 30 + "e-29",
    ]
    for digits in rng.integers(1, 19, 3000):
        number = -(10.0 ** rng.uniform(-8, 3))
        texts += [
            f"{number:.{digits}g}",
            f"{number:.{digits}f}",
            f"{number:.{digits}e}",
        ]
    for text in texts:
        data = np.frombuffer(f"x{text}y".encode(), np.uint8)
        value, valid = parse_number(data, 1, len(text) + 1)
        assert valid, text
        assert np.float32(value) == np.float32(float(text)), text
        assert value == pytest.approx(float(text), rel=1e-15, abs=1e-300)


NO_NUMBERS = "- + . e x 1,5 1.2.3 1e 1e+ --1 0x1 1_0 nan inf +inf -infinity ٣".split()
NO_NUMBERS += ["1e400", "-1e400", "1000001", "9" * 30 + "e300"]


@pytest.mark.parametrize("text", ["", *NO_NUMBERS])
def test_what_is_no_number(text):
    data = np.frombuffer(text.encode(), np.uint8)
    assert not parse_number(data, 0, len(data))[1]


def as_naive(model):
    """The arrays as the oracle's dicts."""
    cost, backoff = {}, {}
    for table in model.ngrams:
        grams = [tuple(model.words[w] for w in row) for row in table.words]
        cost |= zip(grams, table.cost.tolist(), strict=True)
        backoff |= zip(grams, table.backoff.tolist(), strict=True)
    return naive_lm.Ngrams(model.order, cost, backoff)


def test_random_models_against_the_oracle():
    rng = np.random.default_rng(2)
    for case in range(300):
        words = list(naive_cases.WORD_NAMES)
        text, _ = naive_cases.random_arpa(rng, words, order=1 + case % 4)
        expected, found = naive_lm.parse_arpa(text), as_naive(read(text))
        assert found.order == expected.order
        assert list(found.cost) == list(expected.cost)  # the order of the file, too
        assert found.cost == pytest.approx(expected.cost, rel=1e-6)
        below = {g: expected.backoff.get(g, 0.0) for g in expected.cost}
        below |= {g: 0.0 for g in below if len(g) == expected.order}
        assert found.backoff == pytest.approx(below, rel=1e-6)


ERRORS = {
    "no header": (SMALL[7:], "", "no line '\\\\data\\\\', expected an ARPA file"),
    "empty": ("", "", "no line '\\\\data\\\\', expected an ARPA file"),
    "bad count": (
        SMALL.replace("ngram 2=3", "ngram 2=x"),
        ":3",
        "found 'ngram 2=x', expected 'ngram 2=COUNT'",
    ),
    "order left out": (
        SMALL.replace("ngram 2", "ngram 3"),
        ":3",
        "found 'ngram 3=3', expected 'ngram 2=COUNT'",
    ),
    "no counts": ("\\data\\\n\n\\end\\\n", ":3", "order 0, expected 1 to 6"),
    "order 7": (
        "\\data\\\n" + "".join(f"ngram {n}=1\n" for n in range(1, 8)) + "\\1-grams:\n",
        ":9",
        "order 7, expected 1 to 6",
    ),
    "no unigrams": (
        "\\data\\\nngram 1=0\n\\1-grams:\n\\end\\\n",
        ":3",
        "0 1-grams, expected at least one",
    ),
    "fewer than said": (
        SMALL.replace("2=3", "2=4"),
        ":16",
        "3 2-grams end here, expected the header's 4",
    ),
    "far fewer than said": (
        SMALL.replace("1=4", "1=999999999999"),
        ":11",
        "4 1-grams end here, expected the header's 999999999999",
    ),
    "more than said": (
        SMALL.replace("2=3", "2=2"),
        ":14",
        "one 2-gram more, expected the header's 2",
    ),
    "other section": (
        SMALL.replace("\\2-", "\\3-"),
        ":11",
        "found '\\\\3-grams:', expected '\\\\2-grams:'",
    ),
    "section left out": (
        SMALL[: SMALL.index("\\2-")] + "\\end\\\n",
        ":11",
        "found '\\\\end\\\\', expected '\\\\2-grams:'",
    ),
    "no end": (
        SMALL.replace("\\end\\\n", ""),
        ":16",
        "the file ends, expected '\\\\end\\\\'",
    ),
    "cut in a line": (
        SMALL[: SMALL.index("<s> a")],
        ":12",
        "1 field in '-0.75', expected 3 or 4: a log10 probability, 2 words and perhaps "
        "a back-off weight",
    ),
    "word left out": (
        SMALL.replace("a naïve", "a"),
        ":13",
        "2 fields in '-1.5\\ta', expected 3 or 4: a log10 probability, 2 words and "
        "perhaps a back-off weight",
    ),
    "word too many": (
        SMALL.replace("\tnaïve", "\tnaïve b c"),
        ":9",
        "4 fields in '-2\\tnaïve b c', expected 2 or 3: a log10 probability, 1 word "
        "and perhaps a back-off weight",
    ),
    "probability": (
        SMALL.replace("-0.25", "-0,25"),
        ":8",
        "found '-0,25', expected a log10 probability",
    ),
    "back-off": (
        SMALL.replace("0.125", "b"),
        ":8",
        "found 'b', expected a log10 back-off weight",
    ),
    "probability out of range": (
        SMALL.replace("-0.25", "-1e39"),
        ":8",
        "-1e39, expected -1e6 to 1e6",
    ),
    "back-off out of range": (
        SMALL.replace("0.125", "1e400"),
        ":8",
        "1e400, expected -1e6 to 1e6",
    ),
    "positive": (
        SMALL.replace("-0.25", "0.25"),
        ":8",
        "log10 probability 0.25, expected 0 or less",
    ),
    "not a unigram": (
        SMALL.replace("a naïve", "a naive"),
        ":13",
        "word 'naive' is not a unigram, expected all words there",
    ),
    "unigram twice": (
        SMALL.replace("\tnaïve", "\ta"),
        ":9",
        "1-gram 'a' is listed twice, expected once",
    ),
    "bigram twice": (
        SMALL.replace("a naïve", "a </s>"),
        ":14",
        "2-gram 'a </s>' is listed twice, expected once",
    ),
    "not UTF-8": (
        SMALL.encode().replace("naïve".encode(), "naïve".encode("latin-1")),
        ":9",
        "word b'na\\xefve', expected UTF-8",
    ),
}


@pytest.mark.parametrize(("text", "line", "message"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_errors_name_the_line(tmp_path, text, line, message, ends):
    path = tmp_path / "lm.arpa"
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(content.replace(b"\n", ends))
    with pytest.raises(ArpaError) as raised:
        read_arpa(path)
    assert str(raised.value) == f"{path}{line}: {message}"


def test_lines_are_counted_from_the_top_of_the_file():
    text = "one\ntwo\n\n" + SMALL.replace("-1.5", "x").replace("\n\n", "\n\n\n")
    with pytest.raises(
        ArpaError, match="^ARPA file:18: found 'x', expected a log10 pro"
    ):
        read(text)


def test_unreadable_files(tmp_path):
    with pytest.raises(FormatError, match=r"no.arpa: cannot read: No such file"):
        read_arpa(tmp_path / "no.arpa")
    with pytest.raises(FormatError, match=r": cannot read: Is a directory"):
        read_arpa(tmp_path)
    packed = gzip.compress(SMALL.encode())
    for damaged in (packed[:-12], packed[:20] + b"\xff\xff" + packed[22:]):
        (tmp_path / "lm.arpa.gz").write_bytes(damaged)
        with pytest.raises(FormatError, match=r"lm.arpa.gz: not a readable gzip"):
            read_arpa(tmp_path / "lm.arpa.gz")
