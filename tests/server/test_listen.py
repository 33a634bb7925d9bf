"""`WS /v1/listen`: an unmodified client, many streams to the bit, and rude clients."""

import asyncio
import contextlib
import gc
import json
from urllib.parse import quote

import numpy as np
import pytest
import websockets
from row_streams import SHIFT_S, bytes_of, random_cuts, wav_of
from served import LINEAR16, listened, post_file, serving, wait_until
from websockets.asyncio.client import connect

from wfstdec import WfstDecoder
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service

LIMITS = Limits(streams=64, idle_s=1.5, unread_s=1.5, message_bytes=1 << 16)


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service(encoder, decoder, LIMITS, name="rows", nbest=2)
    with serving(service) as server:
        yield server
        wait_until(lambda: not len(service.engine))


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """After each test all streams are over, and their sessions."""
    yield
    wait_until(lambda: not len(server.service.engine))
    wait_until(lambda: not len(server.service.engine._resources.sessions))


async def listen(server, rows, rng, query="", say=()):
    found = []

    async def read():
        async for text in socket:
            found.append(json.loads(text))

    async with connect(f"{server.ws}/v1/listen?{LINEAR16}{query}") as socket:
        reader = asyncio.create_task(read())
        data, first = bytes_of(rows), 0
        for size in random_cuts(rng, len(data), max(12, len(data) // 30_000)):
            for start in range(first, first + size, 1 << 16):
                part = data[start : min(start + (1 << 16), first + size)]
                await socket.send(part)
            first += size
            if rng.random() < 0.1:
                await asyncio.sleep(rng.choice([0, 0.01]))
        for message in (*say, {"type": "CloseStream"}):
            await socket.send(json.dumps(message))
        await asyncio.wait_for(reader, 60)
    return found, socket.close_code


def results(messages, **fields):
    found = [one for one in messages if one["type"] == "Results"]
    return [x for x in found if all(x.get(key) == v for key, v in fields.items())]


def seconds(frame):
    return round(frame * SHIFT_S, 6)


def check_to_the_bit(messages, rows, decoder):
    """Compare words, times and costs of lists with `decode_nbest` between endpoints."""
    first, begun, end_s, num = 0, [], 0.0, 0
    for result in results(messages, is_final=True):
        assert result["start"] == end_s
        end_s = result["start"] + result["duration"]
        begun += result["channel"]["alternatives"][0]["words"]
        if not result["speech_final"]:
            continue
        end = round(end_s / SHIFT_S)
        expected = decoder.decode_nbest([rows[first:end]])[0] if end > first else []
        if expected:
            assert [(w["word"], w["start"], w["end"]) for w in begun] == [
                (w.text, seconds(w.start_frame + first), seconds(w.end_frame + first))
                for w in expected[0].words
            ]
            costs = [one["cost"] for one in result["channel"]["alternatives"]]
            assert costs == [one.total_cost for one in expected]
        num, first, begun = num + len(begun), end, []
    assert first == len(rows) and not begun
    return num


def test_many_streams_give_what_decode_gives(server, decoder, speech):
    """12 streams of half a minute; others die meanwhile, and one stops reading."""
    streams = [speech(30, seed) for seed in range(12)]

    async def die(seed):
        rng = np.random.default_rng(seed)
        socket = await connect(f"{server.ws}/v1/listen?{LINEAR16}&interim_results=true")
        for _ in range(rng.integers(1, 30)):
            await socket.send(rng.bytes(rng.integers(1, 1 << 15)))
        socket.transport.abort()

    async def stop_reading():
        url = f"{server.ws}/v1/listen?{LINEAR16}&interim_results=true"
        async with connect(url, max_queue=1, close_timeout=1) as socket:
            socket.transport.pause_reading()
            with contextlib.suppress(websockets.ConnectionClosed, OSError):
                while True:
                    await socket.send(bytes_of(streams[0][:50]))

    async def run():
        deaf = asyncio.create_task(stop_reading())
        good = [
            listen(
                *(server, rows, np.random.default_rng(i)),
                query="&interim_results=true" if i % 2 else "",
            )
            for i, rows in enumerate(streams)
        ]
        found = await asyncio.gather(*good, *(die(seed) for seed in range(8)))
        deaf.cancel()
        await asyncio.gather(deaf, return_exceptions=True)
        return found[: len(good)]

    lister = decoder.with_options(nbest=2)
    num_words = 0
    for rows, (messages, code) in zip(streams, asyncio.run(run()), strict=True):
        assert code == 1000
        assert messages[-1]["type"] == "Metadata"
        assert messages[-1]["duration"] == pytest.approx(30)
        num_words += check_to_the_bit(messages, rows, lister)
        for result in results(messages, is_final=False):
            assert result["duration"] >= 0
    assert num_words > 350


def test_a_file_says_itself_what_it_is(server, decoder, speech):
    rows = speech(6, 9)
    whole = wav_of(rows)
    parts = [whole[first : first + 1777] for first in range(0, len(whole), 1777)]
    found, _ = listened(server, *parts, query="")
    assert check_to_the_bit(found, rows, decoder.with_options(nbest=2)) > 5


def test_audio_that_is_none_closes_with_1008(server):
    junk = b"no audio, whatever it says" * 50
    messages, code = listened(server, junk, query="")
    assert code == 1008 and "expected" in json.dumps(messages)


def test_a_message_too_large_closes_with_1009(server):
    assert listened(server, bytes(1 << 18))[1] == 1009


def test_the_full_house_is_closed_before_the_handshake(encoder, decoder):
    service = Service(encoder, decoder, Limits(streams=1))

    async def run():
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}"):
            async with connect(f"{server.ws}/v1/listen?{LINEAR16}"):
                pass

    with serving(service) as server, pytest.raises(websockets.InvalidStatus) as refused:
        asyncio.run(run())
    assert refused.value.response.status_code == 503
    assert "Retry-After" in refused.value.response.headers


def test_key_terms_are_found_in_any_case_and_with_punctuation(server, speech):
    rows = speech(6, 9)
    parts = [bytes_of(part) for part in np.array_split(rows, 8)]

    def finals(*terms):
        query = "&".join((LINEAR16, *terms))
        found = results(listened(server, *parts, query=query)[0], is_final=True)
        best = [one["channel"]["alternatives"][0] for one in found]
        costs = [one["cost"] for one in best if "cost" in one]
        return " ".join(one["transcript"] for one in best), costs

    plain = finals()
    word = max(plain[0].split(), key=len)
    for kind, bonus in (("keyterm", ""), ("keywords", ":-200")):
        one, *others = (
            finals(f"{kind}={form}{bonus}")
            for form in (word, word.title(), word.upper(), f"{word},")
        )
        assert one != plain and others == [one] * 3
        assert bool(bonus) == (word not in one[0].split())
    texts = {
        post_file(server, wav_of(rows), boosts=json.dumps({form: -200})).json()["text"]
        for form in (word, f"{word.title()}!")
    }
    assert len(texts) == 1 and word not in texts.pop().split()


def test_channels_are_decoded_apart(server, decoder, speech):
    """Each is what `decode` gives of it alone, however bytes are cut, and boosted."""
    rows = speech(12, 5), speech(12, 6)
    samples = [np.frombuffer(bytes_of(one), "<i2") for one in rows]
    data = np.stack(samples, 1).tobytes()
    query = f"{LINEAR16}&channels=2&multichannel=true&interim_results=true"
    query += "&vad_events=true"
    cuts = np.cumsum(random_cuts(np.random.default_rng(0), len(data), 200))
    parts = [bytes(one) for one in np.split(np.frombuffer(data, "u1"), cuts)]
    finalize = {"type": "Finalize"}
    configure = {"type": "Configure", "keyterms": []}
    found, code = listened(server, configure, *parts, finalize, query=query)
    assert code == 1000
    lister = decoder.with_options(nbest=2)
    for channel, words in enumerate(rows):
        own = results(found, channel_index=[channel, 2])
        assert own and not all(one["is_final"] for one in own)
        assert check_to_the_bit(own, words, lister) > 5
        assert sum("from_finalize" in one for one in own) == 1
        assert any(one.get("channel") == [channel, 2] for one in found)  # of speech
    [changed] = [one for one in found if one["type"] == "ConfigureSuccess"]
    assert changed["effective"] in ("now", "next_utterance")
    assert found[-1]["channels"] == 2 and found[-1]["duration"] == pytest.approx(12)


def test_streams_have_vocabularies_of_their_own(server, decoder, speech):
    """Next to streams without, and to others that have the same or another one."""
    spoken = decoder.decode([speech(8, 7)])[0].text.split()
    lists = (), (*spoken[:3], " ".join(spoken[3:5]), "[unk]"), tuple(spoken[:8:2])

    async def run():
        queries = ["".join(f"&vocabulary={quote(x)}" for x in one) for one in lists]
        rng = np.random.default_rng(0)
        streams = (
            listen(server, speech(8, i), rng, q) for q in queries for i in (7, 8)
        )
        return await asyncio.gather(*streams)

    texts = set()
    for i, (messages, code) in enumerate(asyncio.run(run())):
        phrases = lists[i // 2]
        own = WfstDecoder.of_phrases(decoder, phrases) if phrases else decoder
        own = own.with_options(nbest=2)
        assert code == 1000
        assert check_to_the_bit(messages, speech(8, 7 + i % 2), own) > 0
        texts.add(str([x["channel"] for x in results(messages, is_final=True)]))
    assert len(texts) == 6 and sum("[unk]" in text for text in texts) == 2
    kept = server.service.engine._resources._restricted
    wait_until(lambda: gc.collect() >= 0 and not kept)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("vocabulary=stop&vocabulary=qwx+zoo", "'qwx'"),
        ("vocabulary=[unk]", "at least one word"),
        (f"vocabulary={'a' * 65}", "65 characters or tokens, expected at most 64"),
        ("vocabulary=", "vocabulary"),
    ],
)
def test_a_vocabulary_that_cannot_be_had(server, query, error):
    with pytest.raises(websockets.InvalidStatus) as refused:
        listened(server, query=f"{LINEAR16}&{query}")
    body = json.loads(refused.value.response.body)
    assert refused.value.response.status_code == 400 and error in str(body)


def test_channels_count_as_streams(encoder, decoder):
    query = f"{LINEAR16}&channels=2&multichannel=true"
    for limit in (1, 2):
        with serving(Service(encoder, decoder, Limits(streams=limit))) as server:
            if limit == 2:
                assert listened(server, bytes(6400), query=query)[1] == 1000
                continue
            with pytest.raises(websockets.InvalidStatus) as refused:
                listened(server, query=query)
            assert refused.value.response.status_code == 503
            wait_until(lambda: not len(server.service.engine))


def test_alternatives_are_at_most_those_asked_for(server, speech):
    def alternatives(query):
        parts = [bytes_of(part) for part in np.array_split(speech(6, 9), 8)]
        found, _ = listened(server, *parts, query=LINEAR16 + query)
        lists = [one["channel"]["alternatives"] for one in results(found)]
        return max(map(len, lists)), found[-1]["warnings"]

    assert alternatives("") == (2, [])
    assert alternatives("&alternatives=1") == (1, [])
    num, [warning] = alternatives("&alternatives=5&multichannel=true")
    assert num == 2 and "alternatives=5, the server returns 2" in warning
