"""Lattices of the trie decoder from every backend, bit for bit, and what reads them."""

import io
import math
from dataclasses import replace

import naive_search_cases
import numpy as np
import pytest
from arpa_texts import arpa_of
from lattice_searches import bits
from naive_search_cases import LEXICON, hand, says
from reference_backends import HOST_BACKENDS
from trie_lattices import lattice_by
from trie_searches import draw
from wfst_searches import random_splits

from wfstdec import (
    Lexicon,
    NgramLM,
    OpenVocabulary,
    TrieDecoder,
    TrieOptions,
    read_arpa,
    token_table,
)
from wfstdec.batch import LatticeReading
from wfstdec.compare.quality import lattice_errors
from wfstdec.errors import LatticeError, OptionError
from wfstdec.lattice import open_lattices, rescored, save_lattices, weighed
from wfstdec.lattice.arrays import check_lattice
from wfstdec.trie.cpu.backend import CpuBackend, RecordingSearch

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]


@pytest.mark.parametrize("name", HOST_BACKENDS)
def test_a_lattice_by_hand(name):
    """Two words of two letters, of which the first is one."""
    decoder = TrieDecoder(
        tokens=token_table(["-", "a", "b"]),
        lexicon=Lexicon(("a", "ab"), ((1,), (1, 2)), np.array([0.5, 0.25], "f4")),
        options=TrieOptions(word_insertion=1.0, token_insertion=0.125),
        backend=name,
        frame_shift_s=0.25,
    )
    with np.errstate(divide="ignore"):
        x = np.log(np.array([[0, 1, 0], [0.5, 0, 0.5]], np.float32))
    (lattice,) = decoder.decode_lattice([x], lattice_beam=4.0)
    check_lattice(lattice)
    assert lattice.states["frame"].tolist() == [0, 1, 2, 2, 2]
    assert lattice.states["graph_state"].tolist() == [0, 3, 2, 5, 6]
    assert lattice.arcs["state"].tolist() == [0, 1, 1, 2, 3]
    assert lattice.arcs["nextstate"].tolist() == [1, 2, 3, 4, 4]
    assert [int(i) & 0xFFFF for i in lattice.arcs["ilabel"]] == [2, 1, 3, 0, 0]
    words = [lattice.words[w] for w in lattice.arcs["olabel"]]
    assert words == ["<eps>", "<eps>", "<eps>", "a", "ab"]
    assert lattice.arcs["graph_cost"].tolist() == [0, 0, 0, 0.5, 0.25]
    assert lattice.arcs["insertion_cost"].tolist() == [0.125, 0, 0.125, 1, 1]
    assert lattice.arcs["excess"][:3].tolist() == [0, 0, 0]
    assert lattice.arcs["excess"][3:] == pytest.approx([0.125, 0])
    assert lattice.search_cost == pytest.approx(1.5 + np.log(2))
    assert lattice.reached_final and lattice.final_costs()[-1] == 0
    (narrow,) = decoder.decode_lattice([x], lattice_beam=0.0625)
    assert (narrow.num_states, narrow.num_arcs) == (4, 3)
    first, second = LatticeReading(nbest=3)("one", lattice)
    assert (first.text, second.text) == ("ab", "a")
    assert first.words[0][1:5] == (0.0, 0.5, 0, 2)
    assert second.words[0][1:5] == (0.0, 0.25, 0, 1)


