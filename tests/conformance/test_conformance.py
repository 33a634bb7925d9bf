"""Promises of all decoders, each once, over the table of `conformance.py`.

A result depends on the model, the utterance, the options and its boosts, and on nothing
else: not on chunks, padding, the batch, its order, threads, the order of lists, kinds
of arrays, how much room there was, what went wrong for others, or the process.
"""

import copy
import pickle
import shutil
import threading

import numpy as np
import pytest
from conformance import (
    DECODERS,
    EMULATED,
    FEATURES,
    HOLES,
    Cell,
    bits,
    cells,
    close,
    draw,
    fields,
    hole_of,
    read,
    sessions_of,
)
from lattice_searches import joined

import wfstdec
from wfstdec.errors import (
    BackendError,
    InputError,
    LogprobError,
    OptionError,
    SessionError,
    ShapeError,
)
from wfstdec.lattice.arrays import check_lattice
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.wfst.options import BACKENDS as WFST_BACKENDS

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]

ROUNDS = {"reference": 1, "cpu": 6, EMULATED: 1, "torch": 1}
"""Cases of a cell, for each promise."""
PROMISES = {}


def promise(rounds=1.0):
    """A body becomes a test for each cell of the table that is no hole."""

    def make(body):
        name = body.__name__.removeprefix("test_")
        PROMISES[name] = body
        chosen = [cell for cell in cells() if hole_of(name, cell) is None]

        def test(cell):
            for seed in range(max(1, round(rounds * ROUNDS[cell.backend]))):
                number = list(PROMISES).index(name)
                rng = np.random.default_rng(
                    [number, FEATURES.index(cell.feature), seed]
                )
                body(cell, draw(cell, rng), rng)

        test.__doc__ = body.__doc__
        return pytest.mark.parametrize("cell", chosen, ids="-".join)(test)

    return make


@promise()
def test_chunks(cell, drawn, rng):
    """Any schedule of openings, chunks and looks gives what is found offline."""
    decoder = drawn.make(threads=int(rng.integers(1, 3)))
    offline = read(cell, decoder, drawn.utterances, boosts=drawn.boosts)
    hyps = decoder.decode(drawn.utterances, boosts=drawn.boosts)
    for _ in range(2):  # the second time from pooled memory
        found, partials = play(cell, rng, decoder, drawn)
        assert found == offline
        for seen, hyp in zip(partials, hyps, strict=True):
            check_settled(seen, hyp)


@promise(rounds=2)
def test_partials(cell, drawn, rng):
    """A session that is looked at says what one of the reference says."""
    schedule = int(rng.integers(1 << 30))
    seen = []
    for backend in ("reference", None):
        decoder = drawn.make(backend=backend)
        again = np.random.default_rng(schedule)
        seen.append(play(cell, again, decoder, drawn, look=0.8))
    assert seen[0] == seen[1]


@promise()
def test_batches(cell, drawn, rng):
    """Padding, the batch, its order, and threads change nothing."""
    decoder = drawn.make()
    alone = [
        read(cell, decoder, [x], boosts=[one])[0]
        for x, one in zip(drawn.utterances, drawn.boosts, strict=True)
    ]
    assert read(cell, decoder, drawn.utterances, boosts=drawn.boosts) == alone
    num, width = len(alone), drawn.utterances[0].shape[1]
    longest = max(map(len, drawn.utterances))
    for threads in (1, 3):
        order = rng.permutation(num)
        padded = np.full((num, longest + 2, width), np.nan, drawn.utterances[0].dtype)
        for row, i in zip(padded, order, strict=True):
            row[: len(drawn.utterances[i])] = drawn.utterances[i]
        lengths = np.array([len(drawn.utterances[i]) for i in order])
        boosts = [drawn.boosts[i] for i in order]
        other = drawn.make(threads=threads)
        for _ in range(2):
            found = read(cell, other, padded, lengths, boosts)
            assert found == [alone[i] for i in order]
    empty = [x[:0] for x in drawn.utterances[:2]]
    assert len({repr(one) for one in read(cell, decoder, empty)}) == 1
    assert read(cell, decoder, []) == []


@promise()
def test_order_of_lists(cell, drawn, rng):
    """Lists, and the pronunciations in them, may come in any order."""
    found = [
        read(cell, drawn.make(), drawn.utterances, boosts=boosts)
        for boosts in (drawn.boosts, drawn.turned)
    ]
    assert found[0] == found[1]


