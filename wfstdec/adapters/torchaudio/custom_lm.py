"""The classes that a user's own language model is made of, as torchaudio has them.

    class MyLM(CTCDecoderLM):
        def start(self, start_with_nothing):
            return CTCDecoderLMState()
        def score(self, state, usr_token_idx):
            return state.child(usr_token_idx), -1.5
        def finish(self, state):
            return state, 0.0

    ctc_decoder(lexicon, tokens, lm=MyLM(), lm_dict="words.txt")

Two states are one where they are one object: `child` sees to that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class CTCDecoderLMState:
    """A state of a language model: a history, and those that follow it."""

    def __init__(self) -> None:
        self._children: dict[int, CTCDecoderLMState] = {}

    @property
    def children(self) -> dict[int, CTCDecoderLMState]:
        """The states that follow this one, by label."""
        return self._children

    def child(self, usr_index: int) -> CTCDecoderLMState:
        """The state that follows by a label, made when it is first asked for."""
        index = int(usr_index)
        if index not in self._children:
            self._children[index] = CTCDecoderLMState()
        return self._children[index]

    def compare(self, state: CTCDecoderLMState) -> int:
        """0 where both are one; else -1 or 1."""
        if self is state:
            return 0
        return -1 if id(self) < id(state) else 1


class CTCDecoderLM(ABC):
    """A language model of the user's, over the words of a lexicon or over tokens.

    Labels are positions in `lm_dict`, or where there is none those of the lexicon's
    words in the order of its file (`<unk>` the last), or tokens. Scores are scaled by
    `lm_weight` and higher is better. A state is asked for a label once in an utterance.
    """

    @abstractmethod
    def start(self, start_with_nothing: bool) -> CTCDecoderLMState:
        """The state before an utterance; called at the beginning of each."""

    @abstractmethod
    def score(
        self, state: CTCDecoderLMState, usr_token_idx: int
    ) -> tuple[CTCDecoderLMState, float]:
        """The state after a label, and the label's score."""

    @abstractmethod
    def finish(self, state: CTCDecoderLMState) -> tuple[CTCDecoderLMState, float]:
        """The state after the end of an utterance, and the end's score."""
