"""Build a graph from the shipped recipe and decode real speech with it.

Log-probs of LibriSpeech utterances, a lexicon and a language model come along; nothing
is fetched. The graph is kept in the recipe's folder and built again when what it is
made of changes. Where the acoustic model is installed (pip install hama==1.7.0
soundfile soxr), the audio of a few of the utterances is transcribed too.
"""

from __future__ import annotations

import argparse
import importlib.util
from functools import partial
from pathlib import Path

import wfstdec
from wfstdec.batch.decoding import BoostLists, Summary, decode_all
from wfstdec.cli.flags import add_flags
from wfstdec.cli.score import columns, report
from wfstdec.io.boost_files import read_boosts
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.text import read_text
from wfstdec.metrics import GAP, Score, UtteranceScore, align, score_texts
from wfstdec.models import load_model
from wfstdec.recipes import OPTIONS, build_or_load, find_recipe
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.transcription.recordings import find_recordings
from wfstdec.transcription.transcriber import Transcriber

AUDIO = "audio"
"""The folder of a recipe's recordings; their names are those of utterances."""
MODEL = "model.json"
"""The file that names the recipe's acoustic model, and what its tokens became."""
SHOWN_UTTERANCES = 4
SHOWN_WORDS = range(6, 11)

_say = partial(print, flush=True)  # at once: the log goes to standard error meanwhile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--recipe", "--topology", "--backend", "--threads")


def run(args: argparse.Namespace) -> None:
    """Build, decode, show, score, boost."""
    recipe = find_recipe(args.recipe)
    _say(f"Building a graph of {recipe.name}'s tokens, lexicon and language model")
    graph = build_or_load(recipe, args.topology, progress=not args.quiet)
    _say(f"  {graph.num_states:,} states, {graph.num_arcs:,} arcs")
    decoder = wfstdec.WfstDecoder(graph, OPTIONS, args.backend, threads=args.threads)
    references = read_text(recipe / "refs.txt")

    _say(f"\nDecoding {len(references)} utterances of LibriSpeech, some of them:")
    summary = Summary(decoder.frame_shift_s)
    hypotheses = _decode(decoder, recipe, BoostLists(), summary)
    plain = _score(references, hypotheses)
    for shown in pick(plain):
        _say(with_times(shown, hypotheses[shown.utterance]))
    _say(f"\n{report(plain)}\n{summary}")

    boosts = read_boosts(recipe / "boosts.txt")
    listed = ", ".join(f"{word} {bonus:g}" for word, bonus in boosts.common.items())
    _say(f"\nThe same with boosts in nats: {listed}")
    boosted = _score(references, _decode(decoder, recipe, BoostLists(boosts)))
    _say(f"{what_changed(plain, boosted)}\n{boosted.wer_line}")
    if (recipe / AUDIO).is_dir() and (recipe / MODEL).is_file():
        from_audio(recipe, decoder, references)


def from_audio(
    recipe: Path, decoder: wfstdec.WfstDecoder, references: dict[str, tuple[str, ...]]
) -> None:
    """Transcribe the recipe's recordings, or say what that needs."""
    needed = ("hama", "soundfile", "soxr")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        _say(
            f"\nFrom audio: left out, since {', '.join(missing)} cannot be imported; "
            "pip install hama==1.7.0 soundfile soxr"
        )
        return
    _say("\nFrom audio, through the acoustic model in the package hama:")
    transcriber = Transcriber(load_model(recipe / MODEL), decoder)
    sources = find_recordings([recipe / AUDIO])
    heard = {
        transcript.name: transcript.hypothesis
        for transcript in transcriber.run(sources)
    }
    score = _score({name: references[name] for name in heard}, heard)
    for utterance in score.utterances:
        _say(with_times(utterance, heard[utterance.utterance]))
    _say(score.wer_line)


def pick(score: Score) -> list[UtteranceScore]:
    """A few utterances that are short enough for a line, each of another speaker."""
    by_speaker: dict[str, UtteranceScore] = {}
    for utterance in score.utterances:
        if len(utterance.reference) in SHOWN_WORDS:
            by_speaker.setdefault(utterance.utterance.split("-")[0], utterance)
    return list(by_speaker.values())[:SHOWN_UTTERANCES]


def with_times(score: UtteranceScore, hypothesis: Hypothesis) -> str:
    """Reference, hypothesis, and the seconds at which its words begin, in columns."""
    starts = iter([f"{word.start_s:.2f}" for word in hypothesis.words])
    cells = [
        (ref, hyp, GAP if hyp == GAP else next(starts))
        for ref, hyp in score.alignment()
    ]
    lines = [f"  {score.utterance}"]
    for name, row in zip(
        ("ref", "hyp", "s"), zip(*columns(cells), strict=True), strict=True
    ):
        lines.append(f"    {name:3}  {' '.join(row).rstrip()}")
    return "\n".join(lines)


def what_changed(before: Score, after: Score) -> str:
    """A line for each utterance whose words differ: which ones, and the errors."""
    lines = []
    for old, new in zip(before.utterances, after.utterances, strict=True):
        differ = [
            f"{was} -> {now}"
            for was, now in align(old.hypothesis, new.hypothesis)
            if was != now
        ]
        if differ:
            errors = f"({old.errors.total} -> {new.errors.total} errors)"
            lines.append(f"  {old.utterance:18} {', '.join(differ)}  {errors}")
    return "\n".join(lines)


def _decode(
    decoder: wfstdec.WfstDecoder,
    recipe: Path,
    boosts: BoostLists,
    summary: Summary | None = None,
) -> dict[str, Hypothesis]:
    reader = open_logprobs(recipe / "logprobs.npz")
    decoded = decode_all(decoder, reader, boosts, summary=summary, progress=True)
    return {utterance: best for utterance, [best] in decoded}


def _score(
    references: dict[str, tuple[str, ...]], hypotheses: dict[str, Hypothesis]
) -> Score:
    return score_texts(references, {u: h.text.split() for u, h in hypotheses.items()})
