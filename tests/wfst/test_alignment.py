"""Words and their times, wherever their labels are."""

import itertools

import numpy as np
import pytest
from random_graphs import random_graph, random_logprobs, random_options
from text_graphs import text_fst, text_graph, text_tables
from wfst_searches import NO_BOOSTS, search, walk_back

from wfstdec import PackedGraph, WfstDecoder, WfstOptions
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.search.backend import make_backend
from wfstdec.search.paths.tokens import PartialPath, PathTokens
from wfstdec.search.paths.words import ALIGNED, BEGINNING, Cutter
from wfstdec.text.tokens import EPSILON, token_of
from wfstdec.wfst.options import BACKENDS

UNBOUNDED = WfstOptions(beam=np.inf, max_active=None)


def decode(graph, frames):
    """The hypothesis whose tokens are one per frame, as names."""
    x = np.full((len(frames.split()), len(graph.tokens)), -np.inf, np.float32)
    for frame, name in enumerate(frames.split()):
        x[frame, graph.tokens.names.index(name)] = 0
    (hyp,) = WfstDecoder(graph, UNBOUNDED, frame_shift_s=1.0).decode([x])
    assert hyp.died_at_frame is None
    return hyp


def times(hyp):
    """`word start-end` of each word."""
    return [f"{w.text} {w.start_frame}-{w.end_frame}" for w in hyp.words]


def word_chain(words, vocabulary, label_at=0):
    """A graph of one sentence; a word's label is on its n-th token, or behind it.

    Blanks and repeats are where CTC has them. `label_at` is -1 for an epsilon arc
    before the first token, and the length of the word for one behind the last.
    """
    state, lines = itertools.count(1), ["0 0 _ - 0"]
    ends = {0: None}  # the states to continue from: the token whose arc led there

    def arc(token, label):
        nonlocal ends
        to, behind_blank = next(state), next(state)
        allowed = [at for at, before in ends.items() if before != token]
        lines.extend(f"{at} {to} {token} {label} 0" for at in allowed)
        lines.append(f"{to} {behind_blank} _ - 0\n{behind_blank} {behind_blank} _ - 0")
        if token != "-":
            lines.append(f"{to} {to} {token}' - 0")
        before = set(ends.values()) - {None} if token == "-" else {token}
        ends = {to: before.pop() if before else None, behind_blank: None}

    for entry in words:
        word, *spelled = entry.split()
        if label_at < 0:
            arc("-", word)
        for i, token in enumerate(spelled):
            arc(token, word if i == label_at else "-")
        if label_at >= len(spelled):
            arc("-", word)
    lines.extend(f"{at} 0" for at in ends)
    return text_graph("\n".join(lines), said=words, **vocabulary)


@pytest.mark.parametrize("label_at", [-1, 0, 1, 2, 9])
def test_times_do_not_depend_on_where_the_label_stands(label_at):
    graph = word_chain(["abc a b c", "ba b a"], {"tokens": "_ a b c"}, label_at)
    hyp = decode(graph, "_ a a _ b c c _ b _ _ a _")
    expected = ["abc 1-7", "ba 8-12"]
    if 1 < label_at < 9:
        graph = word_chain(["abc a b c", "bab b a b"], {"tokens": "_ a b c"}, label_at)
        hyp = decode(graph, "_ a a _ b c c _ b _ _ a b _")
        expected = ["abc 1-7", "bab 8-13"]
    assert times(hyp) == expected
    assert hyp.words[0].start_s == 1.0 and hyp.words[0].end_s == 7.0


def test_homophones_and_several_pronunciations():
    prons = ["hear a b", "here a b", "here a b b", "here b"]
    for word, tokens, expected in [
        ("hear", "a b", "hear 0-2"),
        ("here", "a b", "here 0-2"),
        ("here", "b", "here 0-1"),
        ("here", "a b _ b", "here 0-4"),
    ]:
        names = [t for t in tokens.split() if t != "_"]
        graph = word_chain([" ".join([word, *names])], {}, label_at=0)
        vocabulary = text_tables(words=graph.words, said=prons)
        graph = PackedGraph.pack(
            graph.unpack(), repeats_of(graph), vocabulary, graph.info
        )
        assert times(decode(graph, tokens)) == [expected]


