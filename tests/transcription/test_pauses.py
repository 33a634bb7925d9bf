"""Cuts of audio by its level, for decoders of whole utterances."""

import numpy as np
import pytest

from wfstdec.models.encoder import EncoderSpec
from wfstdec.search.endpoints import EndpointRule
from wfstdec.text.tokens import token_table
from wfstdec.transcription.pauses import EnergyEncoder, PauseSessions
from wfstdec.transcription.pieces import CutOptions, PieceCutter

SPEC = EncoderSpec(token_table(["<blank>", "a"]), 0.02, 16000, family="attention")


def speech(*parts, noise_db=-50, seed=0):
    """Loud and quiet parts in turn, seconds each, above a noise."""
    random = np.random.default_rng(seed)
    found = []
    for i, part in enumerate(parts):
        level = 0.1 if i % 2 == 0 else 0.0
        sound = random.standard_normal(round(part * 16000))
        noise = random.standard_normal(len(sound)) * 10 ** (noise_db / 20)
        found.append(level * sound + noise)
    return np.concatenate(found).astype(np.float32)


def test_levels_do_not_depend_on_chunks():
    sound = speech(1.003, 0.5, 0.7)
    encoder = EnergyEncoder(SPEC)
    [whole] = encoder.encode([sound])
    assert whole.shape == (-(-len(sound) // 320), 1)
    frame = sound[320 * 20 : 320 * 21]
    expected = 10 * np.log10(np.square(frame, dtype=float).mean())
    assert whole[20, 0] == pytest.approx(expected, abs=1e-3)
    state, parts = encoder.start(), np.array_split(sound, 13)
    rows = [
        encoder.step([state], [part], [i == len(parts) - 1])[0]
        for i, part in enumerate(parts)
    ]
    np.testing.assert_allclose(np.concatenate(rows), whole, atol=1e-4)


def test_frames_of_a_shift_that_is_no_whole_number_do_not_drift():
    spec = EncoderSpec(SPEC.tokens, 0.0213, 16000)
    [rows] = EnergyEncoder(spec).encode([np.zeros(160000, np.float32)])
    assert len(rows) == int(np.ceil(10 / 0.0213))


@pytest.mark.parametrize("noise_db", [-90, -50, -38])
def test_pauses_are_found_at_any_level_of_noise(noise_db):
    sessions = PauseSessions(SPEC)
    [rows] = EnergyEncoder(SPEC).encode([speech(1, 0.6, 2, 1.5, noise_db=noise_db)])
    session = sessions.open()
    sessions.advance({session: rows})
    partial = sessions.partial(session)
    found = [(word.start_frame, word.end_frame) for word in partial.words]
    for got, expected in zip(found, [(0, 50), (80, 180)], strict=True):
        assert got == pytest.approx(expected, abs=4)
    assert partial.silent_frames == pytest.approx(75, abs=4)
    sessions.close(session)
    assert session not in sessions


def test_nothing_is_loud_in_silence():
    sessions = PauseSessions(SPEC)
    session = sessions.open()
    sessions.advance({session: np.full((500, 1), -120, np.float32)})
    assert sessions.partial(session).words == ()
    assert sessions.partial(session).silent_frames == 500


def cuts_of(sound, **options):
    cuts = CutOptions(**options)
    cutter = PieceCutter(PauseSessions(SPEC), cuts, SPEC)
    cutter.push_audio(sound)
    cutter.push_rows(EnergyEncoder(SPEC).encode([sound])[0])
    return [*cutter.search(), cutter.end()]


def test_long_audio_is_cut_in_pauses():
    """By rules of silence, and in the widest pause where none holds."""
    lengths = [6.5, 0.5, 7.0, 0.9, 8.0, 0.5, 5.0]
    sound = speech(*lengths)
    pieces = cuts_of(sound)
    inside = [sum(lengths[:i]) + lengths[i] / 2 for i in (1, 3, 5)]
    found = [piece.start_frame * 0.02 for piece in pieces[1:]]
    assert found and all(min(abs(a - b) for b in inside) < 0.4 for a in found)
    assert sum(len(piece.waveform) for piece in pieces) == len(sound)
    rules = [EndpointRule(length_s=10.0, needs_speech=False)]
    pieces = cuts_of(speech(6.0, 0.3, 1.0, 0.1, 8.0), rules=rules)
    assert pieces[1].start_frame * 0.02 == pytest.approx(6.15, abs=0.2)
