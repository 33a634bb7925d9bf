import pytest

pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("soxr")
pytest.importorskip("websockets")

import shutil
import subprocess

import numpy as np
from real_speech import speech_graph, utterances
from row_streams import long_rows
from scripted_server import ScriptedServer
from wav_files import wav_bytes

from tools.bench.row_encoder import StreamingRowEncoder
from wfstdec import WfstDecoder, WfstOptions


@pytest.fixture(scope="session")
def decoder():
    """On a small graph of real words; the n-best lists of others come of options."""
    options = WfstOptions(beam=10.0, lm_scale=0.8)
    return WfstDecoder(speech_graph("normal"), options, "cpu", threads=2)


@pytest.fixture(scope="session")
def encoder(decoder):
    return StreamingRowEncoder(decoder.graph.tokens)


@pytest.fixture(scope="session")
def speech():
    """Makes rows of some seconds of speech with pauses, other ones for each seed."""
    some = utterances(3)
    return lambda seconds, seed: long_rows(some, seconds, seed).astype(np.float32)


@pytest.fixture(scope="module")
def openai_client(server):
    """OpenAI's own client, of the server of a module."""
    openai = pytest.importorskip("openai")
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=2) as client:
        yield client


@pytest.fixture(scope="session")
def heard():
    """Noise of 48 kHz for the microphone of `browser`: unlike itself later."""
    return np.random.default_rng(0).normal(0, 0.1, 48000 * 8)


@pytest.fixture(scope="module")
def browser(tmp_path_factory, heard):
    """Chromium with a microphone that hears these samples, once each time.

    A module each: while Playwright runs, `asyncio.run` of other tests is refused.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no browser is installed")
    path = tmp_path_factory.mktemp("microphone") / "heard.wav"
    path.write_bytes(wav_bytes(heard, rate=48000))
    flags = [
        "--no-sandbox",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={path}%noloop",
    ]
    with playwright.sync_playwright() as play:
        yield play.chromium.launch(executable_path=chromium, args=flags)


@pytest.fixture
def open_page(browser):
    """Opens the page of a server; the browser must have had nothing to complain of."""
    contexts = []

    def open_page(address, script="", **options):
        context = browser.new_context(**options)
        context.grant_permissions(["clipboard-read", "clipboard-write", "microphone"])
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on(
            "console",
            lambda entry: entry.type == "error" and page.complaints.append(entry.text),
        )
        page.add_init_script(script)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert not page.complaints
        context.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Settings of TLS for `served.serving`: a certificate of 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1"
    command += f" -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


@pytest.fixture
def scripted():
    server = ScriptedServer()
    server.start()
    yield server
    server.stop()
