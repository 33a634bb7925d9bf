"""`WS /v1/listen` with Deepgram's own SDK, unmodified, in what its users do."""

import threading

import numpy as np
import pytest
from real_speech import utterances
from row_streams import bytes_of
from served import serving

from tools.bench.row_encoder import rounded_rows

pytest.importorskip("deepgram")

import deepgram
import websockets
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.listen.v1.types import (
    ListenV1Configure,
    ListenV1ConfigureFailure,
    ListenV1ConfigureSuccess,
    ListenV1Metadata,
    ListenV1Results,
    ListenV1SpeechStarted,
    ListenV1UtteranceEnd,
)

from wfstdec.server.limits import Limits
from wfstdec.server.service import Service

RAW = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16000}


@pytest.fixture(scope="module")
def server(encoder, decoder):
    with serving(Service(encoder, decoder, Limits(), key="secret")) as server:
        yield server


def client(server, kind="DeepgramClient", key="secret"):
    place = DeepgramClientEnvironment(
        base=server.url, production=server.ws, agent=server.ws, agent_rest=server.url
    )
    return getattr(deepgram, kind)(api_key=key, environment=place)


def talk(server, say, **query):
    found = []
    with client(server).listen.v1.connect(**query) as socket:
        thread = threading.Thread(target=lambda: found.extend(socket))
        thread.start()
        say(socket)
        socket.send_close_stream()
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(found[-1], ListenV1Metadata)
    return found


def of_kind(found, kind):
    return [one for one in found if isinstance(one, kind)]


def text_of(found):
    return " ".join(
        one.channel.alternatives[0].transcript
        for one in of_kind(found, ListenV1Results)
        if one.is_final and one.channel.alternatives[0].transcript
    )


def test_words_are_boosted_and_changed_under_way(server, speech):
    rows = speech(6, 1)

    def say(change):
        def run(socket):
            if change is not None:
                socket.send_configure(change)
            socket.send_media(bytes_of(rows))
            socket.send_finalize()
            socket.send_keep_alive()

        return run

    plain = text_of(talk(server, say(None), **RAW))
    word = max(plain.split(), key=len)
    against = talk(server, say(None), **RAW, keywords=[f"{word}:-200"])
    assert word not in text_of(against).split()
    change = ListenV1Configure(keyterms=["new york", "zzyzx"])
    found = talk(server, say(change), **RAW)
    [success] = of_kind(found, ListenV1ConfigureSuccess)
    assert success.keyterms == ["new york", "zzyzx"]
    assert any("zzyzx" in warning for warning in success.warnings)
    found = talk(server, say(ListenV1Configure(keyterms=[""])), **RAW)
    [failure] = of_kind(found, ListenV1ConfigureFailure)
    assert "expected" in failure.description
    assert text_of(found) == plain  # nothing has changed


def test_events_of_speech(server):
    spoken = rounded_rows(utterances(3)[1])  # whole: its last word is no half one
    quiet = np.full((150, spoken.shape[1]), -24, np.float32)
    quiet[:, 0] = 0
    rows = np.concatenate([spoken, quiet])
    found = talk(
        server,
        lambda socket: [
            socket.send_media(bytes_of(p)) for p in np.array_split(rows, 10)
        ],
        **RAW,
        interim_results="true",
        vad_events="true",
        utterance_end_ms=1000,
        endpointing=300,
        keyterm=["bartley", "new york"],
    )
    starts = of_kind(found, ListenV1SpeechStarted)
    ends = of_kind(found, ListenV1UtteranceEnd)
    assert starts and ends and starts[0].timestamp < ends[-1].last_word_end
    words = [
        word
        for one in of_kind(found, ListenV1Results)
        if one.is_final
        for word in one.channel.alternatives[0].words
    ]
    assert ends[-1].last_word_end == pytest.approx(words[-1].end, abs=0.021)
    assert len({one.last_word_end for one in ends}) == len(ends)


@pytest.mark.parametrize(
    ("key", "query", "status"),
    [("wrong", RAW, 401), ("secret", {**RAW, "encoding": "mp5"}, 400)],
)
def test_refusals_are_the_clients_exceptions(server, key, query, status):
    # The SDK turns only the exceptions of older versions of `websockets` into its own.
    with pytest.raises((ApiError, websockets.InvalidStatus)) as refused:
        with client(server, key=key).listen.v1.connect(**query):
            pass
    error = refused.value
    known = getattr(error, "status_code", None) or error.response.status_code
    assert known == status
