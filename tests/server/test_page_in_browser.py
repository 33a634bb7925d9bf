"""The page in a real browser: Chromium, with a fake microphone that plays a file.

A model of rows is behind it, or a real one: names appear when they are boosted.
"""

import contextlib
import importlib.util
import os

import numpy as np
import pytest
from row_streams import wav_of
from served import serving

import wfstdec
from wfstdec.cli.checks import AUDIO, MODEL
from wfstdec.models import load_model
from wfstdec.recipes import OPTIONS, build_or_load, find_recipe
from wfstdec.server.service import Service

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("soundfile")
SPOKEN = "1462-170142-0030.mp3"
PLAIN, BOOSTED = (f"i understand {name} i was wrong" for name in ("partly", "bartley"))
RATE = 16000
LISTENS_MS = 60000


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service(encoder, decoder, nbest=3, confidence=True)
    with serving(service) as server:
        yield server


@pytest.fixture(scope="module")
def one_more_word(decoder, speech):
    """Rows, what they say, and a word that they say only where it is boosted."""
    rows = speech(8, 2)
    [plain] = decoder.decode([rows])
    for word in decoder.vocabulary.words[200::7]:
        [boosted] = decoder.decode([rows], boosts={word: 9.0})
        if word not in plain.text.split() and word in boosted.text.split():
            return rows, plain.text, word
    raise AssertionError("no word of the table can be boosted into these rows")


def words_on(page):
    page.wait_for_selector("#transcript .word")
    return page.locator("#transcript .word").all_inner_texts()


def send_file(page, rows, name="talk.wav"):
    kind = {"name": name, "mimeType": "audio/wav", "buffer": wav_of(rows)}
    page.set_input_files("#files", kind)


def test_a_file_its_words_and_what_is_done_with_them(
    server, decoder, open_page, one_more_word
):
    rows, text, word = one_more_word
    page = open_page(server.url)
    send_file(page, rows)
    assert " ".join(words_on(page)) == text

    first = page.locator("#transcript .word").first
    first.click()
    page.wait_for_selector("#transcript .word.playing")
    page.wait_for_selector("#transcript .word.playing", state="detached")
    first.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#transcript .word.playing")
    assert page.evaluate("document.activeElement.textContent") == text.split()[1]

    for label, form in (
        ("Text", text.split()[0]),
        ("SRT", "00:00:0"),
        ("VTT", "WEBVTT"),
    ):
        page.get_by_role("button", name=f"Copy as {label}").click()
        expect(page.locator("#condition")).to_have_text(f"Copied as {label}")
        assert form in page.evaluate("navigator.clipboard.readText()")

    if not page.locator("#boosts").is_visible():  # folded where there is no room
        page.locator("#boosts-part summary").click()
    page.fill("#boosts", f"{word} = 9\nzzyzx")
    page.get_by_role("button", name="Use these words").click()
    page.get_by_role("button", name="Clear").click()
    send_file(page, rows)
    assert word in words_on(page)
    expect(page.locator("#boost-notes")).to_contain_text("zzyzx")


# ------------------------------------------------------------------- a real model
@pytest.fixture(scope="module")
def real_server():
    if importlib.util.find_spec("hama") is None:
        pytest.skip("needs hama")
    decoder = wfstdec.WfstDecoder(build_or_load(find_recipe()), OPTIONS, threads=2)
    model = load_model(find_recipe() / MODEL)
    service = Service(model, decoder, name="hama", nbest=3, confidence=True)
    with serving(service) as server:
        yield server


@pytest.fixture(scope="module")
def speaking(launch):
    """A browser whose microphone hears somebody speak, then silence."""
    from wfstdec.audio import read_audio

    spoken = read_audio(find_recipe() / AUDIO / SPOKEN, RATE).waveform
    pause = np.random.default_rng(1).normal(0, 1e-3, 3 * RATE)
    browser = launch(np.concatenate([pause[: RATE // 3], spoken, pause]), RATE)
    yield browser
    browser.close()


def listen(page):
    """Text of the page for what the microphone hears, whole or as far as it came."""
    page.get_by_role("button", name="Listen").click()
    with contextlib.suppress(AssertionError):
        expect(page.locator("#transcript")).to_contain_text("wrong", timeout=LISTENS_MS)
    page.locator("#listen").click()
    expect(page.locator("#listen")).to_have_text("Listen", timeout=LISTENS_MS)
    return " ".join(page.locator("#transcript .word").all_inner_texts())


def listen_for(page, text):
    """Listens again where the microphone left samples out, as on a busy machine."""
    for _ in range(4):
        if (heard := listen(page)) == text:
            return
        page.get_by_role("button", name="Clear").click()
    if (load := os.getloadavg()[0]) > 1.5 * (os.cpu_count() or 1):
        pytest.skip(f"too busy for a microphone: load {load:.1f}, heard {heard!r}")
    assert heard == text


def test_a_boosted_name_appears(real_server, open_page, speaking):
    page = open_page(real_server.url, in_browser=speaking)
    expect(page.locator("#model-name")).to_have_text("hama")
    for boosts, text in (("", PLAIN), ("bartley = 4\nzzyzx", BOOSTED)):
        page.fill("#boosts", boosts)
        page.get_by_role("button", name="Use these words").click()
        listen_for(page, text)
        page.locator("#transcript .word").nth(2).click()
        expect(page.locator("#about-word")).to_contain_text("confidence 0.")
        page.locator(".readings summary").first.click()
        expect(page.locator(".readings mark").first).to_be_visible()
        page.get_by_role("button", name="Clear").click()
    expect(page.locator("#boost-notes")).to_contain_text("zzyzx")
