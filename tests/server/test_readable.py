"""Readable text on the wire: what `Formatter` makes of the raw words."""

import json

import httpx
import numpy as np
import pytest
from row_streams import bytes_of, wav_of
from served import LINEAR16, listened, post_file, serving

from wfstdec import Formatter
from wfstdec.readable import load_itn, load_punctuation
from wfstdec.server.readable import Readable
from wfstdec.server.service import Service

PARTS = load_itn(), load_punctuation()


@pytest.fixture(scope="module")
def server(encoder, decoder):
    with serving(Service(encoder, decoder, nbest=2, readable=Readable(*PARTS))) as one:
        yield one


@pytest.fixture(scope="module")
def rows(speech):
    return speech(20, 3)


def listen(server, rows, query=""):
    parts = [bytes_of(part) for part in np.array_split(rows, 50)]
    found, code = listened(server, *parts, query=f"{LINEAR16}{query}", pause_s=0.01)
    assert code == 1000
    return [one for one in found if one["type"] == "Results"], found[-1]


def words_of(results):
    """Words of finals, and of the utterances that they belong to."""
    utterances, under_way = [], []
    for one in results:
        if one["is_final"]:
            under_way += one["channel"]["alternatives"][0]["words"]
        if one["speech_final"]:
            utterances.append(under_way)
            under_way = []
    return [*utterances, under_way]


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("&smart_format=true", (0, 1)),
        ("&punctuate=true", (None, 1)),
        ("&numerals=true", (0, None)),
        ("&numerals=true&punctuate=true", (0, 1)),
        ("&smart_format=false", None),
    ],
)
def test_streams_of_deepgram(server, rows, query, parts):
    """Finals are those of a formatter with the same utterances, and never change."""
    raw = words_of(listen(server, rows)[0])
    found, metadata = listen(server, rows, f"&interim_results=true{query}")
    assert metadata["warnings"] == []
    if parts is None:
        assert words_of(found) == raw
        return
    stream = Formatter(*(None if x is None else PARTS[x] for x in parts)).stream()
    assert any(raw)
    for shown, words in zip(words_of(found), raw, strict=True):
        expected = stream.end(timed(words)).words if words else ()
        assert [one["punctuated_word"] for one in shown] == [x.text for x in expected]
        times = [(one["start"], one["end"]) for one in shown]
        assert times == [
            (words[x.first]["start"], words[x.last - 1]["end"]) for x in expected
        ]
        assert all(one["word"] == one["word"].lower().strip(".,?!") for one in shown)


def test_channels_are_shown_apart(server, speech):
    rows = np.stack([np.frombuffer(bytes_of(speech(8, i)), "<i2") for i in (3, 5)], 1)
    parts = [part.tobytes() for part in np.array_split(rows, 50)]
    query = f"{LINEAR16}&channels=2&multichannel=true"
    raw, shown = (
        listened(server, *parts, query=query + more, pause_s=0.01)[0]
        for more in ("", "&smart_format=true")
    )
    for channel in range(2):
        theirs, ours = (
            words_of([one for one in found if one.get("channel_index") == [channel, 2]])
            for found in (raw, shown)
        )
        stream = Formatter(*PARTS).stream()
        assert any(theirs)
        for words, found in zip(theirs, ours, strict=True):
            expected = stream.end(timed(words)).words if words else ()
            texts = [one["punctuated_word"] for one in found]
            assert texts == [x.text for x in expected]


def test_nothing_is_held_back_at_an_endpoint(server, rows):
    """`speech_final` comes with all words that raw text has there."""
    query = "&endpointing=100&smart_format="
    raw, _ = listen(server, rows, query + "false")
    shown, _ = listen(server, rows, query + "true")

    def ends(results):
        return [words[-1]["end"] for words in words_of(results) if words]

    assert ends(shown) == ends(raw) and len(ends(raw)) > 2


def timed(words):
    from wfstdec.search.hypothesis import Word

    return [Word(one["word"], one["start"], one["end"], 0, 0) for one in words]


def test_files(server, rows, encoder, decoder):
    data = wav_of(rows)
    raw = post_file(server, data, response_format="verbose_json").json()
    assert "raw_text" not in raw and raw["text"] == raw["text"].lower()
    found = post_file(server, data, response_format="verbose_json", smart_format="true")
    shown = found.json()
    words = [
        {"word": one["word"], "start": one["start"], "end": one["end"]}
        for one in raw["words"]
    ]
    expected = Formatter(*PARTS)(timed(words))
    assert shown["raw_text"] == raw["text"] and shown["text"] == expected.text
    assert [one["word"] for one in shown["words"]] == [x.text for x in expected.words]
    assert " ".join(one["text"] for one in shown["segments"]) == expected.text
    srt = post_file(server, data, response_format="srt", smart_format="true").text
    assert "".join(line for line in srt.splitlines() if "-->" in line)
    assert expected.words[0].text in srt
    url = f"{server.url}/v1/listen?smart_format=true&alternatives=2"
    answer = httpx.post(url, content=data, headers={"content-type": "audio/wav"})
    best, other = answer.json()["results"]["channels"][0]["alternatives"]
    assert best["transcript"] == expected.text and other["transcript"][:1].isupper()


def test_deltas_joined_are_the_text(server, rows):
    given = {"stream": "true", "smart_format": "true"}
    lines = post_file(server, wav_of(rows), **given).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [one["delta"] for one in events if one["type"].endswith("delta")]
    assert events[-1]["text"] == "".join(deltas) != "".join(deltas).lower()


def test_display_forms_of_key_terms(server, rows):
    found, _ = listen(server, rows)
    word = max((w["word"] for some in words_of(found) for w in some), key=len)
    form = word[:2].upper() + word[2:]
    found, _ = listen(server, rows, f"&smart_format=true&keyterm={form}")
    shown = [w["punctuated_word"] for some in words_of(found) for w in some]
    assert any(form in one for one in shown)


def test_the_servers_default_and_what_it_lacks(encoder, decoder, rows):
    lacking = Service(encoder, decoder, readable=Readable(None, PARTS[1], smart=True))
    with serving(lacking) as server:
        found, metadata = listen(server, rows, "&numerals=true")
        assert metadata["warnings"] == [
            "numbers stay words: the server has no --itn grammar"
        ]
        assert words_of(found)[0][0]["punctuated_word"][0].isupper()
        assert post_file(server, wav_of(rows)).json()["text"][0].isupper()