@promise()
def test_kinds_of_arrays(cell, drawn, rng):
    """NumPy or torch, in any layout and precision; and they stay the caller's."""
    decoder = drawn.make()
    expected = read(cell, decoder, drawn.utterances, boosts=drawn.boosts)
    before = [x.copy() for x in drawn.utterances]
    for given in (
        [torch.from_numpy(x) for x in drawn.utterances],
        list(map(np.asfortranarray, drawn.utterances)),
        [np.repeat(x, 2, axis=0)[::2] for x in drawn.utterances],
        [x.astype(np.float64) for x in drawn.utterances],
        [torch.from_numpy(x).double() for x in drawn.utterances],
    ):
        assert read(cell, decoder, given, boosts=drawn.boosts) == expected
    assert all(map(np.array_equal, before, drawn.utterances))
    if hole_of("chunks", cell) is None:
        sessions = sessions_of(cell, decoder)
        names = [sessions.open(one) for one in drawn.boosts]
        for frame in range(max(map(len, drawn.utterances))):
            chunks = {
                name: x[frame : frame + 1].copy()
                for name, x in zip(names, drawn.utterances, strict=True)
            }
            sessions.advance(chunks)
            for chunk in chunks.values():
                chunk[:] = np.nan  # the caller's own again
        assert [close(cell, sessions, name) for name in names] == expected


@promise()
def test_growth(cell, drawn, rng):
    """However little room there is at first, nothing is lost."""
    longer = drawn._replace(utterances=[np.tile(x, (3, 1)) for x in drawn.utterances])
    roomy, tight = drawn.make(), drawn.make(tight=True)
    expected = read(cell, roomy, longer.utterances, boosts=drawn.boosts)
    for _ in range(2):  # the second time from pooled memory
        assert read(cell, tight, longer.utterances, boosts=drawn.boosts) == expected
    if hole_of("chunks", cell) is None:
        tight = drawn.make(tight=True)
        assert play(cell, rng, tight, longer)[0] == expected


@promise()
def test_errors(cell, drawn, rng):
    """Wrong utterances are named, others continue as without them."""
    decoder = drawn.make()
    expected = read(cell, decoder, drawn.utterances, boosts=drawn.boosts)
    x = drawn.utterances[int(np.argmax([len(x) for x in drawn.utterances]))]
    if not len(x):
        return
    narrow, wrong = x[:, 1:], x.copy()
    wrong[rng.integers(len(x)), 0] = np.nan
    # Frames of other decoders are their model's affair.
    is_ctc = cell.decoder in ("wfst", "trie", "greedy")
    bad = [(narrow, ShapeError), *([(wrong, LogprobError)] if is_ctc else [])]
    for given, error in bad:
        with pytest.raises(error) as caught:
            read(cell, decoder, [x, given])
        assert caught.value.utterance == 1
    with pytest.raises(InputError) as caught:
        read(cell, decoder, [x, x], boosts=[None, {"a": np.nan}])
    assert caught.value.utterance == 1
    assert read(cell, decoder, drawn.utterances, boosts=drawn.boosts) == expected
    if hole_of("chunks", cell) is None:
        check_sessions(cell, decoder, drawn, bad, expected)


