"""Search of an utterance by kernels; what is too small grows, the host is asked.

store = passed(store, search, kept_tokens, asked, pace)    # `begin` made it ready
found = read_endings(ended(store, search, asked), 1)       # `Found`, best first
"""

from __future__ import annotations

import time
from typing import Any

from wfstdec.adapters.pyctcdecode import kernels
from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.logprobs import KeptTokens
from wfstdec.adapters.pyctcdecode.prefix_tree import enlarged
from wfstdec.adapters.pyctcdecode.results import text_of
from wfstdec.search.interrupts import Pace, check


class AskedModel:
    """A language model in Python for one utterance: scores texts and parts.

    Args:
        model: With the methods of `AbstractLanguageModel`.
        start_state: The state before the utterance.
        faithful: An utterance that ends in a space ends with an empty word.
    """

    def __init__(self, model: Any, start_state: Any, faithful: bool) -> None:
        self._model, self._faithful = model, faithful
        self.states = [start_state]

    def answer(self, search: k.Search, store: k.Store) -> None:
        """Score what a kernel asks for while the utterance goes on."""
        for asked in store.asks[: store.counts[k.ASKS]].tolist():
            if asked < 0:
                part = store.parts[-1 - asked]
                if not part["is_scored"]:
                    text = text_of(store, -1 - asked)
                    part["score"] = self._model.score_partial_token(text)
                    part["is_scored"] = True
            elif not store.texts[asked]["is_scored"]:
                self._score(search, store, asked)

    def _score(self, search: k.Search, store: k.Store, node: int) -> None:
        text = store.texts[node]
        before = store.texts[text["parent"]]
        state, word = self.states[before["state"]], text_of(store, int(text["word"]))
        score, after = self._model.score(state, word, is_last_word=False)
        text["raw"] = before["raw"] + score
        hot = search.params.hotword_weight * int(text["hot_words"])
        text["score"] = text["raw"] + hot
        text["state"] = len(self.states)
        text["is_scored"] = True
        self.states.append(after)

    def answer_endings(self, search: k.Search, store: k.Store) -> None:
        """Score whole utterances."""
        count = store.counts[k.ASKS]
        asked = store.asks[:count].tolist()
        spaced = {
            int(entry["text"])
            for entry in store.entries[:count]
            if not entry["word_end"]
        }
        for node in asked:
            if not store.texts[node]["is_scored"]:
                self._score(search, store, node)
        ended = [
            self._say_nothing(store, node)
            if self._faithful and node in spaced
            else (self._end(store, node), int(store.texts[node]["state"]))
            for node in asked
        ]
        for node, (score, state) in zip(asked, ended, strict=True):
            text = store.texts[node]
            text["ended"], text["state"] = text["raw"] + score, state
            text["is_ended"] = True

    def _say_nothing(self, store: k.Store, node: int) -> tuple[float, int]:
        """Score the end of an utterance as an empty word; the state behind it."""
        before = self.states[store.texts[node]["state"]]
        score, after = self._model.score(before, "", is_last_word=True)
        self.states.append(after)
        return score, len(self.states) - 1

    def _end(self, store: k.Store, node: int) -> float:
        """Score the end: asked for, or the difference that it makes to a word."""
        text = store.texts[node]
        if hasattr(self._model, "score_end"):
            return self._model.score_end(self.states[text["state"]])
        before = self.states[store.texts[max(int(text["parent"]), 0)]["state"]]
        word = text_of(store, int(text["word"]))
        ended = self._model.score(before, word, is_last_word=True)[0]
        return ended - self._model.score(before, word, is_last_word=False)[0]


def passed(
    store: k.Store,
    search: k.Search,
    kept: KeptTokens,
    asked: AskedModel | None,
    pace: Pace,
) -> k.Store:
    """Pass the beams of a store through frames.

    Args:
        store: The utterance.
        search: What is searched with.
        kept: The frames.
        asked: The model that the host asks; None where the kernels have it.
        pace: Of searches like this.

    Returns:
        The store, or a larger one that took its place.
    """
    frame, num_frames = 0, len(kept.splits) - 1
    while frame < num_frames:
        part = kept.splits[: frame + pace.frames + 1]
        before, began = frame, time.perf_counter()
        status, frame = kernels.advance(
            search, store, part, kept.tokens, kept.logps, frame
        )
        if status == k.ASK:
            assert asked is not None
            asked.answer(search, store)
        elif status != k.OK:
            store = enlarged(store, status)
        else:
            pace.note(frame - before, time.perf_counter() - began)
        if frame < num_frames:
            check()
    return store


def ended(store: k.Store, search: k.Search, asked: AskedModel | None) -> k.Store:
    """End the utterance of a store, which leaves its endings there."""
    status = kernels.finish(search, store)
    while status != k.OK:
        if status == k.ASK:
            assert asked is not None
            asked.answer_endings(search, store)
        else:
            store = enlarged(store, status)
        status = kernels.finish(search, store)
    return store
