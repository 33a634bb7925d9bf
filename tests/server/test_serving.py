"""`wfstdec serve` as a program: its first lines, signals, and how it ends."""

import asyncio
import json
import signal
import time

import httpx
import numpy as np
import pytest
from row_streams import bytes_of
from served import LINEAR16
from server_program import MODEL, Program, searching
from tiny_models import waveform_model
from websockets.asyncio.client import connect

from wfstdec.cli.main import main

TWO = "--processes", "2"


@pytest.fixture(scope="module")
def graph(decoder, tmp_path_factory):
    path = tmp_path_factory.mktemp("serving") / "graph.npz"
    decoder.graph.save(path)
    return path


def listen_until_drained(program, rows, num):
    async def one(begun):
        found = []
        url = f"{program.url.replace('http', 'ws')}/v1/listen?{LINEAR16}"
        async with connect(f"{url}&interim_results=true") as socket:
            for part in np.array_split(rows, 8):
                await socket.send(bytes_of(part))
            try:
                async for text in socket:
                    found.append(json.loads(text))
                    begun.append(found[-1].get("is_final") is False)  # it has words
            except Exception as error:  # 1001 is an end as good as 1000 here
                del error
        return found, socket.close_code

    async def run():
        begun = []
        tasks = [asyncio.create_task(one(begun)) for _ in range(num)]
        while sum(begun) < num:
            await asyncio.sleep(0.01)
        program.process.send_signal(signal.SIGTERM)
        return await asyncio.gather(*tasks)

    return asyncio.run(run())


@pytest.mark.parametrize(("processes", "streams"), [(1, 6), (2, 20)])
def test_a_signal_drains_streams(graph, speech, processes, streams):
    with Program(*searching(graph), "--processes", str(processes)) as program:
        program.wait_until_ready()
        assert httpx.get(f"{program.url}/ready").status_code == 200
        assert "wfstdec" in httpx.get(f"{program.url}/").text
        found = listen_until_drained(program, speech(5, 1), streams)
        assert program.end() == 0
    for messages, code in found:
        words = [
            word
            for one in messages
            if one["type"] == "Results" and one["is_final"]
            for word in one["channel"]["alternatives"][0]["words"]
        ]
        assert code == 1001 and len(words) > 5
        assert messages[-1]["type"] == "Metadata"


def test_a_job_in_the_background_ignores_ctrl_c(graph):
    """`sh -c 'wfstdec serve ... &'` starts it so: SIGINT is ignored, SIGTERM not."""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    key = {"WFSTDEC_KEY": "sesame"}
    with Program(*searching(graph), env=key, preexec_fn=ignore) as program:
        program.wait_until_ready()
        program.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        models = f"{program.url}/v1/models"
        assert httpx.get(models).status_code == 401
        headers = {"Authorization": "Bearer sesame"}
        assert httpx.get(models, headers=headers).status_code == 200
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0


def test_the_tokens_named_are_those_of_the_model(graph, decoder, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tokens = decoder.graph.tokens
    model = waveform_model(tmp_path / "model.onnx", len(tokens))
    table = tmp_path / "names.txt"
    table.write_text("".join(f"{name} {i}\n" for i, name in enumerate(tokens.names)))
    flags = ("--tokens", str(table), "--blank", tokens.names[tokens.blank])
    flags += ("--sample-rate", "16000")
    graph_flags = "--graph", str(graph)
    for decoder_flags in (graph_flags, (*graph_flags, *TWO), ("--decoder", "greedy")):
        with Program(*decoder_flags, *flags, model=model) as program:
            program.wait_until_ready()
            program.process.send_signal(signal.SIGTERM)
            assert program.end() == 0


def test_what_is_wrong_is_said_in_a_line(graph, tmp_path, capsys):
    for flags, message in (
        (["--key-file", str(tmp_path / "nowhere")], "nowhere"),
        (["--ssl-certfile", "cert.pem"], "cert.pem"),
    ):
        assert main(["serve", MODEL, "--port", "0", *searching(graph), *flags]) == 1
        assert message in capsys.readouterr().err
    with Program(*searching(graph), "--host", "192.0.2.1") as program:
        errors = program.errors()
        assert program.process.returncode in (1, 2)
        assert "192.0.2.1" in errors and "Traceback" not in errors
