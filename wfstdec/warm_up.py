"""Compilation of the usual kernels, in parallel on all cores.

    warm_up(USUAL)            # in separate processes
    python -m wfstdec.warm_up rows-lattices trie

A way is a small run through the public interface: a language of three words, a few
frames of speech. `wfstdec.jit.cache` stores the kernels; installation moves them into
the package, and `wfstdec warm-up` leaves them in the cache of the machine.
"""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec
from wfstdec.errors import BackendError
from wfstdec.jit.cache import COMPILED, ENTRY, LEVEL, compile_for_a_package, has_level
from wfstdec.readable.itn import load_itn
from wfstdec.readable.punctuation import load_punctuation

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
_NO_PARTS = "--no-parts"
PROCESS_BYTES = 1_700_000_000
"""Memory for each compiling process; the largest takes 1.5 GB."""
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Limits of control groups, versions 2 and 1."""


def _logprobs() -> np.ndarray:
    rows = np.full((len(_SPOKEN), len(_TOKENS)), 0.05, np.float32)
    rows[np.arange(len(_SPOKEN)), _SPOKEN] = 0.8
    return np.log(rows)


def _of_files(make: Callable[..., Any], names: str, **given: Any) -> Any:
    """Call `make` with some of tokens, lexicon and lm as temporary files."""
    texts = {"tokens": "\n".join(_TOKENS) + "\n", "lexicon": _LEXICON, "lm": _ARPA}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.txt" for name in names.split()}
        for name, path in paths.items():
            path.write_text(texts[name], "utf-8")
        return make(**paths, **given)


def _graph(**options: Any) -> Any:
    names = "tokens lexicon lm"
    return _of_files(wfstdec.build_graph, names, separator="<wb>", **options)


def _wfst(**options: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        _graph(**options).save(path)
        return wfstdec.WfstDecoder(wfstdec.load_graph(path))


def _trie(**options: Any) -> Any:
    given = {"separator": "<wb>", "options": wfstdec.TrieOptions(**options)}
    return _of_files(wfstdec.TrieDecoder, "tokens lexicon lm", **given)


_BOOSTS: dict[str, Callable[[Any], Any]] = {
    "words": lambda decoder: {"ab": 1.0, "ba": 2.0},
    "numberless": lambda decoder: ["ab"],
    "oov": lambda decoder: [wfstdec.BoostEntry("bac", ["b a c"], 2.0)],
    "names": lambda decoder: [wfstdec.BoostEntry("bac", ["b a c"]), "ab", "ab ba"],
    "phrases": lambda decoder: decoder.phrase_compiler().compile({"ab ba": 1.0}),
}


def _boosted(make: Callable[[], Any], *kinds: str) -> Callable[[], None]:
    """Run utterances and sessions with several kinds of lists."""

    def run() -> None:
        decoder = make()
        for kind in kinds:
            decoder.warm_up(_BOOSTS[kind](decoder), lattices=False)

    return run


def _wfst_lattices() -> None:
    decoder, logprobs = _wfst(), [_logprobs()]
    assert wfstdec.lattice_hypotheses(decoder.decode_lattice(logprobs)[0], 3)[0].words
    assert decoder.decode(logprobs, confidence=True)[0].words
    assert decoder.with_options(nbest=3).decode_nbest(logprobs)[0][0].words


def _wfst_sessions() -> None:
    sessions = _wfst().sessions()
    one = sessions.open()
    sessions.advance({one: _logprobs()})
    sessions.partial(one)
    assert sessions.close(one).words


def _align() -> None:
    names, given = "tokens lexicon", {"separator": "<wb>"}
    _of_files(wfstdec.ForcedAligner, names, **given).align(_logprobs(), "ab ba")


USUAL: dict[str, Callable[[], Any]] = {
    "rows-lattices": _wfst_lattices,
    "rows-oov": _boosted(_wfst, "oov", "names"),
    # fields of hypotheses are computed lazily
    "trie": lambda: _trie(nbest=3).decode_nbest([_logprobs()])[0][0].words,
    "trie-sessions": lambda: _trie().warm_up({"ab": 1.0}, lattices=False),
    "rows-boosts": _boosted(_wfst, "words", "numberless", "phrases"),
    "rows-sessions": _wfst_sessions,
    # a topology whose T is composed with LG
    "composed": lambda: _wfst(topology="minimal").decode([_logprobs()])[0].words,
}
"""Ways of the installation, the longest branch first."""

ALL: dict[str, Callable[[], Any]] = {
    **USUAL,
    "wfst-all": lambda: _wfst().warm_up(),
    "trie-all": lambda: _trie().warm_up(),
    "greedy": lambda: _of_files(wfstdec.GreedyDecoder, "tokens").warm_up(),
    "align": _align,
    "punctuation": lambda: load_punctuation().punctuate(["ab", "ba"]),
    "itn": lambda: load_itn("en").partial(["ten", "words"]),
}
"""Ways of `wfstdec warm-up --all`."""


def warm_up(
    ways: Iterable[str],
    environment: dict[str, str] | None = None,
    *,
    parts: bool = True,
) -> None:
    """Run ways in separate processes, `most_processes` at a time."""
    root = str(Path(wfstdec.__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "wfstdec.warm_up", *ways]
    command += [] if parts else [_NO_PARTS]
    env = {**os.environ, **(environment or {}), "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        last = "".join(done.stderr.splitlines()[-1:])
        raise BackendError(f"warming up {last}")


def compile_ahead(package: Path, ways: Iterable[str] = USUAL) -> int:
    """Compile the usual kernels for all machines of a level, into a package."""
    target = package / COMPILED.relative_to(Path(__file__).parent)
    shutil.rmtree(target, ignore_errors=True)
    if not has_level():
        return 0
    with tempfile.TemporaryDirectory() as kept:
        level = {"NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": ""}
        try:
            warm_up(ways, {**level, "NUMBA_CACHE_DIR": kept}, parts=False)
        finally:  # kernels of other ways are useful nevertheless
            target.mkdir(parents=True)
            kernels = list(Path(kept).glob(f"*/*{ENTRY}"))
            for path in kernels:
                shutil.copy(path, target)
    return len(kernels)


def most_processes(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Return the number of processes that may compile at once, by cores and memory."""
    limits: list[int] = []
    with contextlib.suppress(OSError):
        lines = Path(proc, "meminfo").read_text().splitlines()
        free = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        limits += [int(kilobytes) * 1024 for kilobytes in free]
        for line in Path(proc, "self/cgroup").read_text().splitlines():
            group = Path(line.split(":", 2)[2])
            for folder in (group, *group.parents):  # the limit of each applies
                for limit in map(Path, _LIMITS):
                    path = Path(groups) / limit.parent / str(folder)[1:] / limit.name
                    with contextlib.suppress(OSError, ValueError):  # "max": no limit
                        limits.append(int(path.read_text()))
    fit = [limit // PROCESS_BYTES for limit in limits]
    return max(1, min([len(os.sched_getaffinity(0)), *fit]))


def _run_in_branches(ways: Iterable[str]) -> bool:
    """Run ways of a kind in sequence, kinds in parallel; return overall success."""
    # Each branch is forked from a process that has built a graph: all of them share its
    # compiled kernels and numba's setup. Separate processes would compile these twice.
    branches: dict[str, list[str]] = {}
    for way in ways:
        branches.setdefault(way.partition("-")[0], []).append(way)
    if len(branches) > 1:
        _graph()
    context = multiprocessing.get_context("fork")
    most = most_processes()
    started: list[Any] = []
    for branch in branches.values():
        while sum(one.is_alive() for one in started) >= most:
            wait(one.sentinel for one in started if one.is_alive())
        started.append(context.Process(target=_run_branch, args=(branch,)))
        started[-1].start()
    for branch, one in zip(branches.values(), started, strict=True):
        one.join()
        if one.exitcode not in (0, 1):  # not an error that it could report
            sys.stderr.write(f"{', '.join(branch)} ended with {one.exitcode}\n")
    return not any(one.exitcode for one in started)


def _run_branch(ways: list[str]) -> None:
    """Run ways in a forked process; report failures, and run the rest."""
    failed = ""
    for way in ways:
        try:
            ALL[way]()
        except Exception as error:
            failed += f"{way!r} failed: {type(error).__name__}: {error}\n"
    sys.stderr.write(failed)
    sys.exit(bool(failed))


if __name__ == "__main__":
    import gc
    import warnings

    import tqdm

    gc.disable()  # compilation creates many objects, and the process is short
    warnings.simplefilter("ignore")
    tqdm.tqdm.monitor_interval = 0  # a thread, which a fork would lack
    if _NO_PARTS in sys.argv:
        compile_for_a_package()
    sys.exit(not _run_in_branches(w for w in sys.argv[1:] if w != _NO_PARTS))
