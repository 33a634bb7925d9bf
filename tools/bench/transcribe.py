"""Audio to words: the same as bare calls, and an hour in one command.

    python -m tools.bench.transcribe --output run.json

First the words of `wfstdec transcribe` on each recording of the data's `audio` must be
those of `wfstdec decode` on what onnxruntime gives for it, called bare and alone;
beside them the words from windows (`Windowed`), as differences in percent of words.
Then the recordings are joined and repeated to --seconds of FLAC, and one command makes
subtitles of it: time, peak memory, encoder and decoder apart; a parser reads them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile

import wfstdec
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.data import ROOT, find_data, model_files
from tools.bench.report import Row, word_errors
from wfstdec import WfstDecoder, WfstOptions
from wfstdec.audio import read_audio
from wfstdec.io.text import read_text
from wfstdec.models import Encoder, Windowed

_RATE = 16000
_CUE = re.compile(
    r"(\d+)\n(\d\d):(\d\d):(\d\d),(\d{3}) --> (\d\d):(\d\d):(\d\d),(\d{3})\n"
    r"(\S[^\n]*(?:\n\S[^\n]*)*)\n(?:\n|\Z)"
)
_SUMMARY = re.compile(r"encoder ([\d.]+) s in all workers, decoder ([\d.]+) s")
_WINDOWS = ((0.4, 0.4), (0.8, 0.8), (1.6, 0.8))
"""Chunk and right context, seconds, 4 s to the left."""


def main(argv: list[str] | None = None) -> int:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=3600.0, help="of the long recording")
    add("--beam", type=float, default=13.0)
    add("--workers", type=int, help="pieces encoded side by side")
    args = parse(parser, argv)
    run = Run("tools.bench.transcribe", args)
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(args, Path(folder))
        return run.finish(bench.rows())


class _Bench:
    """The data, a graph over the model's tokens, and the words of the bare calls."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        data = find_data(args.data)
        self._args, self._folder = args, folder
        self._model_path, self._tokens = model_files(data)
        self._model: Encoder = wfstdec.load_model(
            str(self._model_path), str(self._tokens), "<blank>", sample_rate=_RATE
        )
        paths = sorted((data / "audio").iterdir())
        self._audio = paths[:: -(-len(paths) // (args.utterances or len(paths)))]
        lines = read_text(data / "posteriors" / "librispeech_dev.txt")
        self._references = {one.stem: lines[one.stem] for one in self._audio}
        self._graph = wfstdec.build_graph(
            tokens=self._model.spec.tokens,
            lexicon=data / "lexicon" / "lexicon_ipa.txt",
            lm=data / "lm" / "lm_books.3g_pruned.arpa.gz",
            separator="<wb>",
        )
        self._graph.save(folder / "graph.npz")
        self._waveforms = {
            one.stem: read_audio(one, _RATE).waveform for one in self._audio
        }
        self._bare: dict[str, str] = {}

    def rows(self) -> Iterator[Row]:
        """All that is compared and measured."""
        yield self.equality()
        yield from self.windows()
        yield self.long_recording()

    def equality(self) -> Row:
        """Words of `transcribe` and of `decode` on the bare model's log-probs.

        Raises:
            SystemExit: They differ.
        """
        np.savez(self._folder / "bare.npz", **self._bare_logprobs())
        (self._folder / "all.txt").write_text("".join(f"{x}\n" for x in self._audio))
        self._wfstdec("decode", "--logprobs", "bare.npz", "--output", "bare")
        self._transcribe("all.txt", "--output", "ours")
        texts = [read_text(self._folder / name) for name in ("bare", "ours")]
        if texts[0] != texts[1]:
            names = [one for one in texts[0] if texts[0][one] != texts[1].get(one)]
            raise SystemExit(f"other words in {len(names)} recordings: {names[:5]}")
        self._bare = {name: " ".join(words) for name, words in texts[0].items()}
        row: Row = {"what": "each recording", "recordings": len(self._bare)}
        return row | word_errors(self._references, self._bare)

    def windows(self) -> Iterator[Row]:
        """Compare windows with whole utterances, which say the bare words."""
        options = WfstOptions(beam=self._args.beam, lm_scale=self._args.lm_scale)
        shift = self._model.spec.frame_shift_s
        decoder = WfstDecoder(
            self._graph, options, "cpu", frame_shift_s=shift, threads=1
        )
        bare = {name: text.split() for name, text in self._bare.items()}
        for chunk_s, right_s in _WINDOWS:
            encoder = Windowed(self._model, chunk_s, 4.0, right_s)
            logprobs = [
                encoder.step([encoder.start()], [waveform], [True])[0]
                for waveform in self._waveforms.values()
            ]
            found = [one.text for one in decoder.decode(logprobs)]
            texts = dict(zip(self._waveforms, found, strict=True))
            row: Row = {"what": "windows", "chunk_s": chunk_s, "right_s": right_s}
            row |= {"other_words_percent": word_errors(bare, texts)["wer"]}
            yield row | word_errors(self._references, texts)

    def long_recording(self) -> Row:
        """Run a command over a long recording: time, memory, and text."""
        names, audio_s = self._write_long("long.flac")
        began = time.perf_counter()
        usage, told = self._transcribe("long.flac", "--output", "long.srt")
        wall_s = time.perf_counter() - began
        text = (self._folder / "long.srt").read_text("utf-8")
        found = {"long": " ".join(check_subtitles(text, audio_s))}
        alone = [word for name in names for word in self._bare[name].split()]
        said = [word for name in names for word in self._references[name]]
        seconds = _SUMMARY.search(told)
        assert seconds is not None, told
        return {
            "what": "one long recording",
            "audio_s": round(audio_s, 1),
            "wall_s": round(wall_s, 2),
            "rtfx": round(audio_s / wall_s, 1),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
            "encoder_s": float(seconds[1]),
            "decoder_s": float(seconds[2]),
            "peak_mb": round(usage.ru_maxrss / 1024, 1),
            "other_words_percent": word_errors({"long": alone}, found)["wer"],
            **word_errors({"long": said}, found),
        }

    def _bare_logprobs(self) -> dict[str, np.ndarray]:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(self._model_path))
        first, second = (one.name for one in session.get_inputs())
        arrays = {}
        for name, waveform in self._waveforms.items():
            given = {first: waveform[None], second: np.array([len(waveform)])}
            rows, frames = session.run(None, given)
            arrays[name] = rows[0, : frames[0]]
        return arrays

    def _write_long(self, name: str) -> tuple[list[str], float]:
        """Join and repeat recordings; their names in order, and seconds."""
        names, size = [], 0
        with soundfile.SoundFile(self._folder / name, "w", _RATE, 1, "PCM_16") as file:
            for one in itertools.cycle(self._waveforms):
                if size >= self._args.seconds * _RATE:
                    return names, size / _RATE
                file.write(self._waveforms[one])
                names.append(one)
                size += len(self._waveforms[one])
        raise AssertionError("no recordings")

    def _transcribe(self, audio: str, *more: str) -> tuple[os.struct_rusage, str]:
        given = [str(self._model_path), audio, "--tokens", str(self._tokens)]
        given += ["--blank", "<blank>", "--sample-rate", str(_RATE)]
        if self._args.workers is not None:
            given += ["--workers", str(self._args.workers)]
        return self._wfstdec("transcribe", *given, *more)

    def _wfstdec(self, command: str, *more: str) -> tuple[os.struct_rusage, str]:
        """Run a command in a process: what it used, and what it told."""
        given = ["--graph", "graph.npz", "--lm-scale", str(self._args.lm_scale)]
        given += ["--beam", str(self._args.beam), "--threads", "1"]
        program = [sys.executable, "-m", "wfstdec", command, *more, *given]
        with (self._folder / "told").open("w+") as told:
            process = subprocess.Popen(
                program,
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stderr=told,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            told.seek(0)
            text = told.read()
        if process.returncode:
            raise SystemExit(f"wfstdec {command}: {text}")
        return usage, text


def check_subtitles(text: str, audio_s: float) -> Sequence[str]:
    """Words of a SubRip file, which must be one to the letter.

    Raises:
        SystemExit: Anything else in it, numbers with gaps, times out of order or
            behind the audio.
    """
    words: list[str] = []
    at, before = 0, 0
    for number in itertools.count(1):
        if at == len(text):
            return words
        cue = _CUE.match(text, at)
        if cue is None or int(cue[1]) != number:
            raise SystemExit(f"cue {number}: found {text[at : at + 80]!r}")
        start, end = (_milliseconds(cue.groups()[i : i + 4]) for i in (1, 5))
        if not before <= start < end <= 1000 * audio_s + 2000:
            raise SystemExit(f"cue {number}: {before} to {start} to {end} ms")
        words += cue[10].split()
        at, before = cue.end(), end
    return words


def _milliseconds(parts: Sequence[str]) -> int:
    hours, minutes, seconds, rest = map(int, parts)
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest


if __name__ == "__main__":
    exit_with(main)