def repeats_of(graph):
    return graph.arcs["ilabel"] & REPEAT != 0


def test_repeated_tokens():
    graph = word_chain(["AA a a", "A a"], {}, label_at=0)
    assert times(decode(graph, "a a _ a a _ _ a")) == ["AA 0-5", "A 7-8"]
    # As `compact` has it: two tokens without a blank between them.
    text = "0 1 a AA 0\n1 1 a' - 0\n1 2 a - 0\n2 2 a' - 0\n2 0"
    hyp = decode(text_graph(text, said=["AA a a"]), "a a")
    assert times(hyp) == ["AA 0-2"]
    assert [(t.text, t.start_frame, t.end_frame) for t in hyp.tokens] == [
        ("a", 0, 1),
        ("a", 1, 2),
    ]


def test_an_unfinished_last_word():
    """The label came with the first token; the audio ends before the last."""
    graph = word_chain(["A a", "ABA a b a"], {}, label_at=0)
    for frames, expected in [
        ("a _ a b b _", ["A 0-1", "ABA 2-5"]),
        ("a _ a", ["A 0-1", "ABA 2-3"]),
        ("a _", ["A 0-1"]),
        ("_ _", []),
    ]:
        hyp = decode(graph, frames)
        assert not hyp.reached_final
        assert times(hyp) == expected


def test_a_label_before_any_token_of_its_word():
    """The word is there without a token, where its label is."""
    text = "0 1 a A 0\n1 2 _ B 0\n2 3 b - 0\n3 0"
    hyp = decode(text_graph(text, said=["A a", "B b"]), "a _")
    assert not hyp.reached_final
    assert times(hyp) == ["A 0-1", "B 2-2"]


def test_without_pronunciations_a_word_ends_at_its_label():
    text = "0 1 a - 0\n1 2 b AB 0\n2 2 _ - 0\n2 3 a - 0\n3 4 - A 0\n4 4 _ - 0\n4 0"
    graph = text_graph(text, marks_repeats=False)
    assert times(decode(graph, "a b _ _ a _")) == ["AB 0-2", "A 4-5"]


def test_pronunciations_that_do_not_fit_are_no_help():
    text = "0 1 a - 0\n1 2 b AB 0\n2 2 _ - 0\n2 3 a A 0\n3 0"
    for prons in (["AB b", "A a"], ["A a"], ["AB a b"], ["AB a b", "A a b"]):
        assert times(decode(text_graph(text, said=prons), "a b _ a")) == [
            "AB 0-2",
            "A 3-4",
        ]


def test_without_marks_equal_frames_are_one_token():
    text = "0 0 _ - 0\n0 0 a A 0\n0 0 b - 0\n0 0"
    hyp = decode(text_graph(text, marks_repeats=False), "a a _ a b b a")
    spans = [(t.text, t.start_frame, t.end_frame) for t in hyp.tokens]
    assert spans == [("a", 0, 2), ("a", 3, 4), ("b", 4, 6), ("a", 6, 7)]


def naive_tokens(graph, arcs):
    """Tokens with frames, and (word, tokens so far, frames so far), arc by arc."""
    tokens, words, frame, before = [], [], 0, graph.tokens.blank
    for a in arcs:
        arc = graph.arcs[a]
        label = int(arc["ilabel"]) & LABEL_MASK
        if label != EPSILON:
            token = token_of(label)
            marked = bool(arc["ilabel"] & REPEAT)
            again = marked if graph.info.marks_repeats else token == before
            if token != graph.tokens.blank:
                if again:
                    if token == before and tokens:
                        tokens[-1][2] = frame + 1  # blanks have not come between
                else:
                    tokens.append([token, frame, frame + 1])
            before, frame = token, frame + 1
        if arc["olabel"] != EPSILON:
            words.append((int(arc["olabel"]), len(tokens), frame))
    return tokens, words


