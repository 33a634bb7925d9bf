"""What benchmarks run on: sets of posteriors, language models, graphs, the machine.

data = find_data(None)                       # ../shared/data, or the demo's recipe
speech = load_set("dev", data, limit=40)
graph = build_or_load(speech.recipe, find_lm("lm", data), "normal", cache)
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import wfstdec
from wfstdec import recipes
from wfstdec.compare import machine
from wfstdec.compare.speech import evenly_spaced
from wfstdec.errors import FormatError
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.text import read_text

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
CACHE = ROOT / "build" / "bench"
RECIPE = ROOT / recipes.RECIPE
FLATTEN = 0.4
"""What the log-probs of the hard set are multiplied by."""
_DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class Recipe:
    """What a graph is built from, but for its language model."""

    name: str
    tokens: Path
    lexicon: Path
    separator: str | None


@dataclass(frozen=True, eq=False)
class SpeechSet:
    """Utterances to decode.

    Attributes:
        name: What reports call it.
        note: How it came to be, where that must be said beside a figure.
        logprobs: float32 [T, V] per utterance.
        references: The words of each utterance.
        frame_shift_s: Seconds per frame.
        recipe: Builds graphs for it.
    """

    name: str
    note: str
    logprobs: dict[str, np.ndarray]
    references: dict[str, tuple[str, ...]]
    frame_shift_s: float
    recipe: Recipe

    @property
    def num_frames(self) -> int:
        """Frames of all utterances."""
        return sum(map(len, self.logprobs.values()))

    @property
    def seconds(self) -> float:
        """Seconds of all utterances."""
        return self.num_frames * self.frame_shift_s


def find_data(folder: Path | None) -> Path:
    """The folder as given, else the project's data, else the demo's recipe."""
    return folder or (DATA if DATA.is_dir() else RECIPE)


def is_recipe(data: Path) -> bool:
    """Whether a folder is a recipe of `graphs/` rather than the project's data."""
    return (data / "logprobs.npz").is_file()


def load_set(name: str, data: Path, limit: int | None = None) -> SpeechSet:
    """Load a set: `dev`, `hard` (dev, flattened), `ljspeech`, or a folder.

    Args:
        name: Of the set, or a folder that `make_synthetic.py` wrote.
        data: From `find_data`; a recipe has `dev` and `hard` alone.
        limit: So many utterances, evenly spread; None for all.

    Raises:
        FormatError: There is no such set.
    """
    if Path(name).is_dir():
        return _load_synthetic(Path(name), limit)
    if is_recipe(data):
        files = {"dev": (data / "logprobs.npz", data / "refs.txt")}
        lexicon, note = data / "lexicon.txt.gz", f"the recipe {data.name}"
    else:
        folder, lexicon, note = (
            data / "posteriors",
            data / "lexicon/lexicon_ipa.txt",
            "",
        )
        files = {
            key: (folder / f"{stem}.npz", folder / f"{stem}.txt")
            for key, stem in (("dev", "librispeech_dev"), ("ljspeech", "ljspeech"))
        }
    if name not in (*files, "hard"):
        known = ", ".join(map(repr, (*files, "hard")))
        raise FormatError(f"set {name!r}, expected {known} or a folder")
    logprobs, references = _read(*files["dev" if name == "hard" else name], limit)
    if name == "hard":
        note = f"dev, log-probs times {FLATTEN} and renormalised; {note}".rstrip("; ")
        logprobs = {u: flatten(x) for u, x in logprobs.items()}
    recipe = Recipe("phones", data / "tokens.txt", lexicon, "<wb>")
    return SpeechSet(name, note, logprobs, references, 0.02, recipe)


def flatten(logprobs: np.ndarray, scale: float = FLATTEN) -> np.ndarray:
    """A model less sure of itself: log-probs times a scale, each frame renormalised."""
    flat = logprobs * np.float32(scale)
    return flat - np.logaddexp.reduce(flat, axis=1, keepdims=True)


def lengthen(speech: SpeechSet, seconds: float, count: int) -> SpeechSet:
    """Long recordings: utterances one after the other, up to `count` of them.

    Each has at least so many seconds; what is left over at the end is dropped.
    """
    logprobs: dict[str, np.ndarray] = {}
    references: dict[str, tuple[str, ...]] = {}
    parts: list[str] = []
    for name in speech.logprobs:
        parts.append(name)
        frames = sum(len(speech.logprobs[part]) for part in parts)
        if frames * speech.frame_shift_s < seconds or len(logprobs) == count:
            continue
        logprobs[parts[0]] = np.concatenate([speech.logprobs[part] for part in parts])
        said = [word for part in parts for word in speech.references[part]]
        references[parts[0]], parts = tuple(said), []
    if not logprobs:
        raise FormatError(f"set {speech.name!r} has no {seconds:g} s, expected more")
    name = f"{speech.name}, {seconds:g} s long"
    return replace(speech, name=name, logprobs=logprobs, references=references)


