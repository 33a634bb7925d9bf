"""The engine: any streams in any company give what `decode` gives between endpoints."""

import io
import threading
import time

import numpy as np
import pytest
from row_streams import SHIFT_S, Events, bytes_of, check_utterances, random_cuts
from served import wait_until

from tools.bench.row_encoder import RowEncoder, StreamingRowEncoder
from wfstdec.batch import LatticeReading
from wfstdec.batch.decoding import rating
from wfstdec.errors import AudioError, BoostError, LimitError, LogprobError
from wfstdec.search.endpoints import Signal
from wfstdec.server.engine import Engine, Metrics
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service
from wfstdec.server.stream import (
    BoostsChanged,
    SpeechStarted,
    StreamSettings,
    UtteranceEnd,
    Words,
    rules_with_silence,
)

LISTS = (None, ["bartley"], {"i": 2.0, "was wrong": 3.0}, ["understand", "he"])


@pytest.fixture
def make_engine(decoder):
    engines = []

    def make(model, limits=None, **more):
        metrics = Metrics()
        engine = Engine(model, decoder, limits or Limits(), metrics, **more)
        engine.sample = metrics.registry.get_sample_value
        engines.append(engine)
        engine.start()
        return engine

    yield make
    for engine in engines:
        engine.stop()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("wfstdec-")], names


def wait_for(takers):
    wait_until(lambda: all(taker.finished is not None for taker in takers), 60)


class Talker:
    def __init__(self, engine, rows, seed, *, wishes=True):
        self.rng, self.rows = np.random.default_rng(seed), rows
        boosts = LISTS[self.rng.integers(len(LISTS))] if wishes else None
        interims = bool(self.rng.integers(2))
        self.taker = Events(boosts)
        if boosts is not None:
            self.taker.lists.append(boosts)
        settings = StreamSettings("linear16", boosts=boosts, interims=interims)
        self.stream = engine.open(settings, self.taker.take)
        self.wishes, self.messages = wishes, self._messages()

    def _messages(self):
        data, row_bytes = bytes_of(self.rows), 640
        parts = (
            random_cuts(self.rng, len(self.rows), 4)
            if self.wishes
            else [len(self.rows)]
        )
        at = 0
        for part in parts:
            piece = data[at * row_bytes : (at + part) * row_bytes]
            at += part
            first = 0
            for size in random_cuts(self.rng, len(piece), 12):
                yield piece[first : first + size]
                first += size
            if at < len(self.rows) and self.rng.random() < 0.5:
                yield "flush"
            if at < len(self.rows) and self.rng.random() < 0.5:
                yield LISTS[self.rng.integers(len(LISTS))] or []

    def send_one(self):
        message = next(self.messages, None)
        if message is None:
            self.stream.finish()
            return False
        if isinstance(message, bytes):
            self.stream.send(message)
        elif message == "flush":
            self.stream.flush()
        else:
            self.taker.lists.append(message)
            self.stream.change_boosts(message)
        return True


