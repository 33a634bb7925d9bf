"""The page in a real browser at a real server, with a model of rows behind it."""

import pytest
from row_streams import wav_of
from served import serving

from wfstdec.server.service import Service

expect = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service(encoder, decoder, nbest=3, confidence=True)
    with serving(service) as server:
        yield server


@pytest.fixture(scope="module")
def one_more_word(decoder, speech):
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


def test_words_of_a_file_and_a_boosted_one(server, open_page, one_more_word):
    rows, text, word = one_more_word
    page = open_page(server.url)
    send_file(page, rows)
    assert " ".join(words_on(page)) == text
    page.locator("#transcript .word").first.click()
    page.wait_for_selector("#transcript .word.playing")
    if not page.locator("#boosts").is_visible():  # folded where there is no room
        page.locator("#boosts-part summary").click()
    page.fill("#boosts", f"{word} = 9\nzzyzx")
    page.get_by_role("button", name="Use these words").click()
    page.get_by_role("button", name="Clear").click()
    send_file(page, rows)
    assert word in words_on(page)
    expect(page.locator("#boost-notes")).to_contain_text("zzyzx")


def test_what_the_microphone_hears_is_streamed(server, open_page):
    """Noise, of which the model of rows makes any words."""
    page = open_page(server.url)
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#transcript .word").first).to_be_visible(timeout=60000)
    page.locator("#listen").click()
    expect(page.locator("#listen")).to_have_text("Listen", timeout=60000)
    expect(page.locator("#trouble")).to_be_hidden()
