"""What `bench_beam.py` runs on: sets with a language model over words or pieces.

for case in make_cases(["dev:lm_books.3g", "bpe-mid:pieces"], inputs): ...

    dev        LibriSpeech dev: phones, a lexicon, a separator between words
    bpe-*      synthetic, 1,024 pieces; `mild`, `mid` or `hard` says how noisy
    chars-*    the same with hardly more than letters
    FOLDER     what `make_synthetic.py` wrote

A language model is a name in the data or an ARPA file, over words; or `pieces`: trained
here over the pieces of a synthetic set, which is then decoded without a lexicon.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_data
import make_synthetic
import train_token_lm
from bench_data import SpeechSet

import wfstdec
from wfstdec.compare.points import PeerInputs
from wfstdec.errors import FormatError
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.symbols import TokenTable, read_tokens

PIECES = "pieces"
SYNTHETIC = {"bpe": 1024, "chars": 32}
"""Numbers of pieces, by the first part of a set's name."""


@dataclass(frozen=True)
class Inputs:
    """Where things come from and go to.

    Attributes:
        data: The project's data, or a recipe.
        cache: For graphs and language models that are made.
        synthetic: For sets that are made.
        limit: So many utterances of each set, evenly spread; None for all.
        lm_scale: With a language model over words.
        token_lm_scale: With one over tokens.
    """

    data: Path
    cache: Path
    synthetic: Path
    limit: int | None
    lm_scale: float
    token_lm_scale: float


@dataclass(frozen=True, eq=False)
class Case:
    """A set with a language model.

    Attributes:
        name: The set and the language model.
        speech: The utterances.
        tokens: The token table.
        lexicon: Words that the language model has; None where tokens are decoded.
        arpa: The language model.
        lm_scale: For everyone.
        graph: For the WFST decoder; None where tokens are decoded.
    """

    name: str
    speech: SpeechSet
    tokens: TokenTable
    lexicon: Lexicon | None
    arpa: Path
    lm_scale: float
    graph: wfstdec.PackedGraph | None

    @property
    def utterances(self) -> list:
        """The log-probs."""
        return list(self.speech.logprobs.values())

    @property
    def separator(self) -> str | None:
        """The token between words."""
        return self.speech.recipe.separator

    def peer_inputs(self) -> PeerInputs:
        """What peers are made of."""
        return PeerInputs(
            tokens=self.tokens,
            graph=self.graph,
            lexicon=self.lexicon,
            arpa=str(self.arpa),
            separator=self.separator,
            lm_scale=self.lm_scale,
        )


def make_cases(names: Sequence[str], inputs: Inputs) -> Iterator[Case]:
    """A case for each `set:language model`.

    Raises:
        FormatError: There is no such set or language model.
    """
    for name in names:
        wanted, colon, lm = name.rpartition(":")
        if not colon:
            raise FormatError(f"case {name!r}, expected 'set:language model'")
        speech = bench_data.load_set(
            _find_set(wanted, inputs), inputs.data, inputs.limit
        )
        tokens = read_tokens(speech.recipe.tokens)
        if lm == PIECES:
            arpa = _token_lm(speech, inputs)
            scale = inputs.token_lm_scale
            yield Case(name, speech, tokens, None, arpa, scale, None)
            continue
        arpa, recipe = bench_data.find_lm(lm, inputs.data), speech.recipe
        lexicon = read_lexicon(recipe.lexicon, tokens, separator=recipe.separator)
        known, _ = lexicon.restrict(read_arpa(arpa).index)
        graph = bench_data.build_or_load(recipe, arpa, "normal", inputs.cache)
        yield Case(name, speech, tokens, known, arpa, inputs.lm_scale, graph)


def _find_set(name: str, inputs: Inputs) -> str:
    """The name, or the folder of a synthetic set, which is made if it is not there."""
    kind, _, level = name.partition("-")
    if kind not in SYNTHETIC or level not in make_synthetic.LEVELS:
        return name
    folder = inputs.synthetic / name
    if not (folder / "parameters.json").exists():
        print(f"making {folder.name}", flush=True)
        make_synthetic.main(
            ["--data", str(inputs.data), "--out", str(folder), "--level", level]
            + ["--pieces", str(SYNTHETIC[kind]), "--no-compare"]
        )
    return str(folder)


def _token_lm(speech: SpeechSet, inputs: Inputs) -> Path:
    """A language model over the pieces of a synthetic set, as kept in the cache."""
    folder = speech.recipe.tokens.parent
    model, references = folder / "bpe.model", folder / "refs.txt"
    if not model.is_file():
        raise FormatError(f"{speech.name}: no pieces, expected a synthetic set")
    text = inputs.data / "text" / train_token_lm.TEXT.name
    digest = hashlib.blake2b(digest_size=6)
    for path in (model, references, Path(train_token_lm.__file__)):
        digest.update(path.read_bytes())
    arpa = inputs.cache / f"pieces-{digest.hexdigest()}.arpa"
    if not arpa.exists():
        print(f"training {arpa.name}", flush=True)
        train_token_lm.train(folder, arpa, text=text)
    return arpa
