"""`POST /v1/audio/transcriptions`: OpenAI's own client, and clients that are rude."""

import concurrent.futures
import io
import json
import threading
import time

import httpx
import numpy as np
import pytest
from row_streams import bytes_of, wav_of
from served import error_of, post_file, serving, wait_until

from tools.bench.row_encoder import RowEncoder
from wfstdec import Transcriber
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service

LIMITS = Limits(requests=8, body_bytes=4 << 20, file_s=90.0, boosts=50)


@pytest.fixture(scope="module")
def model(encoder):
    return RowEncoder(encoder.spec.tokens)


@pytest.fixture(scope="module")
def server(model, decoder):
    with serving(Service(model, decoder, LIMITS, name="rows")) as server:
        yield server


@pytest.fixture(scope="module")
def client(openai_client):
    return openai_client.with_options(max_retries=0)


def post(server, **more):
    url = f"{server.url}/v1/audio/transcriptions"
    return httpx.post(url, timeout=more.pop("timeout", 60), **more)


@pytest.fixture(scope="module")
def recording(speech):
    return wav_of(speech(45, 1))


@pytest.fixture(scope="module")
def expected(model, decoder, recording):
    return Transcriber(model, decoder)(recording)


def ask(client, recording, **more):
    return client.audio.transcriptions.create(
        file=("talk.wav", recording), model="rows", **more
    )


# ------------------------------------------------------------- OpenAI's own client
def test_models(client):
    [model] = client.models.list().data
    assert model.id == "rows" and client.models.retrieve("rows").id == "rows"


def test_every_form_of_json_and_text(client, recording, expected):
    found = ask(client, recording)
    assert found.text == expected.text and len(found.text.split()) > 60
    assert found.usage.type == "duration" and found.usage.seconds == 45
    text = ask(client, recording, response_format="text")
    assert text.strip() == expected.text
    found = ask(
        client,
        recording,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [w.word for w in found.words] == [w.text for w in expected.words]
    starts = [segment.start for segment in found.segments]
    assert starts == sorted(starts) and len(starts) > 5


def test_lists_of_boosts(client, recording, model, decoder):
    raw = client.audio.transcriptions.with_raw_response.create(
        file=("talk.wav", recording),
        model="rows",
        response_format="verbose_json",
        extra_body={"keywords[]": ["bartley", "zzyzx"]},
    )
    found = json.loads(raw.content)
    with pytest.warns(match="zzyzx"):
        whole = Transcriber(model, decoder)(recording, boosts=["bartley", "zzyzx"])
    assert found["text"] == whole.text
    assert any("zzyzx" in text for text in found["warnings"])
    best = ask(client, recording, extra_body={"boosts": json.dumps({"bartley": 4.0})})
    assert (
        best.text == Transcriber(model, decoder)(recording, boosts={"bartley": 4}).text
    )


# ------------------------------------------------------------------- rude clients


def test_requests_that_are_none(server, recording):
    assert post(server).status_code in (400, 415)
    assert post(server, content=b"{}").status_code in (400, 415)
    assert post(server, data={"model": "rows"}).status_code in (400, 415)
    assert "file" in error_of(post(server, files={"model": (None, "x")}))["message"]
    two = [("file", ("a.wav", recording)), ("file", ("b.wav", recording))]
    assert post(server, files=two).status_code == 400
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for body in (b"--x\r\n", b"\x00" * 5000, b"--x--"):
        assert post(server, content=body, headers=headers).status_code == 400
    files = {"file": ("a.wav", recording), "temperature": (None, "hot")}
    assert "temperature" in error_of(post(server, files=files))["message"]


def test_a_body_that_is_too_large_is_refused_while_it_is_read(server):
    def endless():
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"'
        yield b"\r\n\r\n"
        while True:
            yield bytes(1 << 16)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    try:
        answer = post(server, content=endless(), headers=headers)
    except httpx.WriteError:  # it was cut off in the midst of its sending
        return
    assert answer.status_code == 413 and "--max-body-bytes" in answer.text


def test_audio_that_is_too_long_is_refused_while_it_is_decoded(server):
    """Half an hour of silence in a few kilobytes."""
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    silence = np.full((50 * 1800, 43), -24, np.float32)
    silence[:, 0] = 0
    samples = np.frombuffer(bytes_of(silence), "<i2")
    soundfile.write(data, samples, 16000, format="FLAC")
    assert len(data.getvalue()) < LIMITS.body_bytes
    answer = post_file(server, data.getvalue())
    assert answer.status_code == 413 and "--max-file-s" in error_of(answer)["message"]


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate", [8000, 11025, 44100, 48000])
def test_forms_and_rates(server, form, rate):
    """Whatever is in it: it is heard to its end."""
    soundfile = pytest.importorskip("soundfile")
    if form == "MP3" and rate == 11025:
        pytest.skip("libmp3lame writes it as MPEG 2.5, other tests have that")
    data, rng = io.BytesIO(), np.random.default_rng(0)
    soundfile.write(data, rng.normal(0, 0.01, rate * 2), rate, format=form)
    answer = post_file(server, data.getvalue(), response_format="verbose_json")
    assert answer.status_code == 200, answer.text
    assert answer.json()["duration"] == pytest.approx(2, abs=0.1)


def test_many_at_once_get_each_their_own_or_are_told_to_come_again(
    server, model, decoder, speech
):
    transcriber = Transcriber(model, decoder)
    recordings = [wav_of(speech(8 + seed, 10 + seed)) for seed in range(4)] * 6
    expected = [transcriber(one).text for one in recordings[:4]] * 6
    assert len(set(expected)) == 4
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda one: post_file(server, one), recordings))
    assert sum(answer.status_code == 200 for answer in answers) >= 8
    for answer, text in zip(answers, expected, strict=True):
        if answer.status_code == 200:
            assert answer.json()["text"] == text
        else:
            assert answer.status_code == 503 and "retry-after" in answer.headers
    wait_until(lambda: not len(server.service.jobs))


def test_who_goes_away_frees_the_place(server, speech):
    long = wav_of(speech(85, 2))
    for _ in range(3):
        with pytest.raises(httpx.TimeoutException):  # reading or sending
            post_file(server, long, timeout=0.02)
    wait_until(lambda: not len(server.service.jobs))


def test_one_that_never_ends_does_not_stop_others(server, recording, expected):
    """A body that comes byte by byte; meanwhile others are answered."""
    stop = threading.Event()

    def crawl():
        yield b"--x\r\n"
        while not stop.wait(0.05):
            yield b"C"

    def slow():
        headers = {"content-type": "multipart/form-data; boundary=x"}
        return post(server, content=crawl(), headers=headers)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    time.sleep(0.2)
    answer = post_file(server, recording)
    assert answer.json()["text"] == expected.text
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