@pytest.mark.parametrize("name", HOST_BACKENDS)
def test_no_frames_no_survivors_no_whole_word(name):
    case = hand("sss", lexicon=LEXICON)
    arguments = naive_search_cases.decoder_arguments(case)
    decoder = TrieDecoder(**arguments, backend=name, threads=1)
    unfinished = case.logprobs.copy()
    unfinished[:, [0, 2, 3, 4, 5]] = -np.inf
    dead = unfinished.copy()
    dead[1] = -np.inf
    batch = [unfinished[:0], unfinished[:1], unfinished, dead]
    empty, one, three, died = decoder.decode_lattice(batch)
    assert (empty.num_states, empty.num_arcs, empty.reached_final) == (2, 1, True)
    assert not one.reached_final and one.num_frames == 1
    assert not three.reached_final and three.died_at_frame is None
    assert (died.died_at_frame, died.num_frames) == (1, 1)
    assert bits(died)[:2] == bits(one)[:2]
    for lattice, hypothesis in zip(
        (empty, one, three, died), decoder.decode(batch), strict=True
    ):
        check_lattice(lattice)
        (found,) = LatticeReading(confidence=True)("one", lattice)
        for field in ("words", "token_ids", "token_frames", "died_at_frame"):
            assert getattr(found, field) == getattr(hypothesis, field)


class SmallSearch(RecordingSearch):
    first_arcs = 1


@pytest.mark.parametrize("kind", naive_search_cases.KINDS)
@pytest.mark.share(keep=3)
def test_pruning_at_any_time_changes_nothing(kind):
    """Room for one arc: whatever comes, all is pruned first."""
    for seed in range(20, 40):
        rng, case, decoder, boosts = draw(seed, kind)
        options = replace(decoder.options, merge="max", nbest=1)
        decoder, backend = decoder.with_options(merge="max"), decoder._backend
        (compiled,) = decoder._boosts.compile(boosts, 1)
        wide = backend.start(options, compiled, record=True)
        expected = lattice_by(wide, decoder, compiled, [case.logprobs])
        backend = CpuBackend(decoder._space, 1)
        inputs = backend.inputs_of(options, compiled)
        small = SmallSearch(backend, inputs, options.beam_of_lattice)
        for chunk in random_splits(rng, case.logprobs):
            small.advance(np.ascontiguousarray(chunk, np.float32))
            small.look()
        assert bits(decoder._reader(compiled).lattice(small.finish())) == bits(expected)


ARPA = arpa_of("-99 <s>; -1.5 </s>; {see} see; {sea} sea; -2 <unk>")


def model(see, sea):
    return read_arpa(io.StringIO(ARPA.format(see=see, sea=sea)))


def two_words(**options):
    """Frames of "se", and of "e" a bit more than "a"; a model that favours "see"."""
    x = says("sex", list("-seaxy"))
    x[2] = np.log([0.05, 0.05, 0.4, 0.35, 0.1, 0.05])
    x = np.insert(x, 2, np.log([0.8, 0.04, 0.04, 0.04, 0.04, 0.04]), axis=0)
    case = hand("", lexicon=LEXICON)
    arguments = naive_search_cases.decoder_arguments(case)
    return x.astype(np.float32), TrieDecoder(
        **arguments, lm=model(-0.5, -1.0), options=TrieOptions(**options), threads=1
    )


def test_files_scales_and_another_model(tmp_path):
    x, decoder = two_words(token_insertion=0.5, word_insertion=0.25)
    (lattice,) = decoder.decode_lattice([x])
    save_lattices(tmp_path / "x.lat", {"one": lattice})
    read = open_lattices(tmp_path / "x.lat")["one"]
    assert bits(read) == bits(lattice)
    reading = LatticeReading(nbest=2, confidence=True)
    first, second = reading("one", read)
    assert (first.text, second.text) == ("see", "sea")
    assert 0.5 < first.words[0].confidence < 1 and first == reading("one", lattice)[0]
    assert first.insertion_cost == pytest.approx(0.25 + 3 * 0.5)

    lighter = weighed(read, lm_scale=0.0, word_insertion=1.0)
    (best,) = LatticeReading()("one", lighter)
    assert best.insertion_cost == pytest.approx(1.0 + 3 * 0.5)
    (wanted,) = decoder.with_options(lm_scale=0.0, word_insertion=1.0).decode([x])
    assert best.total_cost == pytest.approx(wanted.total_cost, abs=1e-4)
    assert lighter.search_cost == pytest.approx(wanted.total_cost, abs=1e-4)

    other = model(-2.0, -0.5)
    again = rescored(read, NgramLM.from_arpa(other, read.words))
    (best,) = LatticeReading()("one", again)
    arguments = naive_search_cases.decoder_arguments(hand("", lexicon=LEXICON))
    searched = TrieDecoder(**arguments, lm=other, options=decoder.options)
    (wanted,) = searched.decode([x])
    assert best.text == wanted.text == "sea"
    for name in ("total_cost", "graph_cost", "insertion_cost", "acoustic_cost"):
        assert getattr(best, name) == pytest.approx(getattr(wanted, name), abs=1e-4)
    assert lattice_errors(lattice, ["sea"]) == lattice_errors(lattice, ["see"]) == 0


