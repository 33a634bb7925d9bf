"""Data of benchmarks: sets of posteriors, language models, graphs.

data = find_data(None)                       # ../shared/data, or the demo's recipe
speech = load_set("dev", data, limit=40)
graph = build_or_load(speech.recipe, find_lm("lm", data), "normal", cache)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import wfstdec
from wfstdec import recipes
from wfstdec.compare.speech import Speech, read_speech
from wfstdec.errors import FormatError
from wfstdec.text.files import atomic_write, read_lines

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
CACHE = ROOT / "build" / "bench"
RECIPE = ROOT / recipes.RECIPE
FLATTEN = 0.4
"""What the log-probs of the hard set are multiplied by."""
BUILDERS = ("text", "graph", "lm", "fst", "jit")
"""The rooms of the package that building a graph runs."""
PHONES = dict(
    pair.split("=")
    for pair in """
    AA=ɑ AE=æ AH0=ə AH=ʌ AO=ɔ AW=aʊ AY=aɪ B=b CH=t͡ʃ D=d DH=ð EH=ɛ ER=ɝ EY=eɪ F=f G=g
    HH=h IH=ɪ IY=i JH=d͡ʒ K=k L=l M=m N=n NG=ŋ OW=oʊ OY=ɔɪ P=p R=ɹ S=s SH=ʃ T=t TH=θ
    UH=ʊ UW=u V=v W=w Y=j Z=z ZH=ʒ
    """.split()
)
"""cmudict's phones, without stress where it does not matter, as tokens."""
_DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class Recipe:
    """Files that a graph is built from, but for its language model."""

    name: str
    tokens: Path
    lexicon: Path
    separator: str | None


@dataclass(frozen=True, eq=False, kw_only=True)
class SpeechSet(Speech):
    """Utterances to decode, with references.

    Attributes:
        name: What reports call it.
        recipe: Builds graphs for it.
        note: How it came to be, where a figure must have that.
    """

    name: str
    recipe: Recipe
    note: str = ""

    def take(self, names: Iterable[str]) -> SpeechSet:
        """Take some of the utterances."""
        logprobs = {name: self.logprobs[name] for name in names}
        references = {name: self.references[name] for name in logprobs}
        return replace(self, logprobs=logprobs, references=references)


def find_data(folder: Path | None) -> Path:
    """The folder as given, else the project's data, else the demo's recipe."""
    return folder or (DATA if DATA.is_dir() else RECIPE)


def is_recipe(data: Path) -> bool:
    """Tell whether a folder is a recipe of `graphs/` rather than the project's data."""
    return (data / "logprobs.npz").is_file()


def load_set(name: str, data: Path, limit: int | None = None) -> SpeechSet:
    """Load a set: `dev`, `hard` (dev, flattened), `ljspeech`, or a folder.

    Args:
        name: Of the set, or a folder that `tools.data.head_set` wrote.
        data: From `find_data`; a recipe has `dev` and `hard` alone.
        limit: So many utterances, evenly spread; None for all.

    Raises:
        FormatError: There is no such set.
    """
    if Path(name).is_dir():
        return _load_folder(Path(name), limit)
    if is_recipe(data):
        files = {"dev": (data / "logprobs.npz", data / "refs.txt")}
        lexicon, note = data / "lexicon.txt.gz", f"the recipe {data.name}"
    else:
        stems = {"dev": "librispeech_dev", "ljspeech": "ljspeech"}
        folder = data / "posteriors"
        files = {
            key: (folder / f"{stem}.npz", folder / f"{stem}.txt")
            for key, stem in stems.items()
        }
        lexicon, note = data / "lexicon" / "lexicon_ipa.txt", ""
    if name not in (*files, "hard"):
        known = ", ".join(map(repr, (*files, "hard")))
        raise FormatError(f"set {name!r}, expected {known} or a folder")
    recipe = Recipe("phones", data / "tokens.txt", lexicon, "<wb>")
    source = files["dev" if name == "hard" else name]
    speech = _named(read_speech(*source, limit=limit), name, recipe, note)
    if name != "hard":
        return speech
    note = f"dev, log-probs times {FLATTEN} and renormalised; {note}".rstrip("; ")
    flat = {utterance: flatten(x) for utterance, x in speech.logprobs.items()}
    return replace(speech, logprobs=flat, note=note)


