"""Words of paths with their frames; one kernel call for the paths of a group.

    cutter = aligner_of(vocabulary)            # labels anywhere in their words: WFST
    cutter = Cutter(ENDS, vocabulary, prons)   # labels where words end: trie, lattices
    cutter = Cutter(BARE, vocabulary)          # tokens only: letters or word pieces
    words = cutter.cut(paths, shift)                # arrays
    texts, at = cutter.read(words, 0)               # of the first path

Without pronunciations (graphs composed elsewhere) a word spans the tokens between the
previous label and its own.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from wfstdec.jit import jit, read_only
from wfstdec.jit.arrays import longer, twice
from wfstdec.jit.handles import Handle, opened
from wfstdec.jit.records import WeakCache, record
from wfstdec.search.hypothesis import SECONDS_DIGITS, Word
from wfstdec.search.paths.tokens import OPEN_PRON, PartialPath, Paths
from wfstdec.text.lexicon import WORD_START, word_ids
from wfstdec.text.tokens import EPSILON, byte_texts
from wfstdec.text.vocabulary import OovWords, OpenSpelling, Pronunciations, Vocabulary

ALIGNED, ENDS, BARE = range(3)
"""Positions of word labels: anywhere within a word, at its end, or none."""
SPELLED = -1  # as a word id: the text is that of the word's tokens


class CutPoint(NamedTuple):
    """Position of the last cut of a path: tokens, labels and cost before it."""

    tokens: int = 0
    labels: int = 0
    cost: float = 0.0
    # Whether the last word's tokens were not matched; the next may then follow
    # non-filler tokens.
    lost: bool = False


BEGINNING = CutPoint()
_word = partial(tuple.__new__, Word)  # from a tuple of its fields
_EACH_MICROSECOND = 10.0**SECONDS_DIGITS
_SPACE = ord(" ")
NO_SPLITS = np.zeros(0, np.int64)


WORD = record(
    "f8 start_s end_s", "i4 start_frame end_frame word first_token last_token"
)
"""A word: times rounded to microseconds, frames as in `Word`; its id or `SPELLED`; its
first token, and one after its last."""


class Words(NamedTuple):
    """Words of concatenated paths."""

    token: np.ndarray  # int32 [N], of the paths
    label: np.ndarray  # int32 [W], of the paths: word ids or pronunciations
    rows: np.ndarray  # WORD [W]
    splits: np.ndarray  # int64 [P + 1], over rows


class Prons(NamedTuple):
    """Pronunciations, by their numbers on trie paths."""

    word: np.ndarray  # int32 [P]
    length: np.ndarray  # int32 [P], tokens
    cost: np.ndarray  # float32 [P], nats


class Tables(NamedTuple):
    """Pronunciations and spelling rules for the kernels."""

    kind: int
    open_word: int  # the word id of open words, -1 for none
    token_cost: float  # of open words
    alone: bool  # whether each bare token is a word
    word_splits: np.ndarray  # int32 [words + 1], pronunciations of each word
    splits: np.ndarray  # int32 [P + 1]
    tokens: np.ndarray  # int32
    cost: np.ndarray  # float32 [P]
    filler: np.ndarray  # bool [V], tokens allowed between words
    begins: np.ndarray  # bool [V], tokens that may begin an open word; `BARE`: that do
    extends: np.ndarray  # bool [V], tokens that may continue one


class Cutter:
    """Cuts the paths of one graph, trie or token table into words."""

    def __init__(
        self, kind: int, vocabulary: Vocabulary, prons: Prons | None = None
    ) -> None:
        spelling, open_word = vocabulary.open_spelling, vocabulary.open_word
        if kind == BARE:
            spelling = _spelling_of_bare(vocabulary)
        spoken = Pronunciations.empty()
        if kind == ALIGNED:
            spoken = vocabulary.pronunciations
        filler, none = np.zeros((2, len(vocabulary.tokens)), np.bool_)
        filler[list(vocabulary.separators)] = True
        self._arguments = kind, vocabulary, prons
        arrays = spoken.word_splits, spoken.splits, spoken.tokens, spoken.cost, filler
        spells = (none, none)
        if spelling is not None:
            spells = spelling.begins, spelling.extends
        self._tables = Tables(
            kind,
            int(open_word.word) if open_word and prons is None else SPELLED,
            float(open_word.token_cost) if open_word else 0.0,
            kind == BARE and bool(spells[0].all()),
            *map(read_only, (*arrays, *spells)),
        )
        self.handle = Handle(self._tables)
        self._spelling, self._is_aligned = spelling, kind == ALIGNED
        self._pieces: Any = None  # as `write_texts` takes them
        if kind == BARE and spelling and not any(" " in x for x in spelling.texts):
            texts = zip(spelling.texts, filler.tolist(), strict=True)
            encoded = ["" if skip else text for text, skip in texts]
            how = ("latin-1",) if spelling.is_bytes else ("utf-8", "surrogatepass")
            pieces = [text.encode(*how) for text in encoded]
            splits = np.cumsum([0, *map(len, pieces)])
            characters = np.frombuffer(b"".join(pieces) + b" ", np.uint8)
            self._pieces = characters, splits, spelling.begins | filler
        self._words, self._prons, self._opened = vocabulary.words, prons, open_word
        self._oov: OovWords | None = None
        self._word_ids: dict[str, int] = {}  # open words that are in the table
        if prons is not None and open_word is not None and open_word.kind != "phones":
            self._word_ids = word_ids(self._words[: open_word.word])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    @property
    def cuts_bare_tokens(self) -> bool:
        """Whether paths have only tokens."""
        return self._tables.kind == BARE

    def with_oov(self, oov: OovWords | None) -> Self:
        """Return a cutter with OOV words; their numbers follow the vocabulary's."""
        if oov is None or self._prons is None:
            return self
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"_oov": oov}
        return other

    def cut(self, paths: Paths, shift: float = 1.0) -> Words:
        """Cut whole paths; the last word of one that reached the end must be whole."""
        columns, splits = paths.columns, (paths.token_splits, paths.label_splits)
        words = self._as_words(columns.label)
        rows = cut_paths(self.handle, columns, splits, *words, paths.ends, float(shift))
        return Words(columns.token, columns.label, *rows)

    def read(self, words: Words, path: int) -> tuple[list[str], Any]:
        """Return texts of a path's words, and their index in the arrays of `words`."""
        return self._read(words, *words.splits[path : path + 2].tolist())

    def texts(self, paths: Paths) -> list[str] | None:
        """Return the texts of paths of bare tokens; None where paths have words."""
        if self._pieces is None:
            return None
        return self._spelled(paths.columns.token, paths.token_splits)

    def _spelled(self, tokens: np.ndarray, splits: np.ndarray) -> list[str]:
        written, ends = write_texts(self._pieces, tokens, splits)
        is_bytes = self._spelling is not None and self._spelling.is_bytes
        data, errors = written.tobytes(), "replace" if is_bytes else "surrogatepass"
        return [data[a:b].decode("utf-8", errors) for a, b in pairwise(ends.tolist())]

    def timed(self, words: Words, path: int | None = None) -> list[Word]:
        """Return the words of one path, or of all."""
        if path is None:
            return self._timed(words, 0, len(words.rows))
        return self._timed(words, *words.splits[path : path + 2].tolist())

    def counted(self, words: Words, path: int) -> tuple[list[int], float]:
        """Return word ids for the account and pronunciation costs not on the path."""
        if self._tables.kind == BARE:
            return [], 0.0
        first, end = words.splits[path : path + 2].tolist()
        ids = words.rows["word"][first:end].tolist()
        if self._prons is None:
            return ids, 0.0
        cost, prons, total = self._prons.cost, words.label[first:end], 0.0
        if (prons < len(cost)).all():
            return ids, float(cost[prons].sum(dtype=np.float64))
        for i, pron in enumerate(prons.tolist()):
            if pron < len(cost):
                total += float(cost[pron])
            elif pron == OPEN_PRON:
                assert self._opened is not None
                (text,) = self._texts(words, first + i, first + i + 1)
                ids[i] = self._word_ids.get(text, EPSILON)
                if ids[i] == EPSILON:
                    # In float32: the search adds the cost of a word as float32.
                    begin, stop = words.rows[first + i].item()[-2:]
                    word_cost = np.float32(self._opened.word_cost or 0)
                    total += word_cost + (stop - begin) * self._opened.token_cost
        return ids, float(total)

    def partial(
        self, look: PartialPath, cut: CutPoint, shift: float, *, complete: bool = False
    ) -> tuple[list[Word], CutPoint, list[Word], int]:
        """Cut a path since the last cut; `complete`: its last word must be whole."""
        # Returns newly settled words, the cut after them, the other words, and the end
        # of their last token or 0.
        path, whole = look.tokens, (look.num_whole, look.num_labels - cut.labels)
        rows, hold, taken, cost, lost, end = cut_partial(
            *(self.handle, path, whole, *self._as_words(path.label)),
            *(float(shift), (complete, cut.cost, cut.lost)),
        )
        words = Words(path.token, path.label, rows, NO_SPLITS)
        after = CutPoint(cut.tokens + taken, cut.labels + hold, cost, lost)
        others = self._timed(words, hold, len(rows))
        return self._timed(words, 0, hold), after, others, end

    def _read(self, words: Words, first: int, end: int) -> tuple[list[str], Any]:
        texts = self._texts(words, first, end)
        if self._is_aligned or all(texts):
            return texts, slice(first, end)
        # A mark alone has no text and is not a word for the user.
        at = [first + i for i, text in enumerate(texts) if text]
        return [text for text in texts if text], np.array(at, np.int64)

    def _timed(self, words: Words, first: int, end: int) -> list[Word]:
        if self._spelling is None and self._oov is None and self._is_aligned:
            rows, names = words.rows[first:end].tolist(), self._words
            return [_word((names[row[4]], *row[:4], None, None)) for row in rows]
        if first == end:
            return []
        texts, at = self._read(words, first, end)
        pairs = zip(texts, words.rows[at].tolist(), strict=True)
        return [_word((text, *row[:4], None, None)) for text, row in pairs]

    def _as_words(self, prons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return word ids of pronunciations, and their lengths, 0 if unknown."""
        known, oov = self._prons, self._oov
        if known is None:
            return prons, np.zeros(len(prons), np.int32)
        own = prons < len(known.word)
        if own.all():
            return known.word[prons], known.length[prons]
        word = np.full(len(prons), SPELLED, np.int32)
        length = np.zeros(len(prons), np.int32)
        word[own], length[own] = known.word[prons[own]], known.length[prons[own]]
        if oov is not None:
            new = ~own & (prons != OPEN_PRON)
            number = prons[new] - len(known.word)
            word[new], length[new] = oov.word[number], np.diff(oov.splits)[number]
        return word, length

    def _texts(self, words: Words, first: int, end: int) -> list[str]:
        """Return the texts of some words; open words are spelled by tokens."""
        if self._pieces is not None and first < end:
            begin, stop = words.rows["first_token"][first], words.rows["last_token"]
            splits = np.array([begin, stop[end - 1]], np.int64)
            texts = self._spelled(words.token, splits)[0].split(" ")
            if len(texts) == end - first and texts[0]:  # none is empty
                return texts
        if self._spelling is None and self._oov is None:
            ids = words.rows["word"][first:end].tolist()
            return list(map(self._words.__getitem__, ids))
        texts = []
        for *_, word, a, b in words.rows[first:end].tolist():
            if word == self._tables.open_word and self._spelling is not None:
                texts.append(self._spelling.text(words.token[a:b].tolist()))
            elif self._oov is not None and word >= self._oov.num_known:
                texts.append(self._oov.words[word - self._oov.num_known])
            else:
                texts.append(self._words[word])
        return texts


def _spelling_of_bare(vocabulary: Vocabulary) -> OpenSpelling:
    """Return texts of bare tokens, and which begin words: all, marked, or none."""
    names = vocabulary.tokens.names
    none = np.zeros(len(names), np.bool_)
    if vocabulary.separators:
        return OpenSpelling("letters", names, none, none)
    # Equal pieces of several languages have a number as suffix.
    names = tuple(name.removesuffix(f"<{i}>") or name for i, name in enumerate(names))
    as_bytes = byte_texts(names)
    mark, texts = (WORD_START, names) if as_bytes is None else (" ", as_bytes)
    marked = np.array([text.startswith(mark) for text in texts])
    if not marked.any():
        return OpenSpelling("letters", names, ~none, none)
    texts = tuple(text.removeprefix(mark) for text in texts)
    return OpenSpelling("pieces", texts, marked, none, as_bytes is not None)


_ALIGNERS: WeakCache[Vocabulary, Cutter] = WeakCache(
    lambda vocabulary: Cutter(ALIGNED, vocabulary)
)


def aligner_of(vocabulary: Vocabulary) -> Cutter:
    """Return the cutter of a graph's paths, cached with its vocabulary."""
    return _ALIGNERS.of(vocabulary)


@jit
def new_words(count):
    """Return WORD [count], uninitialised."""
    return np.empty(count, WORD)


@jit
def cut_paths(handle, paths, path_splits, word, length, ends, shift):
    """Cut paths into words: return WORD [W] and the splits of paths."""
    # `length`: tokens of each label's word, 0 if unknown. `ends`: PATH_END [P].
    tables = opened(handle)
    token_splits, label_splits = path_splits
    words = new_words(len(paths[0]) if tables.kind == BARE else len(word))
    splits = np.zeros(len(ends) + 1, np.int64)
    for i in range(len(ends)):
        t, behind = token_splits[i], token_splits[i + 1]
        w, behind_w = label_splits[i], label_splits[i + 1]
        how = ends[i].reached_final != 0, False, 0.0, False
        count, _, _, _ = _cut_path(
            *(tables, _part(paths, t, behind, w, behind_w, 0)),
            *(word[w:behind_w], length[w:behind_w], shift, how, words[splits[i] :]),
        )
        for k in range(splits[i], splits[i] + count):
            words[k].first_token += t
            words[k].last_token += t
        splits[i + 1] = splits[i] + count
    return words[: splits[len(ends)]], splits


@jit
def _part(path, t, behind, w, behind_w, before):
    token, start, end, label, label_token, label_frame = path
    tokens = token[t:behind], start[t:behind], end[t:behind]
    counted = np.empty(behind_w - w, np.int32)
    for i in range(len(counted)):
        counted[i] = label_token[w + i] - before
    return *tokens, label[w:behind_w], counted, label_frame[w:behind_w]


@jit
def _cut_path(tables, path, word, length, shift, how, words):
    """Cut one path: return its words, how many hold, their cost, `lost`."""
    token, start, end, _, label_token, label_frame = path
    count, cost, lost = np.int64(len(word)), how[2], how[3]
    spans = np.empty((len(token) if tables.kind == BARE else count, 2), np.int32)
    hold = count
    if tables.kind == BARE:
        count = hold = _bare_spans(tables, token, spans)
    elif tables.kind == ENDS:
        _spans_at_ends(tables, token, label_token, length, spans)
    else:
        spans, hold, cost, lost = _spans(tables, token, word, label_token, how)
    for k in range(count):
        one, first, last = words[k], np.int64(spans[k, 0]), np.int64(spans[k, 1])
        one.word = SPELLED if tables.kind == BARE else word[k]
        one.first_token, one.last_token = first, last
        if first < last:
            one.start_frame, one.end_frame = start[first], end[last - 1]
        else:  # a word without tokens is at its label
            one.start_frame = one.end_frame = label_frame[k]
        # Rounds as NumPy's `round(seconds, SECONDS_DIGITS)`.
        one.start_s = np.rint(one.start_frame * shift * _EACH_MICROSECOND)
        one.end_s = np.rint(one.end_frame * shift * _EACH_MICROSECOND)
        one.start_s /= _EACH_MICROSECOND
        one.end_s /= _EACH_MICROSECOND
    return count, hold, cost, lost


@jit
def cut_partial(handle, path, whole, word, length, shift, before):
    """Cut a path into settled words and others; see `Cutter.partial`."""
    # `whole`: settled tokens and labels. `before`: whether the last word must be whole;
    # cost and `lost` of the previous cut. Returns the words, the number of settled
    # ones, their tokens, their cost, `lost`, and the end of the last non-filler token
    # of the others, or 0.
    tables, num_tokens, num_labels = opened(handle), len(path[0]), len(word)
    words = new_words(num_tokens if tables.kind == BARE else num_labels)
    hold, taken = np.int64(0), np.int64(0)
    complete, cost, lost = before
    if tables.kind == ALIGNED:
        t, w = min(whole[0], num_tokens), min(whole[1], num_labels)
        if w > 0:
            _, settled, new_cost, now_lost = _cut_path(
                *(tables, _part(path, 0, t, 0, w, 0), word[:w], length[:w], shift),
                *((False, True, cost, lost), words),
            )
            if settled > 0:
                hold, cost, lost = np.int64(settled), new_cost, now_lost
                taken = np.int64(words[hold - 1].last_token)
        rest = _part(path, taken, num_tokens, hold, num_labels, taken)
        count, _, _, _ = _cut_path(
            *(tables, rest, word[hold:], length[hold:], shift),
            *((complete, False, cost, lost), words[hold:]),
        )
        count += hold
        for k in range(hold, count):
            words[k].first_token += taken
            words[k].last_token += taken
    else:
        count, _, _, _ = _cut_path(
            tables, path, word, length, shift, (complete, False, cost, lost), words
        )
        hold, taken = _num_settled(tables, path[0], words[:count], whole[0])
    end = np.int64(0)
    for i in range(taken, num_tokens):
        if not tables.filler[path[0][i]]:
            end = np.int64(path[2][i])
    return words[:count], hold, taken, cost, lost, end


@jit
def _num_settled(tables, token, words, num_whole):
    """Return the number of words within the settled tokens, and their tokens."""
    hold = np.int64(0)
    for i in range(len(words)):
        if tables.kind == ENDS:  # a word's label comes with the next token
            hold += np.int64(words[i].last_token < num_whole)
        else:
            hold += np.int64(words[i].first_token < num_whole)
    if tables.kind == BARE:
        last = token[num_whole - 1] if num_whole else 0
        if tables.alone or num_whole == 0 or tables.filler[last]:
            return hold, np.int64(num_whole)  # separators after a word belong to it
        hold -= 1  # the last word may continue
    return hold, np.int64(words[hold - 1].last_token) if hold else np.int64(0)


@jit
def write_texts(pieces, tokens, splits):
    """Return UTF-8 texts of bare tokens, words separated by spaces; their splits."""
    # `pieces`: characters of all tokens, their splits, which tokens begin words.
    characters, begin, begins_word = pieces
    size, written = np.int64(0), np.int64(0)
    for t in range(splits[0], splits[-1]):
        size += begin[tokens[t] + 1] - begin[tokens[t]] + 1
    text, ends = np.empty(size, np.uint8), np.zeros(len(splits), np.int64)
    for p in range(len(splits) - 1):
        apart = False
        for t in range(splits[p], splits[p + 1]):
            a, b = begin[tokens[t]], begin[tokens[t] + 1]
            apart = apart or begins_word[tokens[t]]
            if apart and a < b:
                if written > ends[p]:
                    text[written] = _SPACE
                    written += 1
                apart = False
            for k in range(a, b):
                text[written] = characters[k]
                written += 1
        ends[p + 1] = written
    return text[:written], ends


@jit
def _bare_spans(tables, token, spans):
    """Cut bare tokens at separators or word-start marks; return the number of words."""
    count, inside = 0, False
    for i in range(len(token)):
        if tables.filler[token[i]]:
            inside = False
            continue
        if not inside or tables.begins[token[i]]:
            spans[count, 0] = i
            count += 1
        spans[count - 1, 1] = i + 1
        inside = True
    return np.int64(count)


@jit
def _spans_at_ends(tables, token, label_token, length, spans):
    """Cut at labels: a word is the non-filler tokens since the previous word."""
    end = np.int64(0)
    for w in range(len(label_token)):
        begin, end = end, np.int64(label_token[w])
        if length[w] > 0:
            begin = end - length[w]
        while length[w] == 0 and begin < end and tables.filler[token[begin]]:
            begin += 1
        spans[w, 0], spans[w, 1] = begin, end


@jit
def _spans(tables, token, word, word_token, how):
    """Cut tokens into words: int32 [W, 2], positions in `token`, and how many hold."""
    # Keeps the cheapest segmentation for each end position; they are few. `how`:
    # whether the last word must be whole; whether more tokens may follow, so that only
    # words hold which these cannot change; cost and `lost` of the previous cut.
    complete, may_continue, cost_before, lost = how
    num_words, num_tokens = len(word), len(token)
    # A way: [position after the word, its first token, previous way], and its cost.
    ways = np.empty((32 + 2 * num_words, 3), np.int64)
    costs = np.empty(len(ways), np.float64)
    ways[0, 0], ways[0, 1], ways[0, 2] = 0, 0, -1
    costs[0] = cost_before
    lost_before, was_lost = lost, np.zeros(num_words, np.bool_)
    first, last, done = 0, 1, num_words
    for w in range(num_words):
        begin, open_end = last, False
        ends_path = w == num_words - 1 and not complete and not may_continue
        p_begin, p_end = 0, 0
        if word[w] + 1 < len(tables.word_splits):
            p_begin = tables.word_splits[word[w]]
            p_end = tables.word_splits[word[w] + 1]
        for way in range(first, begin):
            at, found = ways[way, 0], False
            while at <= num_tokens:
                for p in range(p_begin, p_end):
                    spelling = tables.tokens[tables.splits[p] : tables.splits[p + 1]]
                    behind = _match(token, at, spelling)
                    # The tokens end within it: no word, unless the path is complete.
                    if behind >= 0 and at + len(spelling) > num_tokens:
                        open_end = open_end or may_continue
                        behind = behind if ends_path else -1
                    if behind < 0:
                        continue
                    found = True
                    other = begin
                    while other < last and ways[other, 0] != behind:
                        other += 1
                    total = costs[way] + np.float64(tables.cost[p])
                    if other == last:
                        if last == len(ways):
                            ways, costs = twice(ways), longer(costs, 0)
                        last += 1
                    elif costs[other] <= total:
                        continue
                    ways[other, 0], ways[other, 1], ways[other, 2] = behind, at, way
                    costs[other] = total
                if at == num_tokens:
                    break
                if lost and (found or at >= word_token[w]):
                    break
                if not lost and not tables.filler[token[at]]:
                    break
                at += 1
        if word[w] == tables.open_word and word_token[w] <= num_tokens:
            end = np.int64(word_token[w])
            at, way = _open_word(tables, token, end, lost, (ways, costs, first, begin))
            if way >= 0:
                if last == len(ways):
                    ways, costs = twice(ways), longer(costs, 0)
                ways[last, 0], ways[last, 1], ways[last, 2] = end, at, way
                costs[last] = costs[way] + tables.token_cost * (end - at)
                last += 1
        lost = was_lost[w] = last == begin
        if may_continue and (open_end or (lost and word_token[w] > num_tokens)):
            done, last = w, begin
            break
        if lost:
            if last == len(ways):
                ways, costs = twice(ways), longer(costs, 0)
            way = first + np.argmin(costs[first:begin])
            end = min(max(np.int64(word_token[w]), ways[way, 0]), num_tokens)
            at = ways[way, 0]
            while at < end and tables.filler[token[at]]:
                at += 1
            while end > at and tables.filler[token[end - 1]]:
                end -= 1
            ways[last, 0], ways[last, 1], ways[last, 2] = end, at, way
            costs[last] = costs[way]
            last += 1
        first = begin
    best = _best_way(tables, token, complete, first, last, ways, costs)
    spans = np.zeros((num_words, 2), np.int32)
    way = best
    for w in range(done - 1, -1, -1):
        spans[w, 0], spans[w, 1], way = ways[way, 1], ways[way, 0], ways[way, 2]
    hold = done
    for other in range(first, last if may_continue else first):
        way, w = best, done - 1
        while other != way:
            if ways[other, 0] != ways[way, 0] or ways[other, 1] != ways[way, 1]:
                hold = min(hold, w)
            other, way, w = ways[other, 2], ways[way, 2], w - 1
    way = best
    for _ in range(done - hold):
        way = ways[way, 2]
    return spans, hold, costs[way], was_lost[hold - 1] if hold else lost_before


@jit
def _open_word(tables, token, end, lost, known):
    """Return the cheapest open word up to `end`: first token, previous way or -1."""
    ways, costs, first, begin = known
    best_at, best, least = np.int64(0), -1, np.inf
    for way in range(first, begin):
        at = ways[way, 0]
        while at < end and not _spells(tables, token, at, end):
            if not (lost or tables.filler[token[at]]):
                at = end
            at += 1
        total = costs[way] + tables.token_cost * (end - at)
        if at < end and total < least:
            best_at, best, least = at, way, total
    return best_at, best


@jit
def _spells(tables, token, at, end):
    if not tables.begins[token[at]]:
        return False
    for i in range(at + 1, end):
        if not tables.extends[token[i]]:
            return False
    return True


@jit
def _best_way(tables, token, complete, first, last, ways, costs):
    """Return the cheapest way; for a complete path, preferably without fillers left."""
    best, best_ends_well = first, False
    for way in range(first, last):
        rest = ways[way, 0]
        while rest < len(token) and tables.filler[token[rest]]:
            rest += 1
        ends_well = rest == len(token) or not complete
        cheaper = costs[way] < costs[best] and ends_well == best_ends_well
        if cheaper or (ends_well and not best_ends_well):
            best, best_ends_well = way, ends_well
    return best


@jit
def _match(token, at, spelling):
    """Return the position after `spelling` at `at` or where the tokens end; else -1."""
    end = min(at + len(spelling), len(token))
    for i in range(at, end):
        if token[i] != spelling[i - at]:
            return -1
    return end