def check_sessions(cell, decoder, drawn, bad, expected):
    """Chunks that are wrong move no session; lists that are wrong open none."""
    sessions = sessions_of(cell, decoder)
    names = [sessions.open(one, session=f"s{i}") for i, one in enumerate(drawn.boosts)]
    halves = [(x[: len(x) // 2], x[len(x) // 2 :]) for x in drawn.utterances]
    for part in (0, 1):
        chunks = {name: half[part] for name, half in zip(names, halves, strict=True)}
        for given, error in bad:
            with pytest.raises(error) as caught:
                sessions.advance(chunks | {names[2]: given})
            assert caught.value.utterance == names[2]
        sessions.advance(chunks)
    with pytest.raises(InputError) as caught:
        sessions.open({"a": np.nan}, session="new")
    assert caught.value.utterance == "new" and "new" not in sessions
    with pytest.raises(SessionError, match="is open already"):
        sessions.open(session=names[0])
    assert [close(cell, sessions, name) for name in names] == expected
    for ask in (sessions.close, sessions.partial, lambda s: sessions.advance({s: 0})):
        with pytest.raises(SessionError, match="is not open") as caught:
            ask(names[0])
        assert caught.value.utterance == names[0]


@promise(rounds=0.5)
def test_pickling(cell, drawn, rng):
    """Decoders and compiled boosts are the same elsewhere; sessions do not leave."""
    decoder = drawn.make()
    expected = read(cell, decoder, drawn.utterances, boosts=drawn.boosts)
    compiled = list(map(decoder.compile_boosts, drawn.boosts))
    assert read(cell, decoder, drawn.utterances, boosts=compiled) == expected
    again = pickle.loads(pickle.dumps(compiled))
    for other in (pickle.loads(pickle.dumps(decoder)), copy.deepcopy(decoder), decoder):
        assert read(cell, other, drawn.utterances, boosts=drawn.boosts) == expected
        assert read(cell, other, drawn.utterances, boosts=again) == expected
        assert (other.options, other.threads) == (decoder.options, decoder.threads)
    if cell.feature == "lattices":
        lattices = decoder.decode_lattice(drawn.utterances, boosts=again)
        assert list(map(bits, pickle.loads(pickle.dumps(lattices)))) == expected
    if hole_of("chunks", cell) is None:
        there = drawn._replace(boosts=again)
        assert play(cell, rng, decoder, there)[0] == expected
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(decoder.sessions())


@promise(rounds=0.5)
def test_users_threads(cell, drawn, rng):
    """Threads that know nothing of each other may share a decoder."""
    decoder, wrong = drawn.make(threads=2), []
    expected = read(cell, decoder, drawn.utterances, boosts=drawn.boosts)

    def work(first):
        for i in range(first, first + 4):
            one = slice(i % 4, i % 4 + 1)
            found = read(cell, decoder, drawn.utterances[one], boosts=drawn.boosts[one])
            if found != expected[one]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@promise(rounds=4)
def test_specification(cell, drawn, rng):
    """The bits of the reference, in whatever room; of n-best the first is the best."""
    reference = drawn.make(backend="reference")
    expected = read(cell, reference, drawn.utterances, boosts=drawn.boosts) * 4
    # So many that short ones of a list are searched in one call.
    given, boosts = drawn.utterances * 4, drawn.boosts * 4
    some = [{}] if hole_of("growth", cell) else [{}, {"tight": True}]
    for decoder in (drawn.make(**room) for room in some):
        for _ in range(2):  # the second time from pooled memory
            assert read(cell, decoder, given, boosts=boosts) == expected
        if cell.feature == "nbest":
            best = list(map(fields, decoder.decode(given, boosts=boosts)))
            assert best == [first for first, *_ in expected]


@promise(rounds=4)
def test_segments(cell, drawn, rng):
    """Settled parts of a lattice are all of it, and nothing else is changed by them."""
    decoder, few = drawn.make(tight=cell.backend == "cpu"), int(rng.integers(1, 4))
    found = decoder.decode_lattice(drawn.utterances, boosts=drawn.boosts)
    hyps = decoder.decode(drawn.utterances, boosts=drawn.boosts)
    for x, one, lattice, hyp in zip(
        drawn.utterances, drawn.boosts, found, hyps, strict=True
    ):
        plain, sessions = decoder.sessions(), decoder.sessions(lattices=True)
        a, b, parts = plain.open(one), sessions.open(one), []
        for chunk in np.split(x, np.sort(rng.integers(0, len(x) + 1, 3))):
            plain.advance({a: chunk})
            sessions.advance({b: chunk})
            if rng.random() < 0.7:
                parts += sessions.settled_lattices(b, min_frames=few)
            assert sessions.partial(b) == plain.partial(a)
        assert min((part.num_frames for part in parts), default=few) >= few
        assert {part.words for part in parts} <= {lattice.words}
        assert plain.close(a) == hyp
        last = sessions.close_lattice(b)
        check_lattice(last)
        assert joined([*parts, last]) == bits(lattice)[:2]


def play(cell, rng, decoder, drawn, look=0.3):
    """Open, advance and close sessions at random: what was found, and all partials."""
    sessions, found, partials = sessions_of(cell, decoder), {}, {}
    waiting, under_way = list(range(len(drawn.utterances)))[::-1], {}
    while waiting or under_way:
        if waiting and (not under_way or rng.random() < 0.3):
            i = waiting.pop()
            name = sessions.open(drawn.boosts[i], session=f"u{i}" if i % 2 else None)
            under_way[name], partials[i] = (i, 0), []
        chunks = {}
        for name in [name for name in under_way if rng.random() < 0.6]:
            i, at = under_way[name]
            chunks[name] = drawn.utterances[i][at : at + int(rng.integers(0, 6))]
            under_way[name] = i, at + len(chunks[name])
        sessions.advance(chunks)
        for name in list(under_way):
            i, at = under_way[name]
            if rng.random() < look:
                partials[i].append(sessions.partial(name))
                assert partials[i][-1].num_frames <= at
            if at == len(drawn.utterances[i]) and rng.random() < 0.5:
                found[i] = close(cell, sessions, name)
                del under_way[name]
    assert len(sessions) == 0
    order = range(len(drawn.utterances))
    return [found[i] for i in order], [partials[i] for i in order]


def check_settled(partials, hypothesis):
    """Settled words stay: in all later partials, and in the end."""
    last = None
    for partial in [*partials, None]:
        words = hypothesis.words if partial is None else partial.words
        if last is not None:
            settled = last.words[: last.num_settled]
            texts = [word.text for word in words]
            assert texts[: len(settled)] == [word.text for word in settled]
            assert words[: last.num_timed] == last.words[: last.num_timed]
            if partial is not None:
                assert partial.num_settled >= last.num_settled
                assert partial.num_timed >= last.num_timed
        last = partial


def test_the_table_has_all_decoders_and_backends():
    public = {name for name in wfstdec.__all__ if name.endswith("Decoder")}
    assert public - {"Decoder"} == {f"{kind.title()}Decoder" for kind in DECODERS}
    for kind, known in (("wfst", WFST_BACKENDS), ("trie", TRIE_BACKENDS)):
        assert {*DECODERS[kind]} == {*known} - {"cuda"} | {EMULATED}


def closed_features(cell):
    """Features that no promise has of a decoder."""
    patterns = [p for p in HOLES if p[0] == "*" and p[1] == cell.decoder]
    return {feature for *_, where, feature in patterns if where in ("*", cell.backend)}


REFUSED = [
    (cell, error)
    for cell in cells()
    for pattern, (_, error) in HOLES.items()
    if error and pattern[0] == "*" and (cell.decoder, cell.feature) == pattern[1::2]
    if pattern[2] in ("*", cell.backend)
]


@pytest.mark.parametrize(("cell", "error"), REFUSED, ids=lambda x: str(x))
def test_who_asks_for_what_is_not_there_is_told(cell, error):
    drawn = draw(cell._replace(feature="phrases"), np.random.default_rng(0))
    boosts = None
    if cell.feature == "words":
        boosts = {"a": 1.0}
    elif cell.feature == "oov":
        boosts = [wfstdec.BoostEntry("nab", ["a b"], 1.0)]
    with pytest.raises(error):
        read(cell, drawn.make(), drawn.utterances, boosts=boosts)


def test_sessions_that_are_not_there():
    drawn = draw(Cell("attention", "torch", "phrases"), np.random.default_rng(0))
    with pytest.raises(OptionError, match="sessions of an attention decoder"):
        drawn.make().sessions().open()
    if shutil.which("g++"):
        drawn = draw(Cell("wfst", EMULATED, "lattices"), np.random.default_rng(0))
        with pytest.raises(BackendError, match="records no lattices of sessions"):
            drawn.make().sessions(lattices=True)


SEEN = [cell for cell in cells() if cell.feature not in closed_features(cell)]
SEEN = [cell for cell in SEEN if cell.backend == "cpu" or cell.decoder == "attention"]


@pytest.mark.parametrize("cell", SEEN, ids="-".join)
def test_cells_draw_what_they_are_about(cell):
    """Or the promises of a feature would be kept by decoders without it."""
    found = settled = 0
    for seed in range(12):
        drawn = draw(cell, np.random.default_rng([5, seed]))
        decoder = drawn.make()
        hyps = decoder.decode(drawn.utterances, boosts=drawn.boosts)
        known = {*decoder.vocabulary.words}
        if cell.feature in ("words", "phrases"):
            found += sum(hyp.boost_cost != 0 for hyp in hyps)
        elif cell.feature in ("oov", "open"):
            found += sum(word.text not in known for hyp in hyps for word in hyp.words)
        elif cell.feature == "model":
            found += sum(hyp.graph_cost != 0 for hyp in hyps)
        elif cell.feature == "nbest":
            found += sum(len(one) > 1 for one in decoder.decode_nbest(drawn.utterances))
        else:
            lattices = decoder.decode_lattice(drawn.utterances)
            found += sum(one.num_arcs > one.num_states for one in lattices)
        if cell.decoder != "attention":
            _, partials = play(cell, np.random.default_rng(seed), decoder, drawn, 0.8)
            settled += sum(one.num_settled for some in partials for one in some)
    assert found > 3 and (settled or cell.decoder == "attention")
