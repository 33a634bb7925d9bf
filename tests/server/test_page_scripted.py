"""The page in a real browser, at a server that does what a script says."""

import re

import numpy as np
import pytest
from scripted_server import OTHER, timed
from served import wait_until

from wfstdec.io.subtitles import srt_text, vtt_text
from wfstdec.search.hypothesis import Word

expect = pytest.importorskip("playwright.sync_api").expect

SHORT = timed(((("one", 0.4, 0.95), ("two", 0.4, 0.62)), (("three", 0.3, 0.3),)))
"""Two utterances in three and a half seconds."""

TIME = r"\d+ ms|\d+\.\d\d s"

RECORD_PLAYED = """
window.played = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function () {
  played.push([this.buffer.sampleRate, ...this.buffer.getChannelData(0)]);
  start.call(this);
};
"""


@pytest.fixture
def short(scripted):
    scripted.script.utterances = SHORT
    return scripted


def listen_until(page, text):
    page.get_by_role("button", name="Listen").click()
    word = page.locator("#transcript .word").filter(has_text=text)
    expect(word.first).to_be_visible(timeout=60000)


def end(page):
    page.locator("#listen").click()
    expect(page.locator("#listen")).to_have_text("Listen", timeout=60000)


def words_of(page):
    return page.locator("#transcript .word").all_inner_texts()


