"""The query of `WS /v1/listen`: what is read of it, and what is wrong with others."""

import math
from urllib.parse import parse_qsl

import pytest

from wfstdec.server.deepgram import read_query
from wfstdec.server.limits import Limits, RequestError
from wfstdec.server.stream import StreamSettings


def read(query, limits=None):
    items = parse_qsl(query, keep_blank_values=True)
    return read_query(items, limits or Limits(), "en")


def test_nothing_is_a_file_that_says_itself_what_it_is():
    found = read("")
    assert found.settings == StreamSettings()
    assert found.settings.encoding is None
    assert not (found.ignored or found.warnings or found.keyterms)


def test_all_that_can_be_asked_for():
    found = read(
        "encoding=linear16&sample_rate=48000&channels=2&interim_results=true"
        "&endpointing=300&utterance_end_ms=1500&vad_events=TRUE&model=nova-3"
        "&language=en-GB&keyterm=new+york&keyterm=quilter&keywords=hatton:2.5"
        "&vocabulary=turn+left&vocabulary=[unk]"
    )
    assert found.settings == StreamSettings(
        encoding="linear16",
        sample_rate=48000,
        channels=2,
        boosts={"new york": None, "quilter": None, "hatton": 2.5},
        vocabulary=("turn left", "[unk]"),
        interims=True,
        endpoint_silence_s=0.3,
        utterance_end_s=1.5,
        speech_started=True,
    )
    assert found.keyterms == ("new york", "quilter")
    assert found.keywords == ("hatton:2.5",)
    assert not found.ignored and not found.warnings


@pytest.mark.parametrize(
    ("query", "encoding", "rate"),
    [
        ("encoding=linear16", "linear16", 16000),
        ("encoding=mulaw", "mulaw", 8000),
        ("encoding=alaw", "alaw", 8000),
        ("encoding=alaw&sample_rate=16000", "alaw", 16000),
        ("encoding=flac&sample_rate=44100", None, 44100),
        ("encoding=ogg-opus", None, 16000),
    ],
)
def test_rates_follow_encodings(query, encoding, rate):
    found = read(query).settings
    assert (found.encoding, found.sample_rate) == (encoding, rate)


@pytest.mark.parametrize(
    ("text", "silence"),
    [("true", None), ("false", math.inf), ("0", math.inf), ("25", 0.025)],
)
def test_endpointing(text, silence):
    assert read(f"endpointing={text}").settings.endpoint_silence_s == silence


def test_what_others_know_is_named():
    found = read("diarize=true&tag=a&tag=b&redact=false&token=secret")
    assert found.ignored == ("diarize", "tag", "redact", "token")
    assert "secret" not in repr(found)
    many = read("&".join(f"{'x' * 99}{i}={i}" for i in range(99)))
    assert len(many.ignored) <= 50 and max(map(len, many.ignored)) <= 60


def test_what_may_be_otherwise_than_thought_is_a_warning():
    assert "'de', the server's model is for 'en'" in read("language=de").warnings[0]
    assert not read("language=EN_us&channels=2&channels=2").warnings
    assert "encoding=linear16" in read("sample_rate=8000").warnings[0]


@pytest.mark.parametrize(
    ("query", "param", "message"),
    [
        ("encoding=opus", "encoding", "found 'opus', expected linear16, mulaw, alaw"),
        ("sample_rate=fast", "sample_rate", "expected a whole number"),
        ("sample_rate=-1", "sample_rate", "expected a whole number"),
        ("sample_rate=1_000", "sample_rate", "expected a whole number"),
        ("sample_rate=٤٨٠٠٠", "sample_rate", "expected a whole number"),
        ("sample_rate=999", "sample_rate", "expected 1000 to 384000"),
        ("sample_rate=99999999999999999", "sample_rate", "expected a whole number"),
        ("channels=0", "channels", "expected 1 to 8"),
        ("channels=1&channels=2", "channels", "'1' and '2', expected one value"),
        ("interim_results=maybe", "interim_results", "expected true or false"),
        ("vad_events=1", "vad_events", "expected true or false"),
        ("endpointing=-3", "endpointing", "expected milliseconds, 0 to 60000, or fals"),
        ("endpointing=60001", "endpointing", "0 to 60000"),
        ("utterance_end_ms=999&interim_results=true", "utterance_end_ms", "1000 to"),
        ("utterance_end_ms=1000", "utterance_end_ms", "expected interim_results=true"),
        ("keyterm=", "keyterm", "expected a string of words"),
        ("keywords=a:lots", "keywords", "expected 'word' or 'word:bonus'"),
        ("keyterm=a&keywords=a:1", None, "expected one"),
    ],
)
def test_what_is_wrong_is_said(query, param, message):
    with pytest.raises(RequestError) as found:
        read(query)
    problem = found.value
    assert (problem.status, problem.code) == (400, "invalid_value")
    assert problem.param == param and message in problem.message


def test_limits_hold_for_keyterms():
    with pytest.raises(RequestError, match="--max-boosts"):
        read("keyterm=a&keyterm=b&keyterm=c", Limits(boosts=2))
    with pytest.raises(RequestError, match="--max-boost-chars"):
        read("keyterm=abcd", Limits(boost_chars=3))


def test_a_long_value_is_not_said_back():
    with pytest.raises(RequestError) as found:
        read("encoding=" + "x" * 9999)
    assert len(found.value.message) < 300
