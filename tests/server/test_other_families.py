"""Transducers behind the server: files and streams, with boosts and confidences."""

import json

import numpy as np
import pytest
from served import listened, post_file, serving
from wav_files import wav_bytes

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import tiny_transducers as tiny  # noqa: E402

from wfstdec import TransducerDecoder, TransducerOptions, load_model  # noqa: E402
from wfstdec.server.limits import Limits  # noqa: E402
from wfstdec.server.service import Service  # noqa: E402

RATE = 16000
BOOSTS = {"w3": 6.0}


@pytest.fixture(scope="module")
def waveform():
    sound = np.random.default_rng(5).standard_normal(3 * RATE)
    return (np.rint(3000 * sound).clip(-32768, 32767) / 32768).astype(np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = load_model(tiny.sherpa_folder(tmp_path_factory.mktemp("tdt"), 5))
    options = TransducerOptions(beam_size=3, max_symbols=2)
    decoder = TransducerDecoder(model, options=options)
    service = Service(model, decoder, Limits(), name="tdt", confidence=True)
    with serving(service) as server:
        yield server


def test_files_have_the_decoders_words_and_confidences(server, waveform):
    model, decoder = server.service.model, server.service.decoder
    data, texts = wav_bytes(waveform), set()
    for boosts in (None, BOOSTS):
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
    assert {one["is_final"] for one in results} == {True, False}
    model, decoder = server.service.model, server.service.decoder
    [hyp] = decoder.decode(model.encode([waveform]))

    def text_of(found):
        finals = [one for one in found if one.get("is_final")]
        texts = (one["channel"]["alternatives"][0]["transcript"] for one in finals)
        return " ".join(filter(None, texts))

    assert text_of(plain) == hyp.text
    boosted, _ = listened(server, *parts, query=f"{query}&keyterm=w3%20w9")
    assert text_of(boosted) != hyp.text
