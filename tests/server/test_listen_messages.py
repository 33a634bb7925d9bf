"""Messages of `WS /v1/listen`, both ways, and what `Configure` makes of boosts."""

import json
import math

import pytest
from made_hypotheses import hypothesis

from wfstdec.errors import BoostError, OptionError
from wfstdec.search.endpoints import DEFAULT_RULES
from wfstdec.search.hypothesis import Word
from wfstdec.server.deepgram import (
    Configure,
    MessageError,
    Replies,
    StreamBoosts,
    read_message,
    read_query,
)
from wfstdec.server.limits import Limits
from wfstdec.server.stream import BoostsChanged, SpeechStarted, UtteranceEnd, Words

ANSWERS = Replies("rows", request_id="r", created="now")
A, B, C = (
    Word("a", 1.0, 1.2, 50, 60, 0.5),
    Word("b", 1.5, 1.75, 75, 88, 1.0),
    Word("c", 2.0, 2.25, 100, 113),
)


def shown(word, start, end, confidence):
    answer = {"word": word, "punctuated_word": word, "start": start, "end": end}
    return answer | {"confidence": confidence}


def test_a_final_by_hand():
    event = Words(
        (A, B),
        start_s=0.5,
        end_s=2.5,
        is_final=True,
        ends_utterance=True,
        is_endpoint=True,
        rule=DEFAULT_RULES[1],
        hypotheses=(hypothesis((A, B), 3.25), hypothesis((A, C), 4.5)),
        latency_s=0.125,
    )
    answer = ANSWERS.of(event)
    json.loads(json.dumps(answer, allow_nan=False))
    assert (answer["start"], answer["duration"]) == (0.5, 2.0)
    assert answer["is_final"] is True and answer["speech_final"] is True
    assert "from_finalize" not in answer
    assert answer["latency_ms"] == 125.0
    assert answer["rule"] == {
        "silence_s": 0.5,
        "max_final_cost": 2.0,
        "needs_speech": True,
        "length_s": 0.0,
    }
    best, other = answer["channel"]["alternatives"]
    assert best == {
        "transcript": "a b",
        "confidence": 0.75,
        "words": [shown("a", 1.0, 1.2, 0.5), shown("b", 1.5, 1.75, 1.0)],
        "cost": 3.25,
    }
    assert (other["transcript"], other["cost"]) == ("a c", 4.5)
    assert other["words"][1]["confidence"] == 0.0  # it was not asked for
    assert answer["metadata"]["model_info"]["name"] == "rows"


def test_what_was_final_before_is_in_no_alternative():
    event = Words(
        (B,),
        start_s=1.25,
        end_s=2.5,
        is_final=True,
        ends_utterance=True,
        is_endpoint=True,
        hypotheses=(hypothesis((A, B), 3.0), hypothesis((A, C), 4.0)),
    )
    found = ANSWERS.of(event)["channel"]["alternatives"]
    assert [one["transcript"] for one in found] == ["b", "c"]


def test_interims_answers_and_the_rest():
    interim = ANSWERS.of(Words((A,), 0.0, 1.3))
    assert interim["is_final"] is False and interim["speech_final"] is False
    assert interim["channel"]["alternatives"][0]["transcript"] == "a"
    assert "rule" not in interim and "cost" not in str(interim)
    empty = ANSWERS.of(Words((), 2.0, 2.0, True, is_endpoint=True, is_answer=True))
    assert empty["from_finalize"] is True and empty["duration"] == 0.0
    assert empty["channel"]["alternatives"] == [
        {"transcript": "", "confidence": 0.0, "words": []}
    ]
    settled = ANSWERS.of(Words((A,), 0.0, 1.2, True))
    assert settled["is_final"] is True and settled["speech_final"] is False
    assert ANSWERS.of(SpeechStarted(1.5)) == {
        "type": "SpeechStarted",
        "channel": [0, 1],
        "timestamp": 1.5,
    }
    assert ANSWERS.of(UtteranceEnd(2.5)) == {
        "type": "UtteranceEnd",
        "channel": [0, 1],
        "last_word_end": 2.5,
    }