def _load_synthetic(folder: Path, limit: int | None) -> SpeechSet:
    logprobs, references = _read(folder / "posteriors.npz", folder / "refs.txt", limit)
    parameters = json.loads((folder / "parameters.json").read_text("utf-8"))
    recipe = Recipe(folder.name, folder / "tokens.txt", folder / "lexicon.txt", None)
    num_tokens = next(iter(logprobs.values())).shape[1]
    return SpeechSet(
        name=folder.name,
        note=f"synthetic, V={num_tokens}",
        logprobs=logprobs,
        references=references,
        frame_shift_s=parameters["frame_shift_s"],
        recipe=recipe,
    )


def _read(
    logprobs: Path, references: Path, limit: int | None
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    words = read_text(references)
    chosen = set(evenly_spaced(list(words), limit))
    arrays = {
        utterance: np.ascontiguousarray(x, np.float32)
        for utterance, x in open_logprobs(logprobs)
        if utterance in chosen
    }
    return arrays, {utterance: words[utterance] for utterance in arrays}


def default_lms(data: Path) -> list[str]:
    """The language models to use where none are named."""
    return ["lm"] if is_recipe(data) else ["lm_books.3g_pruned", "lm_books.3g"]


def find_lm(name: str, data: Path) -> Path:
    """The ARPA file of that name in the data, or the path that it is.

    Raises:
        FormatError: There is none.
    """
    inside = data / "lm.arpa.gz" if is_recipe(data) else data / f"lm/{name}.arpa.gz"
    if inside.is_file() and inside.name == f"{name}.arpa.gz":
        return inside
    if Path(name).is_file():
        return Path(name)
    raise FormatError(f"language model {name!r}, expected {inside.name!r} or a file")


def build_or_load(
    recipe: Recipe, arpa: Path, topology: str, cache: Path
) -> wfstdec.PackedGraph:
    """A graph: as kept in the cache, if it is of the same making."""
    if is_recipe(arpa.parent) and recipe.tokens.parent == arpa.parent:
        return recipes.build_or_load(arpa.parent, topology)  # as the demo does
    stem = f"{recipe.name}-{arpa.name.split('.arpa')[0]}-{topology}"
    digest = _digest([recipe.tokens, recipe.lexicon, arpa])
    path = cache / f"{stem}-{digest}.npz"
    if path.exists():
        return wfstdec.load_graph(path)
    print(f"building {path.name}", flush=True)
    graph = wfstdec.build_graph(
        tokens=recipe.tokens,
        lexicon=recipe.lexicon,
        arpa=arpa,
        topology=topology,
        separator=recipe.separator,
        progress=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob(f"{stem}-{'?' * _DIGEST_CHARACTERS}.npz"):
        old.unlink()
    graph.save(path)
    return graph


def _digest(inputs: list[Path]) -> str:
    """Of the inputs and of the sources that build: a changed search builds nothing."""
    package = Path(wfstdec.__file__).parent
    sources = [*package.glob("*.py"), *package.glob("fst/*.py")]
    digest = hashlib.blake2b(digest_size=_DIGEST_CHARACTERS // 2)
    for path in [*inputs, *sorted(sources)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def describe_machine() -> dict[str, object]:
    """Processor, memory, versions and commit: nothing about who owns them."""
    return {**machine.describe_machine(), "commit": _commit()}


def _commit() -> str | None:
    """The commit checked out, with a `+` where the work tree's library differs.

    Where there is no repository, what WFSTDEC_COMMIT says.
    """
    if "WFSTDEC_COMMIT" in os.environ:
        return os.environ["WFSTDEC_COMMIT"] or None
    git = ["git", "-C", str(ROOT)]
    try:
        done = [
            subprocess.run([*git, *arguments], capture_output=True, text=True)
            for arguments in (
                ("rev-parse", "--short", "HEAD"),
                ("status", "--porcelain", "--", "wfstdec"),
            )
        ]
    except OSError:
        return None
    if any(one.returncode for one in done):
        return None
    return done[0].stdout.strip() + ("+" if done[1].stdout.strip() else "")
