"""`POST /v1/listen`: Deepgram's SDK, raw samples, channels, refusals in its form."""

import hashlib
import io
from http import HTTPStatus

import httpx
import numpy as np
import pytest
import soundfile
from row_streams import bytes_of, wav_of
from served import post_file, serving, still_service

from tools.bench.row_encoder import audio_of_rows
from wfstdec import Transcriber
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service


@pytest.fixture(scope="module")
def server(encoder, decoder):
    limits = Limits(body_bytes=1 << 20, file_s=30)
    with serving(Service(encoder, decoder, limits, key="secret")) as server:
        yield server


@pytest.fixture(scope="module")
def rows(speech):
    return speech(12, 3)


def post(server, data, query="", key="secret", kind="audio/wav"):
    headers = {"authorization": f"Token {key}", "content-type": kind}
    url = f"{server.url}/v1/listen?{query}"
    return httpx.post(url, content=data, headers=headers, timeout=60)


def words_of(answer, channel=0):
    return answer.json()["results"]["channels"][channel]["alternatives"][0]["words"]


def stereo(*channels):
    num, file = max(map(len, channels)), io.BytesIO()
    samples = [np.pad(audio_of_rows(x), (0, 320 * (num - len(x)))) for x in channels]
    soundfile.write(file, np.stack(samples, 1), 16000, "PCM_16", format="WAV")
    return file.getvalue()


def test_the_sdk_reads_all_of_an_answer(server, encoder, decoder, rows):
    deepgram = pytest.importorskip("deepgram")
    from deepgram.environment import DeepgramClientEnvironment
    from deepgram.types import ListenV1Response

    place = DeepgramClientEnvironment(
        base=server.url, production=server.ws, agent=server.ws, agent_rest=server.url
    )
    client = deepgram.DeepgramClient(api_key="secret", environment=place)
    data = wav_of(rows)

    def transcribe(**query):
        found = client.listen.v1.media.transcribe_file(
            request=data, model="nova-3", **query
        )
        assert ListenV1Response.model_validate(found.model_dump()) == found
        return found

    found = transcribe(utterances=True, paragraphs=True, utt_split=0.5, diarize=True)
    [best] = found.results.channels[0].alternatives
    expected = Transcriber(encoder, decoder)(data)
    assert best.transcript == expected.text
    shown = [(word.word, word.start, word.end) for word in best.words]
    assert shown == [(w.text, w.start_s, w.end_s) for w in expected.words]
    assert len(found.results.utterances) > 1
    texts = [one.transcript for one in found.results.utterances]
    assert " ".join(texts) == best.transcript
    parts = best.paragraphs.paragraphs
    assert [part.sentences[0].text for part in parts] == texts
    assert sum(part.num_words for part in parts) == len(best.words)
    about = found.metadata
    assert about.duration == pytest.approx(12) and about.channels == 1
    assert about.sha256 == hashlib.sha256(data).hexdigest()
    assert about.model_info[about.models[0]]["name"] == "wfstdec"
    assert about.warnings == ["'diarize' has no effect here"]
    word = max(best.transcript.split(), key=len)
    against = transcribe(keywords=f"{word.title()}:-200")
    assert word not in against.results.channels[0].alternatives[0].transcript.split()
    with pytest.raises(deepgram.errors.BadRequestError) as error:
        client.listen.v1.media.transcribe_url(url="https://example.org/talk.wav")
    assert "no addresses are fetched" in error.value.body["err_msg"]


def test_words_are_those_of_openais_route(server, rows):
    url, files = f"{server.url}/v1/audio/transcriptions", {"file": wav_of(rows)}
    headers = {"authorization": "Bearer secret"}
    theirs = httpx.post(url, files=files, headers=headers, timeout=60).json()["text"]
    found = post(server, wav_of(rows), kind="application/octet-stream")
    assert " ".join(word["word"] for word in words_of(found)) == theirs


