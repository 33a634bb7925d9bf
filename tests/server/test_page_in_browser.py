"""The page in a real browser: Chromium, with a fake microphone that plays a file."""

import numpy as np
import pytest
from row_streams import bytes_of
from served import serving
from wav_files import wav_bytes

from wfstdec.server.service import Service

expect = pytest.importorskip("playwright.sync_api").expect
SIZES = ((360, 740), (1440, 900))


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service.of(encoder, decoder, nbest=3, confidence=True)
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
    data = wav_bytes(np.frombuffer(bytes_of(rows), "<i2") / 2.0**15)
    kind = {"name": name, "mimeType": "audio/wav", "buffer": data}
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
    page.fill("#boosts", f"{word} 9\nzzyzx")
    page.get_by_role("button", name="Use these words").click()
    page.get_by_role("button", name="Clear").click()
    send_file(page, rows)
    assert word in words_on(page)
    expect(page.locator("#boost-notes")).to_contain_text("zzyzx")


def test_the_microphone_words_as_they_come_and_other_readings(scripted, open_page):
    page = open_page(scripted.address)
    listen = page.get_by_role("button", name="Listen")
    listen.focus()
    page.keyboard.press("Enter")  # all by keyboard
    page.wait_for_selector("#transcript .open >> text=i", timeout=15000)
    expect(page.locator("#transcript")).to_contain_text("bartley", timeout=15000)
    page.locator("#transcript summary").first.click(timeout=15000)
    assert "otherwise" in page.locator("#transcript details").first.inner_text()
    page.locator("#listen").press("Enter")
    expect(page.locator("#listen")).to_have_attribute("aria-pressed", "false")
    [stream] = scripted.script.streams
    assert stream.seconds > 2 and np.abs(stream.samples).max() > 1000
    assert page.locator("#final-meter").inner_text() != "–"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_sideways_scrolling(server, open_page, speech, size, scheme, tmp_path):
    width, height = size
    page = open_page(
        server.url,
        viewport={"width": width, "height": height},
        color_scheme=scheme,
    )
    send_file(
        page, speech(12, 5), "a name that is rather long for such a small window.wav"
    )
    words_on(page)
    closed = page.locator("aside details:not([open]) summary")
    while closed.count():
        closed.first.click()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)


def test_a_key_is_asked_for_and_kept(scripted, open_page):
    scripted.script.key = "sesame"
    page = open_page(scripted.address)
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key-field", "sesame")
    page.keyboard.press("Enter")
    page.wait_for_selector("#key-form[hidden]", state="attached")
    assert page.locator("#model-name").inner_text() == "scripted"
    page.complaints.clear()  # the browser's own line about the 401


def test_a_stream_goes_on_after_a_cut(scripted, open_page):
    scripted.script.closes = [1012]
    page = open_page(scripted.address)
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#transcript")).to_contain_text("understand", timeout=20000)
    assert len(scripted.script.streams) == 2
    page.locator("#listen").click()
