"""Transducers and attention models behind the server: files, streams, boosts, SDKs."""

import io
import json
import threading

import numpy as np
import pytest
from served import listened, post_file, serving
from wav_files import wav_bytes

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import tiny_transducers as tiny  # noqa: E402

import wfstdec  # noqa: E402
from wfstdec import load_model  # noqa: E402
from wfstdec.server.limits import Limits  # noqa: E402
from wfstdec.server.service import Service  # noqa: E402

RATE = 16000
LISTS = {"tdt": {"w3": 6.0}, "whisper": {"garment": 40.0}}
TERMS = {"tdt": "w3 w9", "whisper": "garment"}


@pytest.fixture(scope="module")
def waveform():
    sound = np.random.default_rng(5).standard_normal(3 * RATE)
    return (np.rint(3000 * sound).clip(-32768, 32767) / 32768).astype(np.float32)


@pytest.fixture(scope="module", params=LISTS)
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "tdt":
        model = load_model(tiny.sherpa_folder(folder, 5))
        options = wfstdec.TransducerOptions(beam_size=3, max_symbols=2)
        decoder = wfstdec.TransducerDecoder(model, options=options)
    else:
        pytest.importorskip("transformers")
        import tiny_attention

        tiny_attention.optimum_whisper(folder)
        model = load_model(folder)
        options = wfstdec.AttentionOptions(beam_size=3)
        decoder = wfstdec.AttentionDecoder(model, options=options)
    service = Service(model, decoder, Limits(), name=request.param, confidence=True)
    with serving(service) as server:
        yield server


def test_files_have_the_decoders_words_and_confidences(server, waveform):
    model, decoder = server.service.model, server.service.decoder
    data, texts = wav_bytes(waveform), set()
    for boosts in (None, LISTS[server.service.name]):
        [hyp] = decoder.decode(model.encode([waveform]), boosts=boosts, confidence=True)
        fields = {"response_format": "verbose_json"}
        if boosts:
            fields["boosts"] = json.dumps(boosts)
        answer = post_file(server, data, **fields)
        assert answer.status_code == 200
        found = answer.json()
        assert found["text"] == hyp.text
        sure = [word["confidence"] for word in found["words"]]
        assert sure == pytest.approx([w.confidence for w in hyp.words], abs=1e-3)
        texts.add(hyp.text)
    assert len(texts) == 2  # the list changes the text


def test_streams_have_finals_and_interims(server, waveform):
    samples = np.rint(waveform * 32768).astype("<i2")
    parts = [part.tobytes() for part in np.array_split(samples, 12)]
    query = "encoding=linear16&sample_rate=16000&interim_results=true"
    query += "&endpointing=false"  # noise has pauses
    plain, code = listened(server, *parts, query=query, pause_s=0.05)
    assert code == 1000
    results = [one for one in plain if one["type"] == "Results"]
    # Attention models hear whole pieces: their streams have finals alone.
    partial = {False} if server.service.name == "tdt" else set()
    assert {one["is_final"] for one in results} == {True} | partial
    model, decoder = server.service.model, server.service.decoder
    [hyp] = decoder.decode(model.encode([waveform]))

    def text_of(found):
        finals = [one for one in found if one.get("is_final")]
        texts = (one["channel"]["alternatives"][0]["transcript"] for one in finals)
        return " ".join(filter(None, texts))

    assert text_of(plain) == hyp.text
    terms = TERMS[server.service.name].replace(" ", "%20")
    boosted, _ = listened(server, *parts, query=f"{query}&keyterm={terms}")
    assert text_of(boosted) != hyp.text


def test_openais_client(server, openai_client, waveform):
    model, decoder = server.service.model, server.service.decoder
    [hyp] = decoder.decode(model.encode([waveform]))
    file = io.BytesIO(wav_bytes(waveform))
    file.name = "x.wav"
    found = openai_client.audio.transcriptions.create(
        model="any", file=file, response_format="verbose_json"
    )
    assert found.text == hyp.text


def test_deepgrams_client(server, waveform):
    deepgram = pytest.importorskip("deepgram")
    from deepgram.environment import DeepgramClientEnvironment

    place = DeepgramClientEnvironment(
        base=server.url, production=server.ws, agent=server.ws, agent_rest=server.url
    )
    client, found = deepgram.DeepgramClient(api_key="any", environment=place), []
    samples = np.rint(waveform * 32768).astype("<i2").tobytes()
    query = {"model": "nova-3", "encoding": "linear16", "sample_rate": RATE}
    with client.listen.v1.connect(**query, endpointing="false") as socket:
        thread = threading.Thread(target=lambda: found.extend(socket))
        thread.start()
        socket.send_media(samples)
        socket.send_close_stream()
        thread.join(30)
        assert not thread.is_alive()
    texts = [
        one.channel.alternatives[0].transcript
        for one in found
        if getattr(one, "is_final", False)
    ]
    model, decoder = server.service.model, server.service.decoder
    [hyp] = decoder.decode(model.encode([waveform]))
    assert " ".join(filter(None, texts)) == hyp.text