def test_tokens_against_a_naive_reading():
    for i in range(300):
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        x = random_logprobs(rng, 8, len(graph.tokens))
        reference = make_backend(BACKENDS, "reference", graph).start(options, NO_BOOSTS)
        reference.advance(x)
        arcs = walk_back(reference)
        found = search(make_backend(BACKENDS, "cpu", graph), options, x)
        read = found.tokens
        tokens, words = naive_tokens(graph, arcs)
        columns = zip(read.token, read.start, read.end, strict=True)
        assert [list(map(int, row)) for row in columns] == tokens
        columns = zip(read.label, read.label_token, read.label_frame, strict=True)
        assert [tuple(map(int, row)) for row in columns] == words
        cost = graph.arcs["cost"][arcs].astype(np.float64).sum()
        if found.reached_final:
            cost += graph.final_cost[
                graph.arcs["nextstate"][arcs[-1]] if len(arcs) else 0
            ]
        assert found.graph_cost == pytest.approx(cost, abs=1e-9)


def naive_cuts(tokens, words, prons, fillers, complete):
    """All ways to cut and their costs: {token spans of each word: least cost}.

    Fillers may be before every word and at the end. Where the path is not complete the
    last word may break off where the tokens end, and tokens of words that have no label
    yet may follow. `prons` holds {pronunciation: cost} of each word.
    """

    def cut(at, words):
        if not words:
            rest = all(token in fillers for token in tokens[at:])
            return [((), 0)] if rest or not complete else []
        found = []
        while True:
            for pronunciation, cost in prons.get(words[0], {}).items():
                end = at + len(pronunciation)
                if tokens[at:end] == pronunciation:
                    rests = cut(end, words[1:])
                    found += [(((at, end), *rest), cost + c) for rest, c in rests]
                breaks_off = not complete and len(words) == 1 and end > len(tokens)
                if breaks_off and tokens[at:] == pronunciation[: len(tokens) - at]:
                    found.append((((at, len(tokens)),), cost))
            if at == len(tokens) or tokens[at] not in fillers:
                return found
            at += 1

    least = {}
    for spans, cost in cut(0, words):
        least[spans] = min(cost, least.get(spans, cost))
    return least


def naive_local_cuts(tokens, words, labels, prons, fillers, complete):
    """The spans that the rule allows, also of words that are not found: a set.

    A way to cut is (its end, its cost, the spans). Where a word ends none of the ways,
    the cheapest continues: the word takes the tokens up to its label, and the next word
    may begin at any token.
    """

    def matches(at, w):
        for pronunciation, cost in prons.get(words[w], {}).items():
            end = at + len(pronunciation)
            cut_off = end > len(tokens) and pronunciation.startswith(tokens[at:])
            if tokens[at:end] == pronunciation:
                yield end, cost
            elif cut_off and w == len(words) - 1 and not complete:
                yield len(tokens), cost

    def beginnings(at, w, lost):
        yield at
        while at < len(tokens):
            if lost and (at >= labels[w] or any(True for _ in matches(at, w))):
                return
            if not lost and tokens[at] not in fillers:
                return
            at += 1
            yield at

    def go_on(ways, w, lost):
        if w == len(words):
            well = [way for way in ways if set(tokens[way[0] :]) <= set(fillers)]
            ways = well if well and complete else ways
            return {spans for _, cost, spans in ways if cost == min(x[1] for x in ways)}
        found = [
            (end, way[1] + cost, (*way[2], (at, end)))
            for way in ways
            for at in beginnings(way[0], w, lost)
            for end, cost in matches(at, w)
        ]
        if found:
            return go_on(found, w + 1, False)
        results = set()
        for at, cost, spans in ways:
            if cost == min(way[1] for way in ways):
                end = max(labels[w], at)
                while at < end and tokens[at] in fillers:
                    at += 1
                while at < end and tokens[end - 1] in fillers:
                    end -= 1
                results |= go_on([(end, cost, (*spans, (at, end)))], w + 1, True)
        return results

    return go_on([(0, 0, ())], 0, False)


