"""A set with a language model and a graph: what every benchmark runs on.

    inputs = Inputs(find_data(None), CACHE, limit=100)
    for case in make_cases(["dev:lm_books.3g", "heads-1024:pieces"], inputs): ...

    dev, hard, ljspeech   real speech: phones, a lexicon, a separator between words
    heads-256, heads-1024 real speech: word pieces, of the heads on Whisper
    FOLDER                what `tools.data.head_set` wrote

A language model is a name in the data or an ARPA file, over words; or `pieces`: trained
here over the pieces of a set, which is then decoded without a lexicon.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import data
from tools.bench.data import SpeechSet
from tools.peers.interface import PeerInputs
from wfstdec.errors import FormatError
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.tokens import TokenTable, read_tokens
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

PIECES = "pieces"
HEADS = {"heads-256": 256, "heads-1024": 1024}
"""Numbers of pieces of the sets of heads on Whisper."""


@dataclass(frozen=True)
class Inputs:
    """Source of cases.

    Attributes:
        data: The project's data, or a recipe.
        cache: For all that is made: graphs, language models, sets.
        limit: So many utterances of each set, evenly spread; None for all.
        lm_scale: With a language model over words.
        token_lm_scale: With one over tokens.
    """

    data: Path
    cache: Path
    limit: int | None = None
    lm_scale: float = 0.8
    token_lm_scale: float = 0.3

    @classmethod
    def of(cls, args: argparse.Namespace) -> Inputs:
        """Make inputs of flags; see `command.make_parser`."""
        found, scale = data.find_data(args.data), args.lm_scale
        token_scale = getattr(args, "token_lm_scale", cls.token_lm_scale)
        return cls(found, args.cache, args.utterances, scale, token_scale)


@dataclass(frozen=True, eq=False)
class Case:
    """A set with a language model.

    Attributes:
        speech: The utterances.
        lm: What reports call the language model.
        arpa: Its file.
        lm_scale: For everyone.
        graph: For decoders that search one; None where tokens are decoded.
    """

    speech: SpeechSet
    lm: str
    arpa: Path
    lm_scale: float
    graph: PackedGraph | None

    @property
    def name(self) -> str:
        """The set and the language model."""
        return f"{self.speech.name}:{self.lm}"

    @property
    def utterances(self) -> list[np.ndarray]:
        """The log-probs."""
        return list(self.speech.logprobs.values())

    @property
    def separator(self) -> str | None:
        """The token between words."""
        return self.speech.recipe.separator

    @cached_property
    def tokens(self) -> TokenTable:
        """The token table."""
        return read_tokens(self.speech.recipe.tokens)

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """Words that the language model has; None where tokens are decoded."""
        return None if self.graph is None else self.known_words()

    def known_words(self) -> Lexicon:
        """The recipe's words that the language model has."""
        recipe = self.speech.recipe
        whole = read_lexicon(recipe.lexicon, self.tokens, separator=recipe.separator)
        return whole.restrict(read_arpa(self.arpa).index)[0]

    @property
    def files(self) -> dict[str, Any]:
        """Inputs of decoders without a graph, by the names of arguments."""
        return {
            "tokens": self.tokens,
            "lexicon": self.lexicon,
            "lm": self.arpa,
            "separator": self.separator,
            "frame_shift_s": self.speech.frame_shift_s,
        }

    def wfst_decoder(
        self, options: WfstOptions, threads: int | None = 1, **more: Any
    ) -> WfstDecoder:
        """Ours on the graph, on the CPU; None for a thread per processor."""
        given = {"graph": self.graph, "frame_shift_s": self.speech.frame_shift_s}
        return WfstDecoder(
            **(given | more), options=options, backend="cpu", threads=threads
        )

    def trie_decoder(
        self,
        options: TrieOptions,
        threads: int | None = 1,
        backend: str = "cpu",
        **more: Any,
    ) -> TrieDecoder:
        """Ours on the lexicon's trie, or on bare tokens; `more` in place of others."""
        return TrieDecoder(
            **(self.files | more), options=options, backend=backend, threads=threads
        )

    def peer_inputs(self) -> PeerInputs:
        """Inputs that peers are made of."""
        return PeerInputs(
            tokens=self.tokens,
            graph=self.graph,
            lexicon=self.lexicon,
            arpa=str(self.arpa),
            separator=self.separator,
            lm_scale=self.lm_scale,
        )

    def headline(self) -> str:
        """The set and its size, in a line."""
        speech = self.speech
        note = f" ({speech.note})" if speech.note else ""
        return (
            f"{speech.name}{note}, {self.lm}: {len(speech.logprobs)} utterances, "
            f"{speech.audio_s / 3600:.3f} h, lm_scale {self.lm_scale}"
        )


def make_cases(names: Sequence[str], inputs: Inputs) -> Iterator[Case]:
    """A case for each `set:language model`; a FormatError where one is missing."""
    for name in names:
        wanted, colon, lm = name.rpartition(":")
        if not colon:
            raise FormatError(f"case {name!r}, expected 'set:language model'")
        yield make_case(load_set(wanted, inputs), lm, inputs)


def make_case(
    speech: SpeechSet, lm: str, inputs: Inputs, topology: str = "normal"
) -> Case:
    """A set with a language model, and their graph; a FormatError without the LM."""
    if lm == PIECES:
        arpa = _token_lm(speech, inputs)
        return Case(speech, lm, arpa, inputs.token_lm_scale, None)
    arpa = data.find_lm(lm, inputs.data)
    graph = data.build_or_load(speech.recipe, arpa, topology, inputs.cache)
    return Case(speech, data.name_of_lm(arpa), arpa, inputs.lm_scale, graph)


def default_case(args: argparse.Namespace, name: str = "dev") -> Case:
    """A set with the language model of `--lm`, or the data's first."""
    inputs = Inputs.of(args)
    lm = getattr(args, "lm", None) or data.default_lms(inputs.data)[0]
    return make_case(load_set(name, inputs), lm, inputs)


def load_set(name: str, inputs: Inputs) -> SpeechSet:
    """Load a set, of which one of the heads is made if it is not there."""
    if name in HEADS:
        folder = inputs.cache / name
        if not (folder / "parameters.json").exists():
            from tools.data import head_set  # needs torch and Whisper's weights

            print(f"making {name}", flush=True)
            given = inputs.data, head_set.HEADS, head_set.CACHE
            head_set.write_set(*given, HEADS[name], folder)
        name = str(folder)
    return data.load_set(name, inputs.data, inputs.limit)


def _token_lm(speech: SpeechSet, inputs: Inputs) -> Path:
    """A language model over the pieces of a set, as kept in the cache."""
    from tools.data import train_token_lm  # needs SentencePiece

    folder = speech.recipe.tokens.parent
    model, references = folder / "bpe.model", folder / "refs.txt"
    if not model.is_file():
        raise FormatError(f"{speech.name}: no pieces, expected a set of heads")
    key = data.file_key([model, references, Path(train_token_lm.__file__)])
    arpa = inputs.cache / f"pieces-{key}.arpa"
    if not arpa.exists():
        print(f"training {arpa.name}", flush=True)
        text = inputs.data / "text" / train_token_lm.TEXT.name
        train_token_lm.train(folder, arpa, text=text)
    return arpa