KINDS = {
    "best": {},
    "list": {"nbest": 4},
    "confidence": {"confidence": True, "nbest": 2},
    "two passes": {},
    "two passes, list": {"nbest": 3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_streams_give_what_decode_gives(kind, decoder, encoder, speech, make_engine):
    tokens, options = encoder.spec.tokens, KINDS[kind]
    model = RowEncoder(tokens) if kind.startswith("two") else encoder
    engine = make_engine(model, **options)
    rng = np.random.default_rng(7)
    talkers = [
        Talker(engine, speech(rng.uniform(2, 14), seed), seed) for seed in range(10)
    ]
    left = list(talkers)
    while left:
        one = left[rng.integers(len(left))]
        if not one.send_one():
            left.remove(one)
        time.sleep(rng.choice([0, 0, 0.01]))
    wait_for([one.taker for one in talkers])

    lister = decoder.with_options(nbest=options.get("nbest", 1))
    reading = LatticeReading(nbest=options.get("nbest", 1), confidence=True)

    def decode(rows, boosts):
        if options.get("confidence"):
            [lattice] = decoder.decode_lattice([rows], boosts=[boosts])
            return rating(reading, rows, decoder.tokens.blank)("", lattice)
        if options.get("nbest"):
            return lister.decode_nbest([rows], boosts=[boosts])[0]
        return decoder.decode([rows], boosts=[boosts])

    num_words = 0
    for one in talkers:
        assert one.taker.finished.error is None and not one.taker.lists
        assert one.taker.finished.audio_s == pytest.approx(len(one.rows) * SHIFT_S)
        num_words += check_utterances(one.taker, one.rows, decode)
    assert num_words > 100
    assert not len(engine)


def test_interims_and_events_of_an_utterance(encoder, speech, make_engine):
    engine = make_engine(encoder)
    taker = Events()
    settings = StreamSettings(
        "linear16", interims=True, speech_started=True, utterance_end_s=1.0
    )
    stream = engine.open(settings, taker.take)
    rows = speech(12, 3)
    for first in range(0, len(rows), 20):
        before = engine.sample("wfstdec_audio_seconds_total")
        stream.send(bytes_of(rows[first : first + 20]))
        wait_until(lambda: engine.sample("wfstdec_audio_seconds_total") > before)  # noqa: B023
    stream.finish()
    wait_for([taker])
    words = [event for event in taker.events if isinstance(event, Words)]
    assert sum(not event.is_final for event in words) > 10
    assert sum(event.is_final and not event.ends_utterance for event in words) >= 1
    begun = [event.at_s for event in taker.events if isinstance(event, SpeechStarted)]
    assert begun == sorted(begun) and len(begun) >= 1
    ends = [e.last_word_end_s for e in taker.events if isinstance(e, UtteranceEnd)]
    last_words = {w.end_s for _, words, _ in taker.utterances for w in words}
    assert len(ends) == len(set(ends)) and set(ends) <= last_words


@pytest.mark.parametrize("kind", [StreamingRowEncoder, RowEncoder])
@pytest.mark.parametrize("size", [5, 40, 600])
def test_speech_starts_before_its_words_and_signals(
    kind, size, decoder, speech, make_engine
):
    engine, rows = make_engine(kind(decoder.graph.tokens)), speech(12, 5)
    taker = Events()
    settings = StreamSettings("linear16", endpoint_silence_s=0.1, speech_started=True)
    stream = engine.open(settings, taker.take)
    for first in range(0, len(rows), size):
        before = engine.sample("wfstdec_audio_seconds_total")
        stream.send(bytes_of(rows[first : first + size]))
        wait_until(lambda: engine.sample("wfstdec_audio_seconds_total") > before)  # noqa: B023
    stream.finish()
    wait_for([taker])
    has_started = False
    for event in taker.events:
        if isinstance(event, SpeechStarted):
            assert not has_started
            has_started = True
        elif isinstance(event, Words):
            assert has_started or not (event.words or isinstance(event.rule, Signal))
            has_started = has_started and not event.ends_utterance
    assert len(taker.utterances) > 2


def test_silence_that_a_client_asks_for(encoder, speech, make_engine):
    """Pauses of 0.8 s: half a second ends utterances, three do not."""
    engine, rows, counts = make_engine(encoder), speech(30, 5), []
    for silence_s in (0.5, 3.0, float("inf")):
        taker = Events()
        settings = StreamSettings("linear16", endpoint_silence_s=silence_s)
        stream = engine.open(settings, taker.take)
        stream.send(bytes_of(rows))
        stream.finish()
        wait_for([taker])
        counts.append(len(taker.utterances))
    assert counts[0] > counts[1] >= counts[2] == 2  # one cut at 20 s


@pytest.mark.parametrize("kind", [StreamingRowEncoder, RowEncoder])
def test_short_endpointing_signals_and_cuts_at_the_floor(
    kind, decoder, speech, make_engine
):
    """Cuts and words are those of the floor, however short the silence."""
    engine, rows, found = make_engine(kind(decoder.graph.tokens)), speech(30, 5), {}
    for silence_s in (0.01, 0.1, 0.3, 0.4):
        taker = Events()
        stream = engine.open(
            StreamSettings("linear16", endpoint_silence_s=silence_s), taker.take
        )
        stream.send(bytes_of(rows))
        stream.finish()
        wait_for([taker])
        check_utterances(taker, rows, lambda rows, _: decoder.decode([rows]))
        finals = [one for one in taker.events if isinstance(one, Words)]
        ends = [one for one in finals if one.ends_utterance]
        # A pause that was signalled is not signalled again, unless words were open.
        assert all(one.is_endpoint for one in ends if one.words)
        signals = sum(one.is_endpoint for one in finals)
        found[silence_s] = signals, [one.hypotheses[0].text for one in ends]
    counts, texts = zip(*found.values(), strict=True)
    assert texts == (texts[-1],) * 4
    assert counts[0] > counts[1] > counts[2] >= counts[3] == len(texts[-1])


def test_signals_stay_signals():
    for rule in (Signal(length_s=20.0), Signal(1.5, needs_speech=False), Signal(0.7)):
        assert all(isinstance(r, Signal) for r in rules_with_silence([rule], 0.1))


def test_each_flush_has_one_answer(encoder, speech, make_engine):
    engine, taker = make_engine(encoder), Events()
    stream = engine.open(StreamSettings("linear16"), taker.take)
    stream.flush()
    stream.send(bytes_of(speech(3, 1)))
    stream.flush()
    stream.flush()
    stream.finish()
    wait_for([taker])
    answers = [e for e in taker.events if isinstance(e, Words) and e.is_answer]
    assert [bool(answer.words) for answer in answers] == [False, True, False]


def test_boosts_that_are_wrong_leave_the_stream_alone(encoder, speech, make_engine):
    engine, taker = make_engine(encoder), Events()
    stream = engine.open(StreamSettings("linear16"), taker.take)
    stream.send(bytes_of(speech(2, 1)))
    stream.change_boosts({"bartley": float("nan")})
    taker.lists.append(["zzyzx"])
    stream.change_boosts(["zzyzx"])
    stream.finish()
    wait_for([taker])
    refused, unknown = [e for e in taker.events if isinstance(e, BoostsChanged)]
    assert isinstance(refused.error, BoostError)
    assert "zzyzx" in unknown.warnings[0] and taker.finished.error is None

    taker = Events()
    engine.open(StreamSettings("linear16", boosts={"a": float("nan")}), taker.take)
    wait_for([taker])
    assert isinstance(taker.finished.error, BoostError)


def test_faults_of_one_stream_are_its_own(decoder, encoder, speech, make_engine):
    """A model that fails, rows that are no log-probs, bytes that are no audio."""
    tokens = encoder.spec.tokens

    class Spoilt(StreamingRowEncoder):
        def step(self, states, chunks, last):
            found = super().step(states, chunks, last)
            return [np.where(rows > 2000, np.nan, rows) for rows in found]

    class Failing(RowEncoder):
        def encode(self, waveforms):
            found = super().encode(waveforms)
            if any((rows > 2000).any() for rows in found):
                raise RuntimeError("the network is on fire")
            return found

    poison = np.full(320 * 20, 32767, "<i2").tobytes()
    for kind, error in ((Spoilt, LogprobError), (Failing, RuntimeError)):
        engine = make_engine(kind(tokens))
        good = [
            Talker(engine, speech(6, seed), seed, wishes=False) for seed in range(4)
        ]
        taker = Events()
        bad = engine.open(StreamSettings("linear16"), taker.take)
        bad.send(poison)
        for one in good:
            while one.send_one():
                pass
        bad.finish()
        wait_for([taker, *(one.taker for one in good)])
        assert isinstance(taker.finished.error, error)
        for one in good:
            assert one.taker.finished.error is None
            check_utterances(
                one.taker, one.rows, lambda rows, _: decoder.decode([rows])
            )
    taker = Events()
    stream = engine.open(StreamSettings(None), taker.take)
    stream.send(b"this is no audio at all" * 100)
    stream.finish()
    wait_for([taker])
    assert isinstance(taker.finished.error, AudioError)


def test_limits_draining_and_stopping(encoder, speech, make_engine):
    engine = make_engine(encoder, Limits(streams=2))
    takers = [Events(), Events()]
    streams = [engine.open(StreamSettings("linear16"), taker.take) for taker in takers]
    with pytest.raises(LimitError, match="--max-streams"):
        engine.open(StreamSettings("linear16"), print)
    assert engine.sample("wfstdec_refused_total", {"reason": "full"}) == 1
    for stream in streams:
        stream.send(bytes_of(speech(3, 2)))
    engine.drain()
    wait_for(takers)
    assert all(taker.utterances[-1][1] for taker in takers)
    with pytest.raises(LimitError, match="about to stop"):
        engine.open(StreamSettings("linear16"), print)


def test_warming_leaves_no_stream(encoder, make_engine):
    engine = make_engine(encoder, Limits(streams=1))
    engine.warm()
    assert not len(engine) and not len(engine._resources.sessions)


def test_stopping_ends_all_threads_and_streams(decoder, encoder, speech):
    before = set(threading.enumerate())
    engine = Engine(encoder, decoder, Limits(), Metrics())
    engine.start()
    takers = [Events() for _ in range(4)]
    for taker in takers:
        stream = engine.open(StreamSettings("linear16"), taker.take)
        stream.send(bytes_of(speech(6, 1)))
    engine.open(StreamSettings(None), print).send(b"OggS" + bytes(20))
    wait_until(lambda: all(taker.events for taker in takers))
    engine.stop()
    engine.stop()
    assert not len(engine) and all(taker.finished is None for taker in takers)

    def left():
        names = [t.name for t in set(threading.enumerate()) - before]
        return [name for name in names if name != "tqdm_monitor"]

    wait_until(lambda: not left())  # FFmpeg's thread ends by itself


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_containers_give_what_decode_gives(form, decoder, encoder, speech, make_engine):
    """Containers are cut anywhere; what comes behind a flush is another utterance."""
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("av")
    rows, file, rng = speech(9, 4), io.BytesIO(), np.random.default_rng(5)
    samples = np.frombuffer(bytes_of(rows), "<i2")
    soundfile.write(file, samples, 16000, format=form, subtype="PCM_16")
    data, taker = file.getvalue(), Events()
    stream = make_engine(encoder).open(StreamSettings(None, interims=True), taker.take)
    flush_at = 44 + 640 * 200 if form == "WAV" else None  # a head, and whole rows
    for part in (data[:flush_at], data[flush_at or len(data) :]):
        first = 0
        for size in random_cuts(rng, len(part), 15):
            stream.send(part[first : first + size])
            first += size
        if first == flush_at:
            stream.flush()
    stream.finish()
    wait_for([taker])
    assert taker.finished.error is None
    assert check_utterances(taker, rows, lambda r, _: decoder.decode([r])) > 10
    answers = [e for e in taker.events if isinstance(e, Words) and e.is_answer]
    assert len(answers) == (form == "WAV")


def test_warming_up_takes_no_place_of_a_client(encoder, decoder):
    """A worker may start while the others have as many streams as there may be."""
    service = Service(encoder, decoder, Limits(streams=1))
    engine = service.engine
    engine.start()
    try:
        settings = StreamSettings("linear16", 16000)
        stream = engine.open(settings, lambda event: None)
        engine.warm()
        with pytest.raises(LimitError):
            engine.open(settings, lambda event: None)
        stream.abort()
        wait_until(lambda: not len(engine))
    finally:
        service.stop()