def _load_folder(folder: Path, limit: int | None) -> SpeechSet:
    parameters = json.loads((folder / "parameters.json").read_text("utf-8"))
    recipe = Recipe(folder.name, folder / "tokens.txt", folder / "lexicon.txt", None)
    speech = read_speech(
        folder / "posteriors.npz",
        folder / "refs.txt",
        limit=limit,
        frame_shift_s=parameters["frame_shift_s"],
    )
    num_tokens = next(iter(speech.logprobs.values())).shape[1]
    return _named(speech, folder.name, recipe, f"V={num_tokens}")


def _named(speech: Speech, name: str, recipe: Recipe, note: str) -> SpeechSet:
    return SpeechSet(**vars(speech), name=name, recipe=recipe, note=note)


def flatten(logprobs: np.ndarray, scale: float = FLATTEN) -> np.ndarray:
    """A model less sure of itself: log-probs times a scale, each frame renormalised."""
    flat = logprobs * np.float32(scale)
    return flat - np.logaddexp.reduce(flat, axis=1, keepdims=True)


def read_cmudict(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Words and their phones as tokens; a word comes again with each alternate."""
    for line in read_lines(path):
        word, *phones = line.split("#")[0].split()
        names = (PHONES.get(phone) or PHONES[phone.rstrip("012")] for phone in phones)
        yield re.sub(r"\(\d+\)$", "", word), tuple(names)


def write_arpa(path: Path, orders: Sequence[Sequence[Sequence[str]]]) -> None:
    """Write a language model.

    Args:
        path: The file.
        orders: The fields of each n-gram, order by order: the log10 of its probability,
            its words with spaces between them, the weight of its back-off if any.
    """
    with atomic_write(path, "w") as file:
        file.write("\\data\\\n")
        for n, grams in enumerate(orders, 1):
            file.write(f"ngram {n}={len(grams)}\n")
        for n, grams in enumerate(orders, 1):
            file.write(f"\n\\{n}-grams:\n")
            file.writelines("\t".join(fields) + "\n" for fields in grams)
        file.write("\n\\end\\\n")


def model_files(data: Path) -> tuple[Path, Path]:
    """The waveform model of the project's data, and its tokens."""
    folder = data / "model"
    return next(folder.glob("*.onnx")), next(folder.glob("*_tokens.txt"))


def default_lms(data: Path) -> list[str]:
    """The language models to use where none are named."""
    return ["lm"] if is_recipe(data) else ["lm_books.3g_pruned", "lm_books.3g"]


def find_lm(name: str, data: Path) -> Path:
    """The ARPA file of that name in the data, or the path that it is."""
    inside = data / "lm.arpa.gz" if is_recipe(data) else data / f"lm/{name}.arpa.gz"
    if inside.is_file() and inside.name == f"{name}.arpa.gz":
        return inside
    if Path(name).is_file():
        return Path(name)
    raise FormatError(f"language model {name!r}, expected {inside.name!r} or a file")


def name_of_lm(arpa: Path) -> str:
    """Name a language model as reports call it."""
    return arpa.name.split(".arpa")[0]


def build_or_load(
    recipe: Recipe, arpa: Path, topology: str, cache: Path
) -> wfstdec.PackedGraph:
    """A graph: as kept in the cache, if it is of the same making."""
    stem = f"{recipe.name}-{name_of_lm(arpa)}-{topology}"
    path = cache / f"{stem}-{graph_key([recipe.tokens, recipe.lexicon, arpa])}.npz"
    if path.exists():
        return wfstdec.load_graph(path)
    print(f"building {path.name}", flush=True)
    graph = wfstdec.build_graph(
        tokens=recipe.tokens,
        lexicon=recipe.lexicon,
        lm=arpa,
        topology=topology,
        separator=recipe.separator,
        progress=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob(f"{stem}-{'?' * _DIGEST_CHARACTERS}.npz"):
        old.unlink()
    graph.save(path)
    return graph


def graph_key(inputs: Sequence[Path]) -> str:
    """Hash the inputs and all sources that build: a changed search builds nothing."""
    package = Path(wfstdec.__file__).parent
    sources = [
        source for room in BUILDERS for source in package.glob(f"{room}/**/*.py")
    ]
    return file_key([*inputs, *sorted(sources)])


def file_key(paths: Iterable[Path]) -> str:
    """A name for what files hold."""
    digest = hashlib.blake2b(digest_size=_DIGEST_CHARACTERS // 2)
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()
