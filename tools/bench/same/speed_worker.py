"""Runs timed tasks of one checkout as it is told; what `speed.py` starts.

    python speed_worker.py CHECKOUT DATA EVERY

The checkout has to be on PYTHONPATH. A line on standard input is a request, a line on
standard output the reply to it, both JSON:

    {"task": "wfst, beam 8", "passes": 3}
    {"cpu_s": 0.061, "wall_s": 0.062, "answers": "..."}

Seconds are those of a pass; equal answers mean equal texts and costs, bit for bit.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
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
import real_sets
from checkouts import check_import

import wfstdec
from wfstdec.boost import phrases as spelling

WFST_BEAMS = (8.0, 10.0, 13.0)
TRIE_SIZES = ((6.0, 16), (8.0, 32), (12.0, 128))
LATTICE_BEAMS = (3.0, 6.0, 8.0)
LM_SCALE = 0.8
LISTED = 100
"""Words, and phrases, of a list of boosts."""

Task = Callable[[], Any]


class Tasks:
    """All that is timed, ready to run.

    Args:
        data: The project's data.
        every: Each so many-th utterance of dev is decoded.
        folder: For a graph and a language model that this checkout saves.

    Attributes:
        tasks: What to call, by name.
    """

    def __init__(self, data: Path, every: int, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.speech = real_sets.read_speech(data, "librispeech_dev", every)
        self.arrays = list(self.speech.logprobs.values())
        self.files = {
            "tokens": data / real_sets.TOKENS,
            "lexicon": data / real_sets.LEXICON,
            "separator": real_sets.SEPARATOR,
        }
        self.graph = self._build_graph()
        self.graph.save(folder / "graph.npz")
        self.lm = self._make_lm()
        self.lm.save(folder / "lm")
        self.tasks: dict[str, Task] = {
            **self._wfst_tasks(),
            **self._trie_tasks(),
            **self._adapter_tasks(),
            "build_graph": self._build_graph,
            "load_graph": partial(wfstdec.load_graph, folder / "graph.npz"),
            "NgramLM.from_arpa": self._make_lm,
            "load_lm": partial(wfstdec.load_lm, folder / "lm"),
        }

    def _wfst_tasks(self) -> dict[str, Task]:
        make, options = wfstdec.WfstDecoder, wfstdec.WfstOptions
        decoders = {
            beam: make(self.graph, options(beam=beam, lm_scale=LM_SCALE), threads=1)
            for beam in WFST_BEAMS
        }
        tasks = {f"wfst, beam {b:g}": self._decode(d) for b, d in decoders.items()}
        beam = WFST_BEAMS[1]
        for kind, boosts in self._boosts(self.graph.words, self.graph.tokens).items():
            decode = self._decode(decoders[beam], boosts)
            tasks[f"wfst, beam {beam:g}, {kind}"] = decode
        wide = decoders[WFST_BEAMS[-1]]
        for beam in LATTICE_BEAMS:
            record = partial(wide.decode_lattice, self.arrays, lattice_beam=beam)
            tasks[f"wfst, beam {WFST_BEAMS[-1]:g}, lattices of {beam:g}"] = record
        return tasks

    def _trie_tasks(self) -> dict[str, Task]:
        options = wfstdec.TrieOptions(lm_scale=LM_SCALE)
        files = self.files | {"lm": self.data / real_sets.ARPA}
        first = wfstdec.TrieDecoder(**files, options=options, threads=1)
        decoders = {
            (beam, size): first.with_options(beam=beam, beam_size=size)
            for beam, size in TRIE_SIZES
        }
        tasks = {
            f"trie, {beam:g}:{size}": self._decode(decoder)
            for (beam, size), decoder in decoders.items()
        }
        beam, size = TRIE_SIZES[1]
        for kind, boosts in self._boosts(first.words, first.tokens).items():
            decode = self._decode(decoders[beam, size], boosts)
            tasks[f"trie, {beam:g}:{size}, {kind}"] = decode
        return tasks

    def _adapter_tasks(self) -> dict[str, Task]:
        """Other people's calls; for pyctcdecode's each phone is a letter."""
        names = list(self.graph.tokens.names)
        letters = names.copy()
        letters[self.graph.tokens.blank] = ""
        letters[names.index(real_sets.SEPARATOR)] = " "
        peer = importlib.import_module("wfstdec.adapters.pyctcdecode")
        letter_decoder = peer.build_ctcdecoder(letters, threads=1)
        entries = real_sets.read_lexicon(self.data)
        lines = [" ".join([word, *said, real_sets.SEPARATOR]) for word, said in entries]
        lexicon = self.folder / "lexicon.txt"
        lexicon.write_text("\n".join(dict.fromkeys(lines)), "utf-8")
        calls = importlib.import_module("wfstdec.adapters.torchaudio")
        word_decoder = calls.ctc_decoder(
            str(lexicon),
            names,
            lm=str(self.data / real_sets.ARPA),
            beam_threshold=14.0,
            blank_token=names[self.graph.tokens.blank],
            sil_token=real_sets.SEPARATOR,
        )
        return {
            "pyctcdecode": lambda: list(map(letter_decoder.decode, self.arrays)),
            "torchaudio": lambda: [word_decoder(x[None])[0][0] for x in self.arrays],
        }

    def _decode(self, decoder: Any, boosts: Any = None) -> Task:
        return partial(decoder.decode, self.arrays, boosts=boosts)

    def _boosts(self, words: tuple[str, ...], tokens: Any) -> dict[str, Any]:
        """Lists of the same size: words, phrases of words, phrases of tokens."""
        ids = {word: i for i, word in enumerate(words) if i}
        said = real_sets.said_phrases(self.speech, ids)
        pairs = [phrase for phrase in said if " " in phrase][:LISTED]
        rare = [phrase for phrase in said if " " not in phrase][:LISTED]
        lexicon = real_sets.read_pronunciations(self.data, tokens)
        separator = tokens.ids[real_sets.SEPARATOR]
        by_lexicon = spelling.by_lexicon(lexicon, separator=separator)
        make = wfstdec.PhraseCompiler
        of_tokens = make(by_lexicon, tokens, boundary=separator).compile(pairs)
        return {
            f"{len(rare)} words": dict.fromkeys(rare, 3.0),
            f"{len(pairs)} phrases": make(spelling.by_words(ids), words).compile(pairs),
            f"{len(pairs)} phrases of tokens": of_tokens,
        }

    def _build_graph(self) -> Any:
        return wfstdec.build_graph(**self.files, arpa=self.data / real_sets.ARPA)

    def _make_lm(self) -> Any:
        arpa = self.data / real_sets.ARPA
        return wfstdec.NgramLM.from_arpa(arpa, self.graph.words)


def answers_of(result: Any) -> str:
    """32 hex digits of what a task gave: hypotheses, lattices, a graph, or a model."""
    if hasattr(result, "fingerprint"):
        return result.fingerprint
    if hasattr(result, "total"):
        labels = np.random.default_rng(7).integers(1, result.num_labels, 2000)
        found = [result.num_states, result.num_arcs, float(result.total(labels)).hex()]
    elif hasattr(result[0], "arcs"):
        parts = [(one.states.tobytes(), one.arcs.tobytes()) for one in result]
        found = [hashlib.blake2b(b"".join(both)).hexdigest() for both in parts]
    elif isinstance(result[0], str):
        found = result
    elif hasattr(result[0], "score"):
        found = [[" ".join(one.words), float(one.score).hex()] for one in result]
    else:
        found = [[one.text, float(one.total_cost).hex()] for one in result]
    content = json.dumps(found, ensure_ascii=False).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def run(task: Task, passes: int) -> dict[str, Any]:
    """Run a task so many times; seconds of one pass, and its answers."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(passes):
        result = task()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    seconds = {"cpu_s": cpu / passes, "wall_s": wall / passes}
    return seconds | {"answers": answers_of(result)}


def reply(content: Any) -> None:
    """Write a line of JSON for the one who asks."""
    print(json.dumps(content), flush=True)


def main(checkout: Path, data: Path, every: int) -> None:
    """Say which tasks there are, then run those that are asked for."""
    check_import(checkout)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        tasks = Tasks(data, every, Path(folder)).tasks
        reply(list(tasks))
        for line in sys.stdin:
            request = json.loads(line)
            reply(run(tasks[request["task"]], request["passes"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
