"""Damage small files of every kind, read them, and use what could be read.

    python -m tools.fuzz --seconds 60
    python -m tools.fuzz --seed 3 --mutants 500 graph lattices

A reader may refuse a file by an error of wfstdec that names it, and what it returns may
fail by an error of wfstdec. Anything else is reported: another
exception, a signal, a call that does not end, memory above the limit. A mutant depends
on the seed, the reader and its number only: `--first N --mutants 1` repeats it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec
from wfstdec import BoostEntry, NgramLM, WfstDecoder, WfstOptions
from wfstdec.compare.quality import read_lists
from wfstdec.errors import WfstdecError
from wfstdec.fst.openfst import read_words
from wfstdec.io import Restart, open_logprobs, read_boosts, read_confidences, read_text
from wfstdec.io.journal import Journal, _sum_of
from wfstdec.lattice import open_lattices, save_lattices
from wfstdec.lattice.compact import compact_lattice
from wfstdec.search.paths.lattice import lattice_hypotheses
from wfstdec.text.files import fingerprint_of

KENLM = Path(__file__).parents[1] / "tests/data/kenlm"
TOKENS = ["<blank>", "<wb>", "a", "b", "c"]
LEXICON = "ab\t0.5\ta b\ncab\t1\tc a b\nc\t1\tc\n"
UNIGRAMS = "-0.7 ab -0.3\n-0.7 c -0.3\n-0.7 cab\n-1 <unk>\n-99 <s> -0.3\n-0.7 </s>"
ARPA = f"\\data\\\nngram 1=6\nngram 2=2\n\n\\1-grams:\n{UNIGRAMS}\n\n"
ARPA += "\\2-grams:\n-0.2 <s> ab\n-0.3 ab c\n\n\\end\\\n"
GRAMMAR = "0 1 ab ab 0.5\n1 2 c c\n0 2 cab cab 1\n2 0.25\n"
RESULT = '{"id": "u", "text": "ab", "words": [{"word": "ab", "confidence": 0.5}]}\n'
LIMIT_S, LIMIT_BYTES = 30, 2 << 30
NUMBERS = [0, -1, 1, 127, 2**31 - 1, -(2**31), 2**63, 10**400, 1e30, -1e-30, 0.5]
TEXTS = b"0 -1 2147483648 4000000000 1e400 -1e30 nan inf 9999999999999999999999".split()
VALUES = [*NUMBERS, None, True, "x", "", [], {}, [[]], float("nan"), float("inf")]
X = np.log(np.random.default_rng(1).dirichlet(np.ones(5), 5)).astype(np.float32)
Use = Callable[[Path], Any]


def decode(graph: Any) -> None:
    """Search five frames, with a phrase and a word that the graph lacks."""
    decoder = WfstDecoder(graph, WfstOptions(nbest=2), backend="cpu", threads=1)
    decoder.decode([X], boosts=[["c ab", BoostEntry("ba", ["b a"], 1.0)]])


def use_lm(path: Path) -> None:
    """Lay an ARPA model out over its words, and score some."""
    model = wfstdec.read_arpa(path)
    NgramLM.from_arpa(model, ("<eps>", "ab", "c")).total([1, 2])


def use_lattices(path: Path) -> None:
    """List texts of lattices, and determinize them."""
    for lattice in open_lattices(path).values():
        lattice_hypotheses(lattice, 3)
        compact_lattice(lattice)


def use_journal(path: Path) -> None:
    """Resume a run."""
    Journal(path, [path.with_name("hyp")], {"beam": 1}, Restart(resume=True)).stop()


def build(folder: Path, **grammar: Any) -> Any:
    """Build a graph of the small files, with OOV exits."""
    tables = {name: folder / f"{name}.txt" for name in ("tokens", "lexicon")}
    return wfstdec.build_graph(**tables, **grammar, separator="<wb>")


def table() -> Any:
    """The token table of all small files."""
    return wfstdec.token_table(TOKENS)


def from_openfst(path: Path) -> None:
    """Convert a graph and search it."""
    decode(wfstdec.from_openfst(path, tokens=table(), words=WORDS))


READERS: dict[str, tuple[str, Use]] = {
    "graph": ("graph.npz", lambda path: decode(wfstdec.load_graph(path))),
    "graph-arcs": ("arcs.npz", lambda path: decode(wfstdec.load_graph(path))),
    "lm": ("lm", lambda path: wfstdec.load_lm(path).total([1, 2])),
    "lattices": ("x.lat", use_lattices),
    "logprobs": ("x.npz", lambda path: dict(open_logprobs(path))),
    "ark": ("x.ark", lambda path: dict(open_logprobs(path))),
    "scp": ("x.scp", lambda path: dict(open_logprobs(path))),
    "tokens": ("tokens.txt", wfstdec.read_tokens),
    "vocab": ("vocab.json", wfstdec.read_tokens),
    "words": ("words.txt", read_words),
    "lexicon": ("lexicon.txt", lambda path: wfstdec.read_lexicon(path, table())),
    "arpa": ("lm.arpa", use_lm),
    "kenlm": ("trie.bin", use_lm),
    "kenlm-quantised": ("quant_array.bin", use_lm),
    "openfst": ("graph.fst", from_openfst),
    "openfst-vector": ("vector.fst", from_openfst),
    "openfst-text": ("graph.txt", from_openfst),
    "grammar": ("grammar.txt", lambda path: build(path.parent, grammar=path)),
    "boosts": ("boosts.txt", read_boosts),
    "boosts-json": ("boosts.jsonl", read_boosts),
    "transcripts": ("ref.txt", read_text),
    "confidences": ("hyp.jsonl", read_confidences),
    "lists": ("hyp.jsonl", read_lists),
    "journal": ("hyp.journal", use_journal),
}
WORDS = ("<eps>", "ab", "cab", "c")


def write_files(folder: Path) -> None:
    """Write a valid file for each reader."""
    texts = {
        "tokens.txt": "".join(f"{name} {i}\n" for i, name in enumerate(TOKENS)),
        "vocab.json": json.dumps({name: i for i, name in enumerate(TOKENS)}),
        "words.txt": "".join(f"{word} {i}\n" for i, word in enumerate(WORDS)),
        "lexicon.txt": LEXICON,
        "lm.arpa": ARPA,
        "grammar.txt": GRAMMAR,
        "boosts.txt": "c\t2\nab c\n",
        "boosts.jsonl": '{"id": "u", "boosts": {"c": 2, "ab": null}}\n'
        '{"text": "ba", "pronunciations": ["b a"], "bonus": 4.0}\n',
        "ref.txt": "u ab c\nv cab\n",
        "hyp.jsonl": RESULT,
        "x.scp": "u x.ark:2\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    for file in KENLM.glob("*.bin"):
        shutil.copy(file, folder)
    graph = build(folder, lm=folder / "lm.arpa")
    graph.save(folder / "graph.npz")
    wfstdec.build_graph(
        **{name: folder / f"{name}.txt" for name in ("tokens", "lexicon")},
        **{"lm": folder / "lm.arpa", "topology": "minimal", "separator": "<wb>"},
    ).save(folder / "arcs.npz")
    for form, name in (("const", "graph.fst"), ("vector", "vector.fst")):
        wfstdec.to_openfst(graph, folder / name, form)
    wfstdec.to_openfst(graph, folder / "graph.txt")
    words = ("<eps>", "ab", "c")
    NgramLM.from_arpa(wfstdec.read_arpa(folder / "lm.arpa"), words).save(folder / "lm")
    (lattice,) = WfstDecoder(graph, threads=1).decode_lattice([X], lattice_beam=8.0)
    save_lattices(folder / "x.lat", {"u": lattice})
    np.savez(folder / "x.npz", u=X, v=X[:2])
    size = [b"\4" + n.to_bytes(4, "little") for n in X.shape]
    (folder / "x.ark").write_bytes(b"u \0BFM " + b"".join(size) + X.tobytes())
    run = Journal(
        folder / "hyp.journal", [folder / "hyp"], {"beam": 1}, Restart(overwrite=True)
    )
    for name in "uv":
        run.files[0].write(f"{name} ab\n".encode())
        run.add(name, [0.5])
    run.stop()


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage bytes; archives, arrays and JSON mostly in what they contain."""
    if rng.random() < 0.7:
        if data.startswith(b"PK"):
            return change_archive(data, rng)
        if data.startswith(b"\x93NUMPY"):
            return change_array(data, rng)
        if data.lstrip()[:1] in (b"{", b"["):
            return change_json(data, rng)
    kind, at = rng.integers(5), int(rng.integers(len(data) or 1))
    end = at + int(rng.integers(1, 20))
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data)) if kind == 4 else []
    if numbers:
        match = numbers[rng.integers(len(numbers))]
        return data[: match.start()] + rng.choice(TEXTS) + data[match.end() :]
    flipped = rng.integers(0, 256, min(end, len(data)) - at).astype(np.uint8).tobytes()
    place = int(rng.integers(len(data) or 1))
    return [
        data[:at] + flipped + data[at + len(flipped) :],
        data[:at],
        data[:at] + data[end:],
        data[:place] + data[at:end] + data[place:],
        data[:at] + flipped[:1] + data[at + 1 :],
    ][kind]