def test_json_has_no_infinity():
    rule = DEFAULT_RULES[0]
    assert rule.max_final_cost == math.inf
    dead = hypothesis((), math.inf)
    answer = ANSWERS.of(Words((), 0, 5, True, True, rule=rule, hypotheses=(dead,)))
    json.dumps(answer, allow_nan=False)
    assert answer["rule"]["max_final_cost"] is None


def test_messages_of_clients():
    for name in ("KeepAlive", "Finalize", "CloseStream"):
        assert read_message(json.dumps({"type": name, "more": 1})) == name
    given = {"type": "Configure", "keyterms": None, "features": None}  # the SDK's
    assert read_message(json.dumps(given)) == Configure({})
    given = {"type": "Configure", "keyterms": [], "boosts": {"a": 1}, "features": {}}
    assert read_message(json.dumps(given)) == Configure(
        {"keyterms": [], "boosts": {"a": 1}}, ("features",)
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nil", "[]", "3", '"KeepAlive"', "null", "{}", "\0"),
        *('{"type": null}', '{"type": []}', '{"type": {}}', '{"type": "keepalive"}'),
        *('{"type": "\\ud800"}', "[" * 100_000, '{"type": ' * 50_000),
        *('{"n": ' + "9" * 10_000 + "}", "ä" * 99_999),
    ],
)
def test_what_is_no_message_is_said(text):
    with pytest.raises(MessageError, match="expected an object of JSON") as error:
        read_message(text)
    answer = ANSWERS.error("SchemaError", str(error.value), error.value.found)
    assert len(json.dumps(answer)) < 4000


class TestStreamBoosts:
    def boosts(self, query=(), **limits):
        limits = Limits(**limits)
        return StreamBoosts(read_query(query, limits, "en"), limits)

    def test_each_list_is_replaced_by_itself(self):
        boosts = self.boosts([("keyterm", "a"), ("keywords", "b:2")])
        assert boosts.request(Configure({"boosts": ["c"]})) == {
            "a": None,
            "b": 2,
            "c": None,
        }
        boosts.settled(BoostsChanged(), ANSWERS)
        assert boosts.request(Configure({"keyterms": ["d"]})) == {
            "d": None,
            "b": 2,
            "c": None,
        }
        boosts.settled(BoostsChanged(), ANSWERS)
        assert boosts.request(Configure({"keyterms": [], "keywords": []})) == {
            "c": None
        }
        boosts.settled(BoostsChanged(), ANSWERS)
        assert boosts.request(Configure({"boosts": []})) is None
        boosts.settled(BoostsChanged(), ANSWERS)

    def test_what_is_told(self):
        boosts = self.boosts()
        boosts.request(Configure({"keyterms": ["a"]}, ("features",)))
        event = BoostsChanged(from_now=True, warnings=("'a' is unknown",))
        assert boosts.settled(event, ANSWERS) == {
            "type": "ConfigureSuccess",
            "request_id": "r",
            "keyterms": ["a"],
            "effective": "now",
            "warnings": ["'a' is unknown", "'features' is not changed here"],
        }
        boosts.request(Configure({"boosts": {"b": 1}}))
        answer = boosts.settled(BoostsChanged(), ANSWERS)
        assert answer["effective"] == "next_utterance" and "keyterms" not in answer

    def test_a_refused_list_leaves_the_one_before(self):
        boosts = self.boosts([("keyterm", "a")])
        with pytest.raises(BoostError):
            boosts.request(Configure({"keyterms": 3}))
        boosts.request(Configure({"keyterms": ["x"]}))
        answer = boosts.settled(BoostsChanged(error=BoostError("no x")), ANSWERS)
        assert (answer["type"], answer["description"]) == ("ConfigureFailure", "no x")
        assert boosts.request(Configure({"boosts": ["b"]})) == {"a": None, "b": None}

    def test_codes_of_failures(self):
        boosts = self.boosts(boosts=1)
        with pytest.raises(OptionError) as many:
            boosts.request(Configure({"keyterms": ["a", "b"]}))
        codes = [
            ANSWERS.not_configured(error)["code"]
            for error in (many.value, BoostError("x"), RuntimeError("x"))
        ]
        assert codes == [
            "CONFIGURE_KEYTERM_LIMIT_EXCEEDED",
            "CONFIGURE_INVALID",
            "CONFIGURE_INTERNAL_ERROR",
        ]
