"""Runs of one checkout under a profiler, for `tools.ways`: prints the files as JSON.

    PYTHONPATH=checkout python tools/ways_run.py boosts

Kernels run as Python here, so that a profiler sees them; models and log-probs are tiny.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np  # noqa: E402

import wfstdec.jit  # noqa: E402

ROOT = Path(wfstdec.__file__).parent
TOKENS = ["<blank>", "<wb>", "a", "b", "c", "d", "e"]
LEXICON = "ab\ta b\ncab\tc a b\nc\tc\nrare\tb b\nde\td e\n"
ARPA = """\\data\\
ngram 1=6
ngram 2=3

\\1-grams:
-0.7\tab\t-0.3
-0.7\tc\t-0.3
-0.7\tcab
-0.9\tde
-99\t<s>\t-0.3
-0.7\t</s>

\\2-grams:
-0.2\t<s> ab
-0.3\tab c
-0.4\tc ab

\\end\\
"""
WITH_UNK = ARPA.replace("1=6", "1=7").replace("-99\t", "-1.2\t<unk>\n-99\t")
GRAMMAR = "0 0 ab ab 1\n0 0 c c 1\n0 0 cab cab 1\n0 0 de de 2\n0 1\n"
KERNELS: set[CodeType] = set()


# ------------------------------------------------------------- kernels as Python
class Record(np.record):
    """A record whose fields are attributes, also those called like a method."""

    def __getattribute__(self, name: str) -> Any:
        fields = np.void.__getattribute__(self, "dtype").names
        return self[name] if name in fields else super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def as_records(value: Any) -> Any:
    """Arrays of records as arrays whose elements have attributes."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        return value.view(np.dtype((Record, value.dtype)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(as_records, value))
    return value


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel as Python, in the place of the decorators of `wfstdec.jit`."""
    KERNELS.add(function.__code__)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return as_records(function(*map(as_records, arguments)))

    return call


def with_records(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make arrays whose records have attributes, where a kernel asks for them."""

    def call(*arguments: Any, **named: Any) -> Any:
        made = make(*arguments, **named)
        return as_records(made) if sys._getframe(1).f_code in KERNELS else made

    return call


for _name in ("empty", "zeros"):
    setattr(np, _name, with_records(getattr(np, _name)))
for _name in ("jit", "kernel", "part", "inlined"):
    setattr(wfstdec.jit, _name, interpreted)
from wfstdec.jit import intrinsics  # noqa: E402

intrinsics.prefetch = lambda array, index: None
intrinsics.count_bits = lambda value: np.uint64(int(value).bit_count())
with contextlib.suppress(ImportError):  # checkouts of before have none
    from vectors_in_python import use_arrays

    from wfstdec.jit import vectors

    use_arrays(vectors)


