"""`POST /v1/audio/transcriptions`: to the bit, OpenAI's client, rude clients."""

import concurrent.futures
import contextlib
import io
import json
import re
import socket
import threading
import time
from functools import partial

import httpx
import numpy as np
import pytest
from row_streams import bytes_of, wav_of
from served import error_of, serving, wait_until
from served import post_file as post
from wav_files import av_bytes, wav_bytes

from tools.bench.row_encoder import RowEncoder
from wfstdec import GreedyDecoder, Transcriber
from wfstdec.batch import LatticeReading
from wfstdec.io.subtitles import srt_text, vtt_text
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service
from wfstdec.transcription import Recording

soundfile = pytest.importorskip("soundfile")

LIMITS = Limits(requests=4, body_bytes=8 << 20, file_s=200.0, idle_s=1.0, boosts=50)


class GatedEncoder(RowEncoder):
    """Waits at each piece until it may continue; counts pieces."""

    def __init__(self, tokens):
        super().__init__(tokens)
        self.may_run, self.num_pieces = threading.Event(), 0
        self.may_run.set()

    def encode(self, waveforms):
        self.num_pieces += len(waveforms)
        assert self.may_run.wait(30)
        return super().encode(waveforms)


@pytest.fixture(scope="module")
def model(encoder):
    return GatedEncoder(encoder.spec.tokens)


@pytest.fixture(scope="module")
def server(model, decoder):
    service = Service(model, decoder, LIMITS, name="rows", confidence=True)
    with serving(service) as server:
        yield server


def samples_of(rows):
    return np.frombuffer(bytes_of(rows), "<i2")


def url_of(server):
    return f"{server.url}/v1/audio/transcriptions"