def test_alternatives_are_those_of_the_n_best_list(server, rows):
    def texts(query):
        [one] = post(server, wav_of(rows), query).json()["results"]["channels"]
        return [some["transcript"] for some in one["alternatives"]]

    assert len({*texts("alternatives=3")}) == 3
    assert texts("alternatives=3")[:1] == texts("")


def test_raw_samples_are_read_as_the_query_says(server, rows):
    expected = words_of(post(server, wav_of(rows)))
    assert expected
    query = "encoding=linear16&sample_rate=16000"
    data = bytes_of(rows)
    raw = post(server, data + b"\0", query, kind="audio/raw")  # half a sample
    assert words_of(raw) == expected
    assert raw.json()["metadata"]["sha256"] == hashlib.sha256(data + b"\0").hexdigest()
    mulaw = post(server, b"\xff" * 8000, "encoding=mulaw")
    assert mulaw.json()["metadata"]["duration"] == pytest.approx(1)


def test_each_channel_is_a_recording(server, speech):
    one, other = speech(6, 1), speech(4, 2)
    found = post(server, stereo(one, other), "multichannel=true&utterances=true")
    assert words_of(found) == words_of(post(server, wav_of(one)))
    silent = np.zeros((len(one) - len(other)) * 320, "<i2").tobytes()
    alone = post(server, bytes_of(other) + silent, "encoding=linear16")
    assert words_of(found, 1) == words_of(alone) != []
    body = found.json()
    assert body["metadata"]["channels"] == 2
    utterances = body["results"]["utterances"]
    assert {one["channel"] for one in utterances} == {0, 1}
    starts = [one["start"] for one in utterances]
    assert starts == sorted(starts)
    quiet = np.full_like(one, -24)
    quiet[:, 0] = 0  # the blank
    both = post(server, stereo(one, quiet), "multichannel=true")
    assert words_of(both) == words_of(found) and words_of(both, 1) == []
    many = stereo(*[one[:50]] * 9)
    assert "at most 8" in post(server, many, "multichannel=true").json()["err_msg"]


@pytest.mark.parametrize(
    ("query", "data", "status", "text"),
    [
        ("callback=http://x", b"x", 400, "callback: found"),
        ("utterances=maybe", b"x", 400, "expected true or false"),
        ("utt_split=nan", b"x", 400, "expected seconds"),
        ("encoding=mp5", b"x", 400, "expected linear16"),
        ("keyterm=", b"x", 400, "expected a string of words"),
        ("", b"no audio" * 99, 415, "expected"),
        ("encoding=linear16", b"", 400, "no samples"),
        ("", b"x" * 2_000_000, 413, "--max-body-bytes"),
        ("encoding=mulaw", b"x" * 250_000, 413, "file-s"),
    ],
)
def test_refusals_have_deepgrams_form(server, query, data, status, text):
    answer = post(server, data, query)
    assert answer.status_code == status
    error = answer.json()
    assert error.keys() == {"err_code", "err_msg", "request_id"}
    assert error["err_code"] == HTTPStatus(status).phrase and text in error["err_msg"]
    assert answer.headers["dg-request-id"] == error["request_id"]


def test_keys_and_places_are_checked_as_of_other_files(server):
    answer = post(server, b"x", key="wrong")
    assert (answer.status_code, answer.json()["err_code"]) == (401, "INVALID_AUTH")
    assert post_file(server, b"x").json()["error"]["code"] == "invalid_api_key"
    with serving(still_service(Limits(requests=1))) as still:
        with still.service.jobs.receive() as job:
            job.take_place()
            full = post(still, b"x")
    assert full.status_code == 503 and "--max-requests" in full.json()["err_msg"]
    assert "retry-after" in full.headers


def test_what_streams_alone_know_is_a_warning(server, rows):
    found = post(server, wav_of(rows[:100]), "endpointing=10&diarize=true")
    warnings = found.json()["metadata"]["warnings"]
    assert warnings == [
        "'diarize' has no effect here",
        "'endpointing' has no effect here",
    ]