def random_cut_case(rng):
    """Tokens, words, pronunciations and fillers; often but not always a match."""
    num_words, letters = int(rng.integers(1, 4)), "ab|"[: rng.integers(1, 4)]
    draw = lambda most: "".join(rng.choice(list(letters), int(rng.integers(1, most))))  # noqa: E731
    entries = {(int(rng.integers(1, num_words + 1)), draw(4)) for _ in range(5)}
    prons = {}
    for word, pronunciation in sorted(entries):
        prons.setdefault(word, {})[pronunciation] = int(rng.integers(0, 3))
    words = rng.choice(list(prons), int(rng.integers(0, 5))).tolist()
    tokens = ""
    for word in words:
        tokens += "|" * int(rng.integers(0, 3)) + str(rng.choice(list(prons[word])))
    tokens += "|" * int(rng.integers(0, 3))
    if rng.random() < 0.3:
        tokens = draw(9)
    if rng.random() < 0.4:
        tokens = tokens[: rng.integers(0, len(tokens) + 1)]
    fillers = "|" if rng.random() < 0.7 else ""
    return tokens, words, prons, fillers


@pytest.mark.parametrize("complete", [True, False])
def test_cutting_into_words_against_all_cuts(complete):
    names, matched = "_ab|", 0
    for i in range(1500):
        rng = np.random.default_rng(i)
        tokens, words, prons, fillers = random_cut_case(rng)
        vocabulary = text_tables(
            tokens="_ a b |",
            words=("<eps>", *(f"w{w}" for w in range(1, 5))),
            said=[f"w{w} {' '.join(p)}" for w in prons for p in prons[w]],
            costs=[cost for w in prons for cost in prons[w].values()],
            fillers=fillers,
        )
        graph = PackedGraph.pack(text_fst("0 0")[0], None, vocabulary)
        count, word_token = len(tokens), np.sort(rng.integers(0, len(tokens) + 1, 4))
        path = PathTokens(
            token=np.array([names.index(t) for t in tokens], np.int32),
            start=np.arange(count, dtype=np.int32) * 2,
            end=np.arange(count, dtype=np.int32) * 2 + 1,
            label=np.array(words, np.int32),
            label_token=word_token[: len(words)].astype(np.int32),
            label_frame=np.full(len(words), 99, np.int32),
        )
        aligner = Cutter(ALIGNED, graph.vocabulary)
        cut = cut_of(aligner, path, BEGINNING, complete)
        found = frames_of(cut)
        cuts = naive_cuts(tokens, words, prons, fillers, complete)
        allowed = {cut for cut in cuts if cuts[cut] == min(cuts.values())}
        if cuts:
            matched += bool(words)
        else:
            labels = path.label_token.tolist()
            allowed = naive_local_cuts(tokens, words, labels, prons, fillers, complete)
        as_frames = [
            [[2 * b, 2 * e - 1] if b < e else [99, 99] for b, e in cut]
            for cut in allowed
        ]
        assert found in as_frames, (tokens, words, prons, fillers)
        check_settled_frames(aligner, path, complete, found)
    assert matched > 400


def cut_of(aligner, path, cut, complete):
    look = PartialPath(path, 0, cut.labels, 0, 0.0)
    settled, _, words, _ = aligner.partial(look, cut, 1.0, complete=complete)
    assert not settled
    return words


def frames_of(words):
    return [[word.start_frame, word.end_frame] for word in words]


def check_settled_frames(aligner, path, complete, expected):
    """As the path grows, they are those of the whole path."""
    frames, cut = [], BEGINNING
    for count in range(len(path.token) + 1):
        words = int((path.label_token <= count).sum())
        beginning = path.part(slice(cut.tokens, count), slice(cut.labels, words))
        whole = len(beginning.token), cut.labels + len(beginning.label)
        look = PartialPath(beginning, *whole, 0, 0.0)
        more, cut, _, _ = aligner.partial(look, cut, 1.0)
        frames += frames_of(more)
        assert frames == expected[: len(frames)]
    rest = path.part(slice(cut.tokens, None), slice(cut.labels, None))
    found = cut_of(aligner, rest, cut, complete)
    assert frames + frames_of(found) == expected
