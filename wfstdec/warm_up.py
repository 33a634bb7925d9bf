"""Compiling the kernels that most users need, side by side on all cores.

    warm_up(USUAL)            # in processes of their own
    python -m wfstdec.warm_up wfst-lattices trie

A way is a small run through the public interface: a language of three words, a few
frames of speech. What it compiles is kept by `wfstdec.jit.cache`; installation gathers
it into the package, and `wfstdec warm-up` leaves it in the cache of the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec
from wfstdec.errors import BackendError
from wfstdec.jit.cache import COMPILED, ENTRY, LEVEL, has_level

_TOKENS = ("<blk>", "<wb>", "a", "b", "c")
_LEXICON = "ab a b\nba b a\nba b c a\ncab c a b\n"
_ARPA = r"""\data\
ngram 1=6
ngram 2=4
ngram 3=2

\1-grams:
-99 <s> -0.3
-0.9 </s>
-0.6 ab -0.3
-0.7 ba -0.2
-0.8 cab -0.1
-1.9 <unk>

\2-grams:
-0.4 <s> ab -0.1
-0.5 ab ba -0.1
-0.6 ba </s>
-0.7 ba cab -0.1

\3-grams:
-0.2 <s> ab ba
-0.3 ab ba </s>

\end\
"""
_SPOKEN = (0, 2, 0, 3, 1, 3, 2, 0)


def _logprobs() -> np.ndarray:
    """Log-probs of a few words, float32 [T, V]."""
    rows = np.full((len(_SPOKEN), len(_TOKENS)), 0.05, np.float32)
    rows[np.arange(len(_SPOKEN)), _SPOKEN] = 0.8
    return np.log(rows)


def _files(folder: str) -> dict[str, Path]:
    """Write tokens, lexicon and language model; the paths."""
    texts = {"tokens": "\n".join(_TOKENS) + "\n", "lexicon": _LEXICON, "arpa": _ARPA}
    paths = {name: Path(folder) / f"{name}.txt" for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text, "utf-8")
    return paths


def _graph() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return wfstdec.build_graph(**_files(folder), separator="<wb>")  # type: ignore[arg-type]


def _wfst() -> Any:
    return wfstdec.WfstDecoder(_graph())


def _trie(**options: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        paths = _files(folder)
        return wfstdec.TrieDecoder(
            tokens=paths["tokens"],
            lexicon=paths["lexicon"],
            lm=paths["arpa"],
            separator="<wb>",
            options=wfstdec.TrieOptions(**options),
        )


_BOOSTS: dict[str, Callable[[Any], Any]] = {
    "words": lambda decoder: {"ab": 1.0, "ba": 2.0},
    "numberless": lambda decoder: ["ab"],
    "oov": lambda decoder: [wfstdec.BoostEntry("bac", ["b a c"], 2.0)],
    "phrases": lambda decoder: decoder.phrase_compiler().compile({"ab ba": 1.0}),
}


def _boosted(make: Callable[[], Any], *kinds: str) -> Callable[[], None]:
    """Whole utterances and sessions with lists of some kinds."""

    def run() -> None:
        decoder = make()
        for kind in kinds:
            decoder.warm_up(_BOOSTS[kind](decoder), lattices=False)

    return run


def _wfst_lattices() -> None:
    lattice = _wfst().decode_lattice([_logprobs()])[0]
    assert wfstdec.lattice_hypotheses(lattice, 3)[0].words
    decoder = _wfst().with_options(nbest=3)
    assert decoder.decode_nbest([_logprobs()])[0][0].words


def _wfst_sessions() -> None:
    sessions = _wfst().sessions()
    one = sessions.open()
    sessions.advance({one: _logprobs()})
    sessions.partial(one)
    assert sessions.close(one).words


def _trie_nbest() -> None:
    """Fields of hypotheses are made when they are asked for."""
    assert _trie(nbest=3).decode_nbest([_logprobs()])[0][0].words


USUAL: dict[str, Callable[[], None]] = {
    "trie": _trie_nbest,
    "wfst-lattices": _wfst_lattices,
    "wfst-boosts": _boosted(_wfst, "words", "numberless", "phrases"),
    "wfst-oov": _boosted(_wfst, "oov"),
    "wfst-sessions": _wfst_sessions,
    "trie-sessions": lambda: _trie().warm_up({"ab": 1.0}, lattices=False),
}
"""What installation compiles, the longest first."""

ALL: dict[str, Callable[[], None]] = {
    **USUAL,
    "wfst-all": lambda: _wfst().warm_up(),
    "trie-all": lambda: _trie().warm_up(),
    "greedy": lambda: wfstdec.GreedyDecoder(tokens=_token_table()).warm_up(),
    "align": lambda: _align(),
}
"""What `wfstdec warm-up --all` compiles."""


def _token_table() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return wfstdec.read_tokens(_files(folder)["tokens"])


def _align() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = _files(folder)
        aligner = wfstdec.ForcedAligner(
            paths["tokens"], paths["lexicon"], separator="<wb>"
        )
        aligner.align(_logprobs(), "ab ba")


def warm_up(ways: Iterable[str], environment: dict[str, str] | None = None) -> None:
    """Run ways, each in a process of its own, as many at a time as there are cores.

    Args:
        ways: Names of `ALL`.
        environment: Variables that the processes are given besides those of this one.

    Raises:
        BackendError: A process failed.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        started = [(way, pool.submit(_start, way, environment)) for way in ways]
        for way, process in [(way, done.result()) for way, done in started]:
            if process.returncode:
                last = "".join(process.stderr.splitlines()[-1:])
                raise BackendError(
                    f"warming up {way!r} ended with {process.returncode}: {last}"
                )


def compile_ahead(package: Path) -> int:
    """Compile the usual kernels for all machines of a level, into a package.

    Args:
        package: The folder of `wfstdec` that is to have them.

    Returns:
        How many kernels there are; 0 where this machine is not of the level.

    Raises:
        BackendError: A process failed.
    """
    target = package / COMPILED.relative_to(Path(__file__).parent)
    shutil.rmtree(target, ignore_errors=True)
    if not has_level():
        return 0
    with tempfile.TemporaryDirectory() as kept:
        level = {"NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": ""}
        try:
            warm_up(USUAL, {**level, "NUMBA_CACHE_DIR": kept})
        finally:  # what other ways compiled is of use all the same
            target.mkdir(parents=True)
            kernels = list(Path(kept).glob(f"*/*{ENTRY}"))
            for path in kernels:
                shutil.copy(path, target)
    return len(kernels)


def _start(way: str, environment: dict[str, str] | None) -> Any:
    root = str(Path(wfstdec.__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "wfstdec.warm_up", way],
        env={**os.environ, **(environment or {}), "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    import gc
    import warnings

    gc.disable()  # compiling makes many objects, and the process ends soon
    warnings.simplefilter("ignore")
    for _name in sys.argv[1:]:
        ALL[_name]()