def places_in_file(samples, wanted, size):
    """Where in `wanted` the pieces of `size` samples begin that can be found there.

    In pieces, since the browser's microphone leaves out samples on a busy machine: a
    piece with a gap in it is found nowhere.
    """
    pieces = samples[: len(samples) // size * size].reshape(-1, size).astype(float)
    padded = 1 << int(np.ceil(np.log2(size + len(wanted))))
    spectrum = np.fft.rfft(wanted, padded)
    places = []
    for piece in pieces[pieces.std(1) > 0]:
        likeness = np.fft.irfft(spectrum * np.fft.rfft(piece, padded).conj())
        at = int(likeness[: len(wanted) - size].argmax())
        if np.corrcoef(piece, wanted[at : at + size])[0, 1] > 0.9:
            places.append(at)
    return places


@pytest.mark.parametrize(("scheme", "is_light"), [("light", False), ("dark", True)])
def test_the_waveform_has_the_colours_of_the_scheme(short, open_page, scheme, is_light):
    page = open_page(short.address)
    page.emulate_media(color_scheme=scheme)
    listen_until(page, "three")
    end(page)
    darkest = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas");
            const pen = canvas.getContext("2d");
            const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
            const all = [...data.keys()].filter((i) => i % 4 === 3 && data[i] === 255);
            return Math.min(...all.map((i) => data[i - 2]));
        }"""
    )
    assert (darkest > 40) == is_light


def test_what_is_said_is_heard_and_played_again(short, open_page, heard):
    page = open_page(short.address, RECORD_PLAYED)
    listen_until(page, "three")
    end(page)
    assert words_of(page) == ["one", "two", "three"]
    [stream] = short.script.streams
    assert stream.query["encoding"] == "linear16"
    assert stream.rate == page.evaluate("new AudioContext().sampleRate")

    wanted = np.interp(
        np.arange(8 * stream.rate) / stream.rate, np.arange(len(heard)) / 48000, heard
    )
    found = places_in_file(stream.samples[: 2 * stream.rate], wanted, stream.rate // 20)
    assert len(found) > 20, found
    assert found == sorted(found)

    # A word plays what was sent of it, and Enter plays the next one.
    page.get_by_role("button", name="two", exact=True).click()
    wait_until(lambda: page.evaluate("played.length") == 1)
    word = SHORT[0][1]
    first = int(np.floor((word["start"] - 0.04) * stream.rate))
    last = int(np.ceil((word["end"] + 0.04) * stream.rate))
    rate, *samples = page.evaluate("played[0]")
    assert rate == stream.rate
    assert np.rint(np.array(samples) * 32768).astype(int).tolist() == (
        stream.samples[first:last].tolist()
    )
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "three"
    expect(page.locator("#about-word")).to_contain_text("confidence 0.30")
    page.keyboard.press("Enter")
    wait_until(lambda: page.evaluate("played.length") == 2)
    page.keyboard.press("Escape")
    expect(page.locator(".playing")).to_have_count(0)


def test_words_settle_and_say_how_sure_they_are(short, open_page):
    short.script.held_s = SHORT[0][0]["end"]
    page = open_page(short.address)
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#transcript .open").first).to_contain_text("one")
    look = page.evaluate(
        """() => ["::after", null].map((part) =>
        getComputedStyle(document.querySelector("#transcript .open"), part))
        .map((style) => [style.content, style.color])"""
    )
    assert "…" in look[0][0]  # not by colour alone
    short.script.held_s = float("inf")
    expect(page.locator("#transcript")).to_contain_text("three", timeout=60000)
    end(page)
    lines = page.locator("#transcript .word").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).textDecorationStyle"
        " + ' ' + getComputedStyle(one).textDecorationLine)"
    )
    assert lines == ["solid none", "dashed underline", "wavy underline"]
    expect(page.locator("#transcript .open:not(:empty)")).to_have_count(0)
    readings = page.locator(".readings")
    expect(readings).to_have_count(2)
    readings.first.locator("summary").click()
    expect(readings.first.locator("mark")).to_have_text(OTHER)
    expect(readings.first.locator("li")).to_contain_text("+1.50 nats")
    assert page.locator("#announcer p").all_inner_texts() == ["one two", "three"]
    assert re.fullmatch(TIME, page.locator("#final-meter").inner_text())
    assert re.fullmatch(TIME, page.locator("#trip-meter").inner_text())


def test_boosts_are_sent_under_way_and_unknown_words_shown(short, open_page):
    short.script.unknown = ("zzyzx",)
    page = open_page(short.address)
    page.get_by_label("One word or phrase a line").fill("# names\nbartley = 4")
    page.get_by_role("button", name="Use these words").click()
    listen_until(page, "one")
    page.fill("#boosts", "zzyzx\nnew  york\nbartley = 4.5\nnew york\t-2\nroute 66\n")
    page.locator("#boosts").press("Control+Enter")
    expect(page.locator("#boosts-state")).to_have_text("In use")
    notes = page.locator("#boost-notes li")
    assert notes.all_inner_texts() == [
        "Line 4: “new york” occurs twice; this line counts.",
        "Line 5: “route 66” is a phrase; write “= number” for a bonus.",
        "boost: 'zzyzx' is unknown",
    ]
    end(page)
    assert [(sent["keyterms"], sent["boosts"]) for sent in short.script.configured] == [
        ([], {"bartley": 4}),
        (["zzyzx", "route 66"], {"bartley": 4.5, "new york": -2}),
    ]


@pytest.mark.share(keep=2)
@pytest.mark.parametrize("code", [1001, 1006, 1011, 1013])
def test_after_a_cut_what_was_not_final_is_heard_again(short, open_page, code):
    # "one" is final at 0.65 s; the rest comes on the second stream, whose time begins
    # there.
    short.script.closes, short.script.close_s = [code], 1.15
    short.script.later = timed(((("two", 0.4, 0.9), ("three", 0.3, 0.9)),))
    page = open_page(short.address)
    listen_until(page, "three")
    end(page)
    assert words_of(page) == ["one", "two", "three"]
    one, two = short.script.streams
    final = round(SHORT[0][0]["end"] * one.rate)
    again = one.samples[final:]
    assert len(again) > 0.3 * one.rate
    assert np.array_equal(two.samples[: len(again)], again)
    page.get_by_role("button", name="two", exact=True).click()
    start = SHORT[0][0]["end"] + short.script.later[0][0]["start"]
    expect(page.locator("#about-word")).to_contain_text(f"{start:.2f} to")
    expect(page.locator("#trouble")).to_be_hidden()


def test_a_refused_stream_ends_in_a_sentence(short, open_page):
    short.script.closes, short.script.close_s = [1008], 0.5
    page = open_page(short.address)
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#trouble p")).to_have_text(
        "The server refused this stream: as scripted."
    )
    expect(page.locator("#listen")).to_have_text("Listen")
    assert len(short.script.streams) == 1
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#trouble")).to_be_hidden()


def test_a_server_that_has_gone_is_said_so(short, open_page):
    page = open_page(
        short.address,
        "const later = setTimeout; window.setTimeout ="
        "(call, ms) => later(call, ms >= 500 && ms < 9000 ? 20 : ms);",
    )
    short.stop()
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#trouble p")).to_have_text(
        "The server cannot be reached. 6 more attempts failed. The words so far are "
        "kept."
    )
    expect(page.locator("#listen")).to_have_text("Listen")
    page.complaints.clear()  # the browser's own lines about connections


def test_a_wrong_key_and_the_right_one(short, open_page):
    short.script.key = "sesame"
    page = open_page(short.address)
    expect(page.locator("#key-field")).to_be_focused()
    expect(page.locator("#trouble")).to_be_hidden()
    for key, text in (("open", "rejects this key"), ("sesame", "")):
        page.get_by_label("This server requires a key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#trouble p")).to_contain_text(text)
    expect(page.locator("#key-form")).to_be_hidden()
    listen_until(page, "one")
    end(page)
    page.set_input_files("#files", {"name": "a", "mimeType": "", "buffer": b"abc"})
    expect(page.locator(".recording").last).to_contain_text("three")
    page.complaints.clear()  # the browser's own lines about 401


WITHOUT = {
    "https://": "Object.defineProperty(window, 'isSecureContext', {value: false});",
    "not give one": "Object.defineProperty(navigator, 'mediaDevices', {value: 0});",
    "was refused": "NotAllowedError",
    "none is connected": "NotFoundError",
    "another program": "NotReadableError",
}


@pytest.mark.parametrize("sentence", WITHOUT)
def test_without_a_microphone_a_sentence(short, open_page, sentence):
    script = WITHOUT[sentence]
    if script.endswith("Error"):
        script = (
            "navigator.mediaDevices.getUserMedia = () =>"
            f"Promise.reject(new DOMException('no', '{script}'));"
        )
    page = open_page(short.address, script)
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#trouble p")).to_contain_text(sentence)
    expect(page.locator("#listen")).to_have_text("Listen")
    assert not short.script.streams


def word_of(text, start_s, end_s):
    return Word(text, start_s, end_s, round(50 * start_s), round(50 * end_s))


def drop(page, file, data):
    page.evaluate(
        """([file, data]) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(data)], file));
        for (const type of ["dragover", "drop"]) {
          const how = { dataTransfer, cancelable: true, bubbles: true };
          const event = new DragEvent(type, how);
          document.body.dispatchEvent(event);
          if (!event.defaultPrevented) throw new Error(type);
        }
    }""",
        [file, list(data)],
    )


def test_a_dropped_file_is_words_and_subtitles(short, open_page):
    short.script.unknown = ("zzyzx",)
    page = open_page(short.address)
    page.fill("#boosts", "zzyzx=3\nnew york")
    page.get_by_role("button", name="Use these words").click()
    drop(page, "talk.wav", b"sound")
    expect(page.locator(".recording h2")).to_have_text("talk.wav")
    expect(page.locator(".utterance")).to_have_count(2)
    expect(page.locator("#boost-notes")).to_contain_text("'zzyzx' is unknown")
    assert words_of(page) == ["one", "two", "three"]
    [form] = short.script.forms
    assert form["bytes"] == 5 and form["response_format"] == "verbose_json"
    assert form["boosts"] == '{"zzyzx":3,"new york":null}'
    words = [word_of(w["word"], w["start"], w["end"]) for event in SHORT for w in event]
    forms = {"SRT": srt_text(words), "VTT": vtt_text(words)}
    for kind, text in (forms | {"Text": "one two\nthree\n"}).items():
        page.get_by_role("button", name=f"Copy as {kind}").click()
        expect(page.locator("#condition")).to_have_text(f"Copied as {kind}")
        assert page.evaluate("navigator.clipboard.readText()") == text
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".recording")).to_have_count(0)
    expect(page.locator("#empty")).to_be_visible()


def test_refused_files_say_why(short, open_page):
    page = open_page(short.address)
    short.script.refuses = [
        (415, "'a.txt' is no audio, expected WAV", "file", {}),
        (503, "64 requests wait", None, {"Retry-After": "1"}),
        (400, "nbest 4, expected 1", "nbest", {}),
    ]
    for file in ("a.txt", "full.wav", "plain.wav"):
        drop(page, file, b"x")
    parts = page.locator(".recording")
    expect(parts.nth(0)).to_contain_text("'a.txt' is no audio, expected WAV")
    expect(parts.nth(1)).to_contain_text("three")
    expect(parts.nth(2)).to_contain_text("three")
    asked = [form.get("nbest") for form in short.script.forms]
    assert asked == ["4", "4", "4", None, None]
    page.complaints.clear()  # the browser's own lines about statuses


def test_subtitles_are_cut_as_the_server_cuts_them(short, open_page):
    page = open_page(short.address)
    random = np.random.default_rng(5)
    for _ in range(40):
        at, words = 0.0, []
        for _ in range(random.integers(1, 60)):
            at += random.choice(
                [0.02, 0.1, 0.78, 0.8, 0.82, 2.0], p=[0.4, 0.3, *[0.075] * 4]
            )
            takes = random.choice([0.02, 0.2, 0.36, 1.5])
            text = random.choice(
                ["a", "the", "é<b>&", "counterrevolutionary", "x" * 50]
            )
            words.append(word_of(str(text), round(at, 3), round(at + takes, 3)))
            at = words[-1].end_s
        given = [{"text": w.text, "start": w.start_s, "end": w.end_s} for w in words]
        for kind, text in (("srt", srt_text(words)), ("vtt", vtt_text(words))):
            assert page.evaluate(f"words => wfstdecPage.{kind}(words)", given) == text


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_scrolls_sideways_moves_or_is_too_small(short, open_page, width):
    page = open_page(
        short.address, viewport={"width": width, "height": 800}, reduced_motion="reduce"
    )
    page.evaluate(
        "document.querySelectorAll('.side details').forEach(d => d.open = true)"
    )
    page.fill("#boosts", "antidisestablishmentarianism" * 4)
    listen_until(page, "two")
    drop(page, "a-name-without-any-place-to-break-" * 4 + ".wav", b"sound")
    expect(page.locator(".recording").last).to_contain_text("three")
    assert page.evaluate("document.getAnimations().length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.locator("button:visible").evaluate_all(
        "all => all.filter((one) => one.getBoundingClientRect().height < 24)"
        ".map((one) => one.textContent)"
    )
    assert not small
    end(page)


def test_everything_is_reached_by_keyboard(short, open_page):
    page = open_page(short.address, viewport={"width": 1440, "height": 900})
    drop(page, "talk.wav", b"sound")
    expect(page.locator(".recording")).to_contain_text("three")
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, line = page.evaluate(
            "[document.activeElement.textContent.trim() || document.activeElement.id,"
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        if page.evaluate("document.activeElement === document.body"):
            break
        assert line == "solid", name
        reached.append(name)
    wanted = ["Listen", "Open files…", "Clear", "Words to expect", "boosts"]
    wanted += ["Use these words", "Timing", "Word", "How to read it"]
    wanted += ["Text", "SRT", "VTT", "0:00", "one", "0:02"]
    assert reached == wanted


def test_the_page_takes_no_name_of_the_window(short, open_page):
    page = open_page(short.address)
    ids = page.locator("[id]").evaluate_all("all => all.map((one) => one.id)")
    page.goto("about:blank")
    assert page.evaluate("ids => ids.filter((id) => id in window)", ids) == []


@pytest.mark.parametrize(
    "other, shown",
    [
        ("one two", "one two (three) +1.00 nats"),
        ("one four three", "one [four] three +1.00 nats"),
        ("one three", "one (two) three +1.00 nats"),
        ("zero one two three", "[zero] one two three +1.00 nats"),
        ("four five", "[four five] +1.00 nats"),
        ("", "no word +1.00 nats"),
    ],
)
def test_readings_mark_what_differs(scripted, open_page, other, shown):
    spans = [["one", 0.2, 0.9], ["two", 0.2, 0.9], ["three", 0.2, 0.9]]
    [words] = scripted.script.utterances = timed((spans,))
    times = {one["word"]: one for one in words}
    at = {"start": 0.4, "end": 0.5}
    scripted.script.hypotheses = [
        {
            "text": text,
            "total_cost": cost,
            "words": [
                {"word": one, **at, **times.get(one, {})} for one in text.split()
            ],
        }
        for text, cost in (("one two three", 3.0), (other, 4.0), (other, 5.0))
    ]
    page = open_page(scripted.address)
    drop(page, "talk.wav", b"sound")
    page.locator(".readings summary").click()
    line = page.locator(".readings li")
    expect(line).to_have_count(1)
    assert shown == line.evaluate(
        """line => {
        for (const [tag, left, right] of [["mark", "[", "]"], ["del", "(", ")"]]) {
          for (const one of line.querySelectorAll(tag)) {
            one.prepend(left);
            one.append(right);
          }
        }
        return line.innerText.replace(/\\s+/g, " ").trim();
    }"""
    )
