"""Cases of one checkout, run on request: a process that `tools.bench.same` starts.

    python same_worker.py CHECKOUT DATA EVERY        # the checkout is on PYTHONPATH

It writes the names of its cases as a line of JSON, then answers each request, a line
`{"case": "wfst, beam 8", "passes": 3}`, by a line: the CPU seconds of one pass, or
without passes the results. Only public names of the package are used, and nothing of
`tools`, so that checkouts of different ages run the same cases.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec

ARPA = "lm/lm_books.3g_pruned.arpa.gz"
COSTS = ("total", "graph", "acoustic", "insertion", "boost")
TOPOLOGIES = ("compact", "minimal", "compact-selfless")
WFST = {
    "beam 8": {"beam": 8.0},
    "beam 13": {"beam": 13.0, "max_active": 7000},
    "few active": {"beam": 13.0, "max_active": 40},
    "blanks skipped": {"beam": 10.0, "blank_skip_threshold": 0.95},
    "penalties": {"beam": 10.0, "blank_penalty": 1.25, "word_insertion": -0.7},
    "n-best": {"beam": 10.0, "nbest": 5},
}
TRIE = {
    "6:16": {"beam": 6.0, "beam_size": 16},
    "12:128": {"beam": 12.0, "beam_size": 128},
    "sum": {"beam": 9.0, "beam_size": 48, "merge": "sum"},
    "n-best": {"beam": 11.0, "beam_size": 96, "nbest": 5},
    "unigram look-ahead": {"beam": 9.0, "beam_size": 48, "lookahead": "unigram"},
    "top tokens": {"beam": 10.0, "beam_size": 64, "token_top_k": 4},
}
CHUNKS = {"chunks of 4": 4, "chunks of 32": 32}

Case = Callable[[], Any]


class Cases:
    """All cases, ready to run, on real speech.

    Args:
        data: The project's data.
        every: Each `every`-th utterance of dev is decoded.
        folder: For files that are written.
    """

    def __init__(self, data: Path, every: int, folder: Path) -> None:
        self.folder, self.arpa = folder, data / ARPA
        self.files = {
            "tokens": data / "tokens.txt",
            "lexicon": data / "lexicon/lexicon_ipa.txt",
            "separator": "<wb>",
        }
        with np.load(data / "posteriors/librispeech_dev.npz") as file:
            names = file.files[::every]
            self.arrays = [np.ascontiguousarray(file[n], np.float32) for n in names]
        lines = (data / "posteriors/librispeech_dev.txt").read_text("utf-8")
        references = {
            name: words for name, *words in map(str.split, lines.splitlines())
        }
        self.references = [references[name] for name in names]
        self.graph = self._build("normal")
        self.lm = wfstdec.NgramLM.from_arpa(self.arpa, self.graph.words)
        self.graph.save(folder / "graph.npz")
        self.lm.save(folder / "lm")

    def all(self) -> dict[str, Case]:
        """Return every case by name."""
        return {
            **self._wfst(),
            **self._trie(),
            **self._tokens(),
            **self._adapters(),
            "build_graph": partial(self._build, "normal"),
            "load_graph": partial(wfstdec.load_graph, self.folder / "graph.npz"),
            "NgramLM": partial(wfstdec.NgramLM.from_arpa, self.arpa, self.graph.words),
            "load_lm": partial(wfstdec.load_lm, self.folder / "lm"),
        }

    def _build(self, topology: str) -> Any:
        return wfstdec.build_graph(**self.files, lm=self.arpa, topology=topology)

    def _wfst(self) -> dict[str, Case]:
        cases: dict[str, Case] = {}
        for name, changes in WFST.items():
            options = wfstdec.WfstOptions(lm_scale=0.8, **changes)
            decoder = wfstdec.WfstDecoder(self.graph, options, "cpu", threads=1)
            cases |= self._of_decoder(f"wfst, {name}", decoder, name == "beam 8")
            if name == "beam 13":
                for beam in (3.0, 8.0):
                    record = partial(decoder.decode_lattice, lattice_beam=beam)
                    cases[f"wfst, lattices of {beam:g}"] = partial(record, self.arrays)
        for topology in TOPOLOGIES:
            cases[f"wfst, {topology}"] = partial(self._topology, topology)
        return cases

    def _topology(self, topology: str) -> Any:
        options = wfstdec.WfstOptions(beam=9.0, lm_scale=0.8)
        decoder = wfstdec.WfstDecoder(self._build(topology), options, "cpu", threads=1)
        return decoder.decode(self.arrays[:15])

    def _trie(self) -> dict[str, Case]:
        cases: dict[str, Case] = {}
        for name, changes in TRIE.items():
            options = wfstdec.TrieOptions(lm_scale=0.8, **changes)
            decoder = wfstdec.TrieDecoder(
                **self.files, lm=self.lm, options=options, threads=1
            )
            cases |= self._of_decoder(f"trie, {name}", decoder, name == "6:16")
            if name == "12:128":
                record = partial(decoder.decode_lattice, lattice_beam=4.0)
                cases["trie, lattices of 4"] = partial(record, self.arrays)
        return cases

    def _tokens(self) -> dict[str, Case]:
        files = {name: self.files[name] for name in ("tokens", "separator")}
        trie = wfstdec.TrieDecoder(**files, threads=1)
        greedy = wfstdec.GreedyDecoder(**files, threads=1)
        return {
            **self._of_decoder("tokens", trie, False),
            **self._of_decoder("greedy", greedy, False),
            "greedy, chunks of 32": partial(self._stream, greedy, 32),
        }

    def _of_decoder(self, name: str, decoder: Any, more: bool) -> dict[str, Case]:
        """The cases of a decoder; with `more` boosts and chunks too."""
        cases: dict[str, Case] = {name: partial(decoder.decode, self.arrays)}
        if getattr(decoder.options, "nbest", 1) > 1:
            cases[name] = partial(decoder.decode_nbest, self.arrays)
        if more:
            for kind, boosts in self._boosts().items():
                decode = partial(decoder.decode, self.arrays, boosts=boosts)
                cases[f"{name}, {kind}"] = decode
                stream = partial(self._stream, decoder, 16, boosts)
                cases[f"{name}, {kind}, chunks of 16"] = stream
            for kind, frames in CHUNKS.items():
                cases[f"{name}, {kind}"] = partial(self._stream, decoder, frames)
        return cases

    def _boosts(self) -> dict[str, list[Any]]:
        """Boost lists by kind, one for each utterance; every fifth has none."""
        known = set(self.graph.words)
        words, phrases, oov = [], [], []
        for reference in self.references:
            own = sorted({word for word in reference if word in known})[::3]
            words.append({word: 0.5 * (i % 9) - 1.0 for i, word in enumerate(own)})
            places = range(0, len(reference) - 2, 3)
            phrases.append({" ".join(reference[i : i + 2]): None for i in places})
            entry = wfstdec.BoostEntry("zyxel", ["z aɪ k s ɛ l"], 3.0)
            oov.append([*own[:2], entry])
        lists = {"words": words, "phrases": phrases, "OOV words": oov}
        both = [a | b for a, b in zip(words, phrases, strict=True)]
        lists["words and phrases"] = both
        return {
            kind: [one if i % 5 else None for i, one in enumerate(each)]
            for kind, each in lists.items()
        }

    def _stream(self, decoder: Any, frames: int, boosts: Any = None) -> list[Any]:
        """Decode all utterances in parallel sessions, in chunks of `frames` frames."""
        each = boosts or [None] * len(self.arrays)
        sessions = decoder.sessions()
        names = [sessions.open(one) for one in each]
        for begin in range(0, max(map(len, self.arrays)), frames):
            pairs = zip(names, self.arrays, strict=True)
            chunks = {n: x[begin : begin + frames] for n, x in pairs if begin < len(x)}
            sessions.advance(chunks)
        return [sessions.close(name) for name in names]

    def _adapters(self) -> dict[str, Case]:
        """The interfaces of pyctcdecode (each phone is a letter) and torchaudio."""
        from wfstdec.adapters.pyctcdecode import build_ctcdecoder
        from wfstdec.adapters.torchaudio import ctc_decoder

        names, blank = list(self.graph.tokens.names), self.graph.tokens.blank
        letters = [" " if name == "<wb>" else name for name in names]
        letters[blank] = ""
        letter_decoder = build_ctcdecoder(letters, threads=1)
        lexicon = self.folder / "lexicon.txt"
        lines = self.files["lexicon"].read_text("utf-8").splitlines()
        lexicon.write_text("\n".join(f"{line} <wb>" for line in lines), "utf-8")
        word_decoder = ctc_decoder(
            str(lexicon),
            names,
            lm=str(self.arpa),
            beam_threshold=14.0,
            blank_token=names[blank],
            sil_token="<wb>",
        )
        return {
            "pyctcdecode": lambda: list(map(letter_decoder.decode, self.arrays)),
            "torchaudio": lambda: [word_decoder(x[None])[0][0] for x in self.arrays],
        }


def record_of(result: Any) -> Any:
    """Return a result as JSON, with hexadecimal costs: equal means equal bits."""
    if isinstance(result, list):
        return [record_of(one) for one in result]
    if hasattr(result, "fingerprint"):  # a graph
        return [result.fingerprint, result.num_states, result.num_arcs]
    if hasattr(result, "arcs"):  # a lattice
        content = result.states.tobytes() + result.arcs.tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()
    if hasattr(result, "num_labels"):  # a language model
        labels = np.random.default_rng(7).integers(1, result.num_labels, 2000)
        return [result.num_states, float(result.total(labels)).hex()]
    if hasattr(result, "score"):  # of torchaudio
        return [" ".join(result.words), float(result.score).hex()]
    if not hasattr(result, "total_cost"):
        return str(result)
    return {
        "text": result.text,
        "words": [[w.text, w.start_frame, w.end_frame] for w in result.words],
        "tokens": [int(token) for token in result.token_ids],
        "frames": [[int(f) for f in side] for side in result.token_frames],
        "costs": [float(getattr(result, f"{name}_cost")).hex() for name in COSTS],
        "final": bool(result.reached_final),
    }


def seconds_of(case: Case, passes: int) -> float:
    """Time one pass of a case, CPU seconds."""
    gc.collect()
    begin = time.process_time()
    for _ in range(passes):
        result = case()
        for one in result if isinstance(result, list) else ():
            getattr(one, "words", None)  # made when they are read
    return (time.process_time() - begin) / passes


def main(checkout: Path, data: Path, every: int) -> None:
    """Name the cases, then answer requests until the input ends."""
    if not Path(wfstdec.__file__).is_relative_to(checkout):
        sys.exit(f"{wfstdec.__file__} was imported, expected the package of {checkout}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(data, every, Path(folder)).all()
        print(json.dumps(list(cases)), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            case, passes = cases[request["case"]], request["passes"]
            reply = seconds_of(case, passes) if passes else record_of(case())
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