# ---------------------------------------------------------------------- profiler
class Profile:
    """Functions of the package that run, and the files on the way to some of them.

    Args:
        known: Functions that are not counted: those that run without the feature.
        until: File and name of a function from whose first call on nothing is counted.
        holds: Whether a value is the data; then functions count that are given it, or
            return it. None counts those that are not known, and the functions of the
            host that wait for them.
    """

    def __init__(
        self,
        known: Iterable[CodeType] = (),
        until: tuple[str, str] | None = None,
        holds: Callable[[Any], bool] | None = None,
    ) -> None:
        self._known, self._until, self._holds = set(known), until, holds
        self._is_over = False
        self.ran: set[CodeType] = set()
        self.found: set[CodeType] = set()
        self._edges: set[tuple[CodeType, CodeType]] = set()

    def run(self, feature: Callable[[], Any]) -> Profile:
        """Run something under the profiler."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            feature()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        return self

    def files(self) -> dict[str, list[str]]:
        """Files of the functions that were found, kernels apart."""
        kinds: dict[str, set[str]] = {"host": set(), "kernels": set()}
        for code in self.found:
            kind = "kernels" if code in KERNELS else "host"
            kinds[kind].add(str(Path(code.co_filename).relative_to(ROOT)))
        return {kind: sorted(files) for kind, files in kinds.items()}

    def _see(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not _is_ours(code) or self._is_over:
            return
        self.ran.add(code)
        if self._until is not None and code.co_name == self._until[1]:
            self._is_over = code.co_filename.endswith(self._until[0])
        if self._holds is not None:
            given = [value] if event == "return" else frame.f_locals.values()
            if code not in self.found and any(map(self._holds, given)):
                self.found.add(code)
        elif event == "call" and code not in self._known:
            self._walk(frame)

    def _walk(self, frame: FrameType) -> None:
        above = frame.f_back
        self.found.add(frame.f_code)
        if above is None or (frame.f_code, above.f_code) in self._edges:
            return
        self._edges.add((frame.f_code, above.f_code))
        while above is not None:
            if _is_ours(above.f_code) and above.f_code not in KERNELS:
                self.found.add(above.f_code)
            above = above.f_back


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(str(ROOT))


def is_logprobs(value: Any) -> bool:
    """Tell whether something is log-probs of an utterance, a frame, or several."""
    if isinstance(value, np.ndarray):
        frames = value.ndim in (1, 2) and value.shape[-1] == len(TOKENS)
        return frames and value.dtype == np.float32 and bool((value < -1e-3).all())
    if isinstance(value, list | tuple):
        return any(map(is_logprobs, value[:2]))
    return False


# -------------------------------------------------------------------- small runs
def write_files(folder: Path) -> None:
    """Put all that the commands read into a folder."""
    texts = {
        "tokens.txt": "".join(f"{token}\n" for token in TOKENS),
        "lexicon.txt": LEXICON,
        "lm.arpa": ARPA,
        "unk.arpa": WITH_UNK,
        "grammar.txt": GRAMMAR,
        "listed.txt": "ab\t1\nde\t2\nab c\t1.5\n",
        "known.txt": "ab\t1\nde\t2\n",
        "oov.txt": "ab\t1\ndea\t2\n",
        "g2p.txt": "dea\td e a\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    rng = np.random.default_rng(3)
    tokens = [0, 2, 3, 0, 1, 4, 4, 0, 1, 5, 6, 2, 0]
    rows = rng.uniform(-9.0, -6.0, (len(tokens), len(TOKENS))).astype(np.float32)
    rows[np.arange(len(tokens)), tokens] = -0.01
    np.savez(folder / "x.npz", utt1=rows)


def command(*arguments: str) -> Callable[[], Any]:
    """A command of the command line, in the current folder."""
    from wfstdec.cli.main import main

    def run() -> None:
        status = main([*arguments, "--quiet"])
        assert status == 0, (status, arguments)

    return run


_TABLES = ("--tokens", "tokens.txt", "--separator", "<wb>", "--lexicon", "lexicon.txt")
_BUILD = ("build", *_TABLES, "--output", "graph.npz")
_DECODE = ("decode", "--logprobs", "x.npz", "--output", "out.jsonl")
_WFST = (*_DECODE, "--graph", "graph.npz", "--threads", "1")
_TRIE = (*_DECODE, "--decoder", "trie", *_TABLES, "--threads", "1")
_ARPA, _WITH_UNK = ("--arpa", "lm.arpa"), ("--arpa", "unk.arpa")
_LISTED, _KNOWN = ("--boost", "listed.txt"), ("--boost", "known.txt")
_OOV = ("--boost", "oov.txt", "--g2p", "g2p.txt")
_RESCORE = ("rescore", "--lattices", "x.lat", "--nbest", "3", "--output", "out.jsonl")

_Arguments = tuple[str, ...]
DIFFERENCES: dict[str, list[tuple[_Arguments, _Arguments]]] = {
    "boosts": [
        ((*_WFST, *_LISTED), _WFST),
        ((*_TRIE, *_ARPA, *_LISTED), (*_TRIE, *_ARPA)),
    ],
    "ARPA": [
        ((*_BUILD, *_ARPA), (*_BUILD, "--grammar", "grammar.txt")),
        ((*_TRIE, *_ARPA), _TRIE),
    ],
    "lattice of the WFST": [((*_WFST, "--nbest", "3"), _WFST)],
    "lattice of the trie": [
        ((*_TRIE, *_ARPA, "--lattices", "x.lat"), (*_TRIE, *_ARPA)),
        (_RESCORE, (*_TRIE, *_ARPA)),
    ],
    "OOV words": [
        ((*_BUILD, *_WITH_UNK), (*_BUILD, *_ARPA)),
        ((*_WFST, *_OOV), (*_WFST, *_KNOWN)),
    ],
}
"""Commands with a feature, each with one without it, by way."""
UNTIL = {"ARPA": ("search/decoder.py", "decode")}
"""Where a way ends, if before the end of the command."""
WAYS = ("log-probs", *DIFFERENCES, "pyctcdecode")


def way(name: str) -> dict[str, list[str]]:
    """Files on a way of the data."""
    command(*_BUILD, *_WITH_UNK)()
    if name == "log-probs":
        command(*_WFST)()
        return Profile(holds=is_logprobs).run(command(*_WFST)).files()
    if name == "pyctcdecode":
        return _pyctcdecode()
    found: dict[str, set[str]] = {"host": set(), "kernels": set()}
    for feature, without in DIFFERENCES[name]:
        command(*feature)()  # what is imported late is there from now on
        known = Profile().run(command(*without)).ran
        command(*_BUILD, *_WITH_UNK)()
        files = Profile(known, UNTIL.get(name)).run(command(*feature)).files()
        for kind in found:
            found[kind].update(files[kind])
    return {kind: sorted(files) for kind, files in found.items()}


def _pyctcdecode() -> dict[str, list[str]]:
    from wfstdec.adapters.pyctcdecode import build_ctcdecoder

    labels = ["", " ", "a", "b", "c", "d", "e"]
    decoder = build_ctcdecoder(labels, "lm.arpa", ["ab", "c", "cab", "de"])
    rows = np.load("x.npz")["utt1"]
    decoder.decode(rows)
    profile = Profile().run(lambda: decoder.decode(rows, hotwords=["ab"]))
    return profile.files()


def main() -> int:
    """Print the files of each way that is named."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        os.chdir(folder)
        write_files(Path(folder))
        for name in sys.argv[1:]:
            found[name] = way(name)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