def verbose(server, data, **fields):
    answer = post(server, data, response_format="verbose_json", **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("seconds", [7, 75])
def test_words_are_those_of_a_transcriber_to_the_bit(server, decoder, speech, seconds):
    recording = wav_of(speech(seconds, 3))
    reading = LatticeReading(nbest=4, confidence=True)
    transcriber = Transcriber(server.service.model, decoder, lattices=reading)
    [transcript] = transcriber.run([Recording("a", recording, {"bartley": 3.0})])
    expected = transcript.hypotheses(4)
    assert len(expected) > 1
    boosts = json.dumps({"bartley": 3.0})
    found = verbose(server, recording, nbest=4, boosts=boosts)
    costs = ("total_cost", "graph_cost", "acoustic_cost", "boost_cost")
    for one, hypothesis in zip(found["nbest"], expected, strict=True):
        assert {name: one[name] for name in costs} == {
            name: getattr(hypothesis, name) for name in costs
        }
        assert one["text"] == hypothesis.text
    shown = [
        {
            "word": word.text,
            "start": round(word.start_s, 6),
            "end": round(word.end_s, 6),
            "confidence": round(word.confidence, 6),
            "acoustic_confidence": round(word.acoustic_confidence, 6),
        }
        for word in expected[0].words
    ]
    assert found["words"] == shown and len(shown) > 5
    assert found["duration"] == found["usage"]["seconds"] == transcript.audio_s
    srt = post(server, recording, response_format="srt", boosts=boosts)
    assert srt.text == srt_text(expected[0].words)
    vtt = post(server, recording, response_format="vtt", boosts=boosts)
    assert vtt.text == vtt_text(expected[0].words)
    assert vtt.headers["content-type"] == "text/vtt; charset=utf-8"


def test_segments_are_cues_and_have_every_field(server, speech):
    found = verbose(server, wav_of(speech(30, 5)))
    segments, words = found["segments"], found["words"]
    assert " ".join(one["text"] for one in segments) == found["text"]
    sizes = [len(one["text"].split()) for one in segments]
    starts = np.cumsum([0, *sizes])
    for first, end, one in zip(starts[:-1], starts[1:], segments, strict=True):
        assert one["start"] == words[first]["start"]
        assert one["end"] == words[end - 1]["end"]
        assert one["seek"] == round(100 * one["start"])
        sure = [word["confidence"] for word in words[first:end]]
        mean = np.mean(np.log(np.maximum(sure, 1e-10)))
        assert one["avg_logprob"] == pytest.approx(mean, abs=1e-4)
        assert one["compression_ratio"] > 0
    assert len(segments) > 3 and min(one["avg_logprob"] for one in segments) < 0


def test_fields_without_effect_are_named(server, openai_client, speech):
    recording = wav_of(speech(3, 1))
    plain = post(server, recording).json()
    found = openai_client.audio.transcriptions.create(
        file=("a.wav", recording),
        model="whisper-1",
        prompt="This is it.",
        temperature=0.2,
        language="en",
        include=["logprobs"],
        chunking_strategy={"type": "server_vad", "threshold": 0.5},
        known_speaker_names=["a"],
        timestamp_granularities=["word"],
    )
    assert found.text == plain["text"] and found.text
    names = "chunking_strategy", "known_speaker_names", "temperature"
    assert found.warnings == [
        "the prompt has no rare words or names, and no effect",
        *(f"the field {name!r} has no effect" for name in names),
    ]
    assert "warnings" not in plain
    assert "warnings" not in post(server, recording, temperature=0).json()
    other = verbose(server, recording, langauge="en", language="de")
    assert other["language"] == "en"
    assert any("'langauge'" in text for text in other["warnings"])
    assert any("'de'" in text and "'en'" in text for text in other["warnings"])


def test_a_channel_may_be_chosen(server, speech):
    first, second = samples_of(speech(4, 1)), samples_of(speech(4, 2))
    data = io.BytesIO()
    soundfile.write(data, np.stack([first, second], 1), 16000, format="WAV")
    for channel, seed in enumerate((1, 2)):
        found = post(server, data.getvalue(), channel=str(channel)).json()
        assert found["text"] == post(server, wav_of(speech(4, seed))).json()["text"]
    answer = post(server, data.getvalue(), channel="2")
    assert answer.status_code == 400 and "0 to 1" in error_of(answer)["message"]


@pytest.mark.parametrize(("form", "codec"), [("mp4", "aac"), ("webm", "libopus")])
def test_what_ffmpeg_reads(server, form, codec):
    noise = np.random.default_rng(0).normal(0, 0.01, 96000).astype(np.float32)
    found = verbose(server, av_bytes(noise, form, codec, rate=48000))
    assert found["duration"] == pytest.approx(2, abs=0.1)


def test_what_is_no_audio_is_said_and_costs_nobody_anything(server, speech):
    rows = speech(4, 1)
    wav = wav_of(rows)
    random = np.random.default_rng(1)
    noise = [random.bytes(size) for size in (1, 15, 16, 500, 70_000)]
    headers = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\x1a\x45\xdf\xa3", b"0000ftypisom")
    for data in (
        b"",
        wav[:44],
        wav[:20],
        wav[: len(wav) // 2],
        wav.replace(b"WAVE", b"EVAW"),
        *noise,
        *(head + random.bytes(3000) for head in headers),
        b"<html>",
    ):
        answer = post(server, data)
        error = error_of(answer)
        assert answer.status_code in (400, 415), (data[:16], error)
        assert error["param"] == "file" and error["message"]
    half = post(server, wav[: len(wav) // 2], allow_cut="true")
    whole = post(server, wav_of(rows[:100])).json()["text"].split()
    assert half.status_code == 200
    assert half.json()["text"].split()[: len(whole) - 1] == whole[:-1]
    assert any("cut short" in text for text in half.json()["warnings"])
    silence = post(server, wav_bytes(np.zeros(16000))).json()
    assert any("silent" in text for text in silence["warnings"])


def test_what_fails_under_way_is_an_event(server, openai_client, speech):
    import openai

    data = io.BytesIO()
    soundfile.write(data, samples_of(speech(120, 6)), 16000, format="FLAC")
    damaged = bytearray(data.getvalue())
    at = len(damaged) * 9 // 10
    damaged[at : at + 3000] = bytes(3000)
    deltas = []
    with pytest.raises(openai.APIError, match="damaged|cut"):
        for one in openai_client.audio.transcriptions.create(
            file=("a.flac", bytes(damaged)), model="m", stream=True
        ):
            deltas.append(one.delta)
    assert len("".join(deltas).split()) > 20
    answer = post(server, b"no audio at all, but some bytes", stream="true")
    assert answer.status_code == 415  # nothing was sent yet: a status


def test_the_last_event_has_all_that_verbose_json_has(server, speech):
    recording = wav_of(speech(40, 7))
    answer = post(server, recording, stream="true", nbest=2)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(one[6:]) for one in answer.text.strip().split("\n\n")]
    *deltas, done = events
    assert {one["type"] for one in deltas} == {"transcript.text.delta"}
    assert "".join(one["delta"] for one in deltas) == done["text"]
    whole = verbose(server, recording, nbest=2)
    for name in ("text", "words", "segments", "nbest", "usage"):
        assert done[name] == whole[name]


def test_who_leaves_a_stream_frees_its_thread(server, model, speech):
    recording = wav_of(speech(190, 8))
    before = model.num_pieces
    model.may_run.clear()
    try:
        files = {"file": ("a", recording)}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url_of(server), files=files, data={"stream": "true"}, timeout=1)
        assert len(server.service.jobs) == 1  # its thread waits for the model
    finally:
        time.sleep(0.2)
        model.may_run.set()
    wait_until(lambda: not len(server.service.jobs))
    left = model.num_pieces - before
    before = model.num_pieces
    assert post(server, recording).status_code == 200
    assert left < model.num_pieces - before


def test_openais_client_comes_again_when_there_is_room(server, openai_client, speech):
    import openai

    recording = wav_of(speech(2, 1))
    jobs = server.service.jobs
    wait_until(lambda: not len(jobs))
    taken = [jobs.receive() for _ in range(LIMITS.requests)]
    for place in taken:
        place.take_place()
    answer = post(server, recording)
    assert answer.status_code == 503 and error_of(answer)["code"]
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert "--max-requests" in error_of(answer)["message"]
    with pytest.raises(openai.InternalServerError):
        openai_client.with_options(max_retries=0).audio.transcriptions.create(
            file=("a.wav", recording), model="m"
        )

    def leave():
        for place in taken:
            with place:
                pass

    timer = threading.Timer(0.5, leave)
    timer.start()
    found = openai_client.audio.transcriptions.create(
        file=("a.wav", recording), model="m"
    )
    timer.join()
    assert found.text
    wait_until(lambda: not len(jobs))


def test_a_body_that_stops_is_given_up(server):
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head.encode())
        client.settimeout(20)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert b" 408 " in answer.split(b"\r\n")[0] and b"--max-idle-s" in answer
    wait_until(lambda: not len(server.service.jobs))


def test_slow_uploads_keep_no_other_from_work(server, speech):
    """64 bodies of a byte each few seconds were 503 for all others."""
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    with contextlib.ExitStack() as stack:
        for _ in range(2 * LIMITS.requests):
            address = "127.0.0.1", server.port
            client = stack.enter_context(socket.create_connection(address))
            client.sendall(head.encode())
        jobs = server.service.jobs
        wait_until(lambda: len(jobs._uploads) == 2 * LIMITS.requests)
        assert not len(jobs)
        assert post(server, wav_of(speech(2, 1))).status_code == 200
    wait_until(lambda: not jobs._uploads)


def test_measures_count_files(server, speech):
    def count(name):
        text = httpx.get(f"{server.url}/metrics").text
        found = re.findall(rf"^{name} (\S+)$", text, re.M)
        return sum(map(float, found))

    before = count("wfstdec_file_audio_seconds_total")
    failed = count(r'wfstdec_errors_total\{kind="file"\}')
    post(server, wav_of(speech(3, 1)))
    post(server, b"none of it")
    assert count("wfstdec_file_audio_seconds_total") == pytest.approx(before + 3)
    assert count(r'wfstdec_errors_total\{kind="file"\}') == failed + 1


def test_a_fault_of_the_server_says_no_more_than_that(decoder, encoder, speech, caplog):
    class Breaking(RowEncoder):
        is_broken = False

        def encode(self, waveforms):
            if self.is_broken:
                raise RuntimeError("secret of the house")
            return super().encode(waveforms)

    model = Breaking(encoder.spec.tokens)
    with serving(Service(model, decoder, LIMITS)) as server:
        model.is_broken = True
        answer = post(server, wav_of(speech(2, 1)))
    assert answer.status_code == 500 and "secret" not in answer.text
    assert error_of(answer)["type"] == "server_error"
    assert "secret of the house" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "is_stream"),
    [
        (1.0, False),
        (4.0, True),
        pytest.param(1.0, True, marks=pytest.mark.share),
        pytest.param(4.0, False, marks=pytest.mark.share),
    ],
)
def test_requests_stop_with_the_app(
    decoder, encoder, speech, caplog, seconds, is_stream
):
    """A piece that takes longer than the server waits is 503, not a fault."""
    model = GatedEncoder(encoder.spec.tokens)
    service = Service(model, decoder, LIMITS)
    answers, before = [], set(threading.enumerate())

    def ask():
        try:
            more = {"stream": "true"} if is_stream else {}
            answer = post(server, wav_of(speech(100, 2)), timeout=20, **more)
            answers.append(answer.status_code)
        except httpx.TransportError:  # cut off
            answers.append(None)

    with serving(service) as server:
        model.may_run.clear()
        pieces = model.num_pieces
        client = threading.Thread(target=ask)
        client.start()
        wait_until(lambda: model.num_pieces > pieces)
        threading.Timer(seconds, model.may_run.set).start()
    client.join(20)
    assert answers in ([None], [200], [503])
    assert "Exception" not in caplog.text
    assert not len(service.jobs)
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in names if name.startswith("wfstdec-request")]


