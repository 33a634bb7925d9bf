"""The page in a real browser: Chromium, with a fake microphone that plays a file."""

import pytest
from row_streams import wav_of
from served import serving

from wfstdec.server.service import Service

expect = pytest.importorskip("playwright.sync_api").expect


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
    page.fill("#boosts", f"{word} 9\nzzyzx")
    page.get_by_role("button", name="Use these words").click()
    page.get_by_role("button", name="Clear").click()
    send_file(page, rows)
    assert word in words_on(page)
    expect(page.locator("#boost-notes")).to_contain_text("zzyzx")