def test_bare_tokens():
    """Words are pieces' texts; a word is as sure as its least sure token."""
    tokens = token_table(["-", "\u2581a", "b", "\u2581ab", "c"])
    decoder = TrieDecoder(tokens=tokens)
    x = np.log([[0.05, 0.5, 0.05, 0.35, 0.05], [0.1, 0.1, 0.6, 0.1, 0.1]])
    (lattice,) = decoder.decode_lattice([x.astype(np.float32)])
    found = LatticeReading(nbest=50, confidence=True)("one", lattice)
    texts = [one.text for one in found]
    assert texts[0] == "ab" and len(set(texts)) == len(texts)
    (listed,) = decoder.with_options(nbest=50).decode_nbest([x.astype(np.float32)])
    assert texts[:5] == [one.text for one in listed[:5]]
    (word,) = found[0].words
    assert 0 < word.confidence < 1 and word[3:5] == (0, 2)
    lm = NgramLM.from_arpa(model(-1, -1), ("<eps>", "see"))
    with pytest.raises(LatticeError, match="one of bare tokens"):
        rescored(lattice, lm)
    with pytest.raises(LatticeError, match="one of bare tokens"):
        lattice_errors(lattice, ["ab"])


def test_open_and_added_words_are_called_by_their_tokens():
    x = says("-se-ex", list("-seaxy"))
    case = hand("", lexicon=LEXICON)
    arguments = naive_search_cases.decoder_arguments(case)
    decoder = TrieDecoder(
        **arguments,
        lm=model(-1.0, -1.0),
        open_vocabulary=OpenVocabulary(1.0, 0.25),
        threads=1,
    )
    for boosts, text in ((None, "seex"), ({"sexy": -5.0, "seex": 1.0}, "seex")):
        (lattice,) = decoder.decode_lattice([x], boosts=boosts)
        check_lattice(lattice)
        (best,) = LatticeReading(confidence=True)("one", lattice)
        (wanted,) = decoder.decode([x], boosts=boosts)
        assert best.text == wanted.text == text
        assert best.words[0][3:5] == wanted.words[0][3:5] == (1, 6)
        assert best.total_cost == pytest.approx(wanted.total_cost, abs=1e-4)


def test_what_has_no_lattice():
    x, decoder = two_words(merge="sum")
    for ask in (
        lambda: decoder.decode_lattice([x]),
        lambda: decoder.sessions(lattices=True),
    ):
        with pytest.raises(OptionError, match="merge='sum' for a lattice"):
            ask()
    with pytest.raises(OptionError, match=r"lattice_beam=9.0, expected a number"):
        TrieOptions(beam=8.0, lattice_beam=9.0)
    assert TrieOptions(beam=math.inf).beam_of_lattice == 8.0
    several = decoder.with_options(merge="max", nbest=2)
    sessions = several.sessions(lattices=True)
    one = sessions.open()
    with pytest.raises(OptionError, match="nbest=2 in sessions with lattices"):
        sessions.close_nbest(one)
    with pytest.raises(OptionError, match="hand out no settled lattices"):
        sessions.settled_lattices(one)
    sessions.advance({one: x})
    assert bits(sessions.close_lattice(one)) == bits(several.decode_lattice([x])[0])
    sessions = several.sessions()
    with pytest.raises(OptionError, match="lattices=True"):
        sessions.close_lattice(sessions.open())