def test_a_decoder_that_finds_only_the_best(encoder, speech):
    """No list and no confidences, and a message; a server does not fail for it."""
    model = RowEncoder(encoder.spec.tokens)
    greedy = GreedyDecoder(tokens=encoder.spec.tokens)
    recording = wav_of(speech(5, 1))
    with serving(Service(model, greedy, LIMITS)) as server:
        found = verbose(server, recording, confidence="true")
        answer = post(server, recording, nbest="2")
    assert found["text"] == Transcriber(model, greedy)(recording).text
    assert any("no confidences" in text for text in found["warnings"])
    assert answer.status_code == 400 and error_of(answer)["param"] == "nbest"


def test_models(openai_client):
    [model] = openai_client.models.list().data
    assert model.id == "rows" and openai_client.models.retrieve("rows").id == "rows"


def test_every_form_of_json_and_text(server, openai_client, decoder, speech):
    recording = wav_of(speech(45, 1))
    boosts = {"bartley": 4.0}
    expected = Transcriber(server.service.model, decoder)(recording, boosts=boosts)
    given = {"file": ("talk.wav", recording), "model": "rows"}
    given["extra_body"] = {"keywords[]": ["bartley:4", "zzyzx"]}
    found = openai_client.audio.transcriptions.create(**given)
    assert found.text == expected.text and len(found.text.split()) > 60
    assert found.usage.type == "duration" and found.usage.seconds == 45
    assert any("zzyzx" in text for text in found.model_dump()["warnings"])
    text = openai_client.audio.transcriptions.create(**given, response_format="text")
    assert text.strip() == expected.text
    found = openai_client.audio.transcriptions.create(
        **given,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [w.word for w in found.words] == [w.text for w in expected.words]
    starts = [segment.start for segment in found.segments]
    assert starts == sorted(starts) and len(starts) > 5


def test_values_that_are_none(server, speech):
    recording = wav_of(speech(1, 1))
    for name, value, message in (
        ("response_format", "xml", "'json', 'text', 'srt', 'verbose_json', 'vtt'"),
        ("stream", "maybe", "'true', 'false'"),
        ("nbest", "0", "1 to 100"),
        ("temperature", "nan", "0 to 1"),
        ("timestamp_granularities[]", "phone", "'word', 'segment'"),
        ("channel", "-1", "0 or more"),
        ("boosts", "{", "JSON"),
        ("boosts", '{"a": "many"}', "bonus"),
        ("boosts", json.dumps([f"w{i}" for i in range(60)]), "--max-boosts"),
        ("boosts", '{"a": 1, "a": 2}', "once"),
        ("boosts", "[" * 100_000, "JSON"),
        ("boosts", '"quilter"', "list"),
        ("keywords[]", " ", "a string of words"),
    ):
        answer = post(server, recording, **{name: value})
        error = error_of(answer)
        assert answer.status_code == 400 and message in error["message"], (name, error)
        assert error["param"] == name.removesuffix("[]")
    twice = post(server, recording, response_format=["json", "text"])
    assert "2 times" in error_of(twice)["message"]
    streamed = post(server, recording, stream="true", response_format="srt")
    assert streamed.status_code == 400
    latin = {"file": ("a", recording), "keywords[]": (None, b"\xe9t\xe9")}
    answer = httpx.post(url_of(server), files=latin)
    assert answer.status_code == 400 and "UTF-8" in error_of(answer)["message"]


def test_requests_that_are_none(server, speech):
    post, recording = partial(httpx.post, url_of(server)), wav_of(speech(1, 1))
    assert post().status_code in (400, 415)
    assert post(content=b"{}").status_code in (400, 415)
    assert post(data={"model": "rows"}).status_code in (400, 415)
    assert "file" in error_of(post(files={"model": (None, "x")}))["message"]
    two = [("file", ("a.wav", recording)), ("file", ("b.wav", recording))]
    assert post(files=two).status_code == 400
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for body in (b"--x\r\n", b"\x00" * 5000, b"--x--"):
        assert post(content=body, headers=headers).status_code == 400


def test_a_body_that_is_too_large_is_refused_while_it_is_read(server):
    def endless():
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"'
        yield b"\r\n\r\n"
        while True:
            yield bytes(1 << 16)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    try:
        answer = httpx.post(url_of(server), content=endless(), headers=headers)
    except httpx.WriteError:  # it was cut off in the midst of its sending
        return
    assert answer.status_code == 413 and "--max-body-bytes" in answer.text


@pytest.mark.parametrize("form", ["FLAC", "WAV", "OGG"])
def test_audio_that_is_too_long_is_refused_before_or_while_it_is_decoded(
    server, model, form
):
    """By its header where that is known; an Ogg has its length at its end."""
    data, before = io.BytesIO(), model.num_pieces
    silence = np.full((50 * 240, 43), -24, np.float32)
    silence[:, 0] = 0
    samples = np.frombuffer(bytes_of(silence), "<i2")
    with soundfile.SoundFile(data, "w", 16000, 1, format=form) as file:
        for start in range(0, len(samples), 16000):  # Vorbis takes no more at once
            file.write(samples[start : start + 16000])
    assert len(data.getvalue()) < LIMITS.body_bytes
    answer = post(server, data.getvalue())
    assert answer.status_code == 413 and "--max-file-s" in error_of(answer)["message"]
    assert (model.num_pieces == before) == (form != "OGG")


def test_many_at_once_get_each_their_own_or_are_told_to_come_again(
    server, model, decoder, speech
):
    transcriber = Transcriber(model, decoder)
    recordings = [wav_of(speech(8 + seed, 10 + seed)) for seed in range(4)] * 6
    expected = [transcriber(one).text for one in recordings[:4]] * 6
    assert len(set(expected)) == 4
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda one: post(server, one), recordings))
    assert sum(answer.status_code == 200 for answer in answers) >= LIMITS.requests
    for answer, text in zip(answers, expected, strict=True):
        if answer.status_code == 200:
            assert answer.json()["text"] == text
        else:
            assert answer.status_code == 503 and "retry-after" in answer.headers
    wait_until(lambda: not len(server.service.jobs))