def change_archive(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage a member or drop it; checksums and digests become right again."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    name = str(rng.choice([*parts]))
    parts[name] = mutate(parts[name], rng)
    if rng.random() < 0.05:
        del parts[name]
    if "header.npy" in parts and name != "header.npy":
        try:
            loaded = {n[:-4]: np.load(io.BytesIO(parts[n])) for n in parts}
            header = json.loads(loaded.pop("header").tobytes())
            known = "digest" if "digest" in header else "fingerprint"
            header[known] = fingerprint_of(loaded)
            text = np.frombuffer(json.dumps(header).encode(), np.uint8)
            parts["header.npy"] = npy(text)
        except Exception:  # no array any more: the digest does not matter
            pass
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return made.getvalue()


def change_array(data: bytes, rng: np.random.Generator) -> bytes:
    """Change a value, the type or the shape of an array, or the text in it."""
    array = np.load(io.BytesIO(data)).copy()
    kind = rng.integers(8)
    if array.dtype == np.uint8 and array.ndim == 1 and kind > 1:
        text = mutate(array.tobytes(), rng)
        return npy(np.frombuffer(text, np.uint8))
    if kind == 0:
        return npy(array[None] if rng.random() < 0.5 else array[:-1])
    if kind == 1 and not array.dtype.names:
        with np.errstate(invalid="ignore"):
            return npy(array.astype(str(rng.choice(["i8", "f4", "U3"]))))
    field = array[str(rng.choice(array.dtype.names))] if array.dtype.names else array
    if field.size:
        bounds = np.iinfo(field.dtype) if field.dtype.kind in "iu" else None
        values = (
            [0, 1, bounds.min, bounds.max] if bounds else [-1, np.nan, np.inf, 1e30]
        )
        values += [field.flat[rng.integers(field.size)], field.flat[0] + 1]
        field.flat[rng.integers(field.size)] = values[rng.integers(len(values))]
    return npy(array)


def change_json(data: bytes, rng: np.random.Generator) -> bytes:
    """Put another value into an object or list, of one line where there are several."""
    lines = data.splitlines()
    at = int(rng.integers(len(lines)))
    try:
        found = json.loads(lines[at])
    except ValueError:
        return data
    places: list[tuple[Any, Any]] = []
    inside = [found]
    while inside:
        one = inside.pop()
        keys = [*one] if isinstance(one, dict) else [*range(len(one))]
        places += [(one, key) for key in keys]
        inside += [one[key] for key in keys if isinstance(one[key], dict | list)]
    if not places:
        return data
    holder, key = places[rng.integers(len(places))]
    holder[key] = VALUES[rng.integers(len(VALUES))]
    if rng.random() < 0.1:
        del holder[key]
    if isinstance(found, dict) and found.pop("sum", None) is not None:
        found["sum"] = _sum_of(found)
    lines[at] = json.dumps(found).encode()
    return b"\n".join(lines) + b"\n" * data.endswith(b"\n")


def npy(array: np.ndarray) -> bytes:
    """The bytes of an array's file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def outcome(use: Use, path: Path) -> str | None:
    """Read and use a file; what is wrong with how that ended, or None."""
    try:
        use(path)
    except WfstdecError as error:
        # What was read may be refused later, by a search that has no file any more.
        frames, trace = [], error.__traceback__
        while trace:
            frames.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        used = {"decode", "use_lm", "lattice_hypotheses", "compact_lattice", "build"}
        named = str(path.parent) in str(error) or path.suffix == ".scp"
        if not named and not used & {*frames}:
            return f"an error that names no file: {error!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def child(name: str, folder: Path, seed: int, numbers: range, log: Any) -> None:
    """Read mutants one after the other; note the number of each before it is read."""
    os.chdir(folder)  # the scp is relative
    file, use = READERS[name]
    path = folder / file
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    originals = [one.read_bytes() for one in files]
    found = outcome(use, path)
    assert found is None, f"{name}: the file without damage: {found}"
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    partial = folder / "hyp.partial"
    kept = partial.read_bytes() if partial.exists() else b""
    for number in numbers:
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        which = rng.integers(len(files))
        for one, data in zip(files, originals, strict=True):
            one.unlink(missing_ok=True)
            one.write_bytes(data)
        partial.write_bytes(kept)
        files[which].write_bytes(mutate(originals[which], rng))
        print(number, file=log, flush=True)
        signal.alarm(LIMIT_S)  # a call that does not end is killed
        found = outcome(use, path)
        signal.alarm(0)
        if found:
            print(f"{name} {number}: {found}", flush=True)
            print("found", file=log, flush=True)


def fuzz(name: str, folder: Path, seed: int, numbers: range) -> int:
    """Read mutants in child processes, which print findings; how many there were."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        log, copy = Path(place) / "log", Path(place) / "files"
        shutil.copytree(folder, copy)
        pid = os.fork()
        if pid == 0:
            with log.open("w") as lines:
                try:
                    child(name, copy, seed, numbers, lines)
                except BaseException as error:
                    print(f"{name}: {error!r}", file=sys.stderr)
                    os._exit(1)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        noted = log.read_text().split()
    found = noted.count("found")
    if not status:
        return found
    read = [int(one) for one in noted if one != "found"]
    last = read[-1] if read else numbers.stop
    print(f"{name} {last}: ended with status {status}", flush=True)
    rest = range(last + 1, numbers.stop)
    return found + 1 + (fuzz(name, folder, seed, rest) if rest else 0)


def main(arguments: list[str] | None = None) -> int:
    """Run as the text at the top says; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=" ".join(READERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--mutants", type=int, default=200, help="of each reader a round"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seconds", type=float, default=0.0, help="of rounds")
    args = parser.parse_args(arguments)
    if unknown := {*args.readers} - READERS.keys():
        parser.error(f"no readers {sorted(unknown)}, expected {' '.join(READERS)}")
    numbers = range(args.first, args.first + args.mutants)
    begin, mutants, found = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        folder.mkdir()
        write_files(folder)
        while not mutants or time.monotonic() - begin < args.seconds:
            for name in args.readers or READERS:
                found += fuzz(name, folder, args.seed, numbers)
                mutants += len(numbers)
            numbers = range(numbers.stop, numbers.stop + args.mutants)
    print(f"{mutants} mutants, {found} findings (seed {args.seed})")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
