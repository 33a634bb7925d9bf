"""Commands `doctor` and `demo`."""

import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import wfstdec
from wfstdec.batch.decoding import BoostLists, Summary, decode_all
from wfstdec.cli.evaluate import in_columns, report
from wfstdec.cli.flags import Args, changed, command, values_of
from wfstdec.doctor import examine
from wfstdec.io.boost_files import read_boosts
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import read_text
from wfstdec.metrics import GAP, Score, UtteranceScore, score_texts
from wfstdec.metrics import align as align_words
from wfstdec.models import load_model
from wfstdec.recipes import OPTIONS, find_recipe, inputs_of
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.transcription.files import find_recordings
from wfstdec.transcription.transcriber import Transcriber

AUDIO = "audio"  # Folder of a recipe's recordings, named by utterance
MODEL = "model.json"
"""File that names the recipe's acoustic model, and the mapping of its tokens."""
SHOWN_UTTERANCES = 4
SHOWN_WORDS = range(6, 11)

_print = partial(print, flush=True)  # unbuffered, as the log goes to standard error


@command(
    "--lexicon --lm --ref --blank --separator --frame-shift",
    required="--tokens --logprobs",
    changes={
        "--separator": changed(None, "token between words (default: by the tables)"),
        "--frame-shift": changed(
            None, "seconds per frame (default: 0.02, or what fits)"
        ),
    },
    examples=r"""
  wfstdec doctor --tokens tokens.txt --lexicon lexicon.txt.gz --lm lm.arpa.gz \
      --logprobs logprobs.npz --ref refs.txt
""",
)
def doctor(args: Args) -> int:
    """Examine tokens, lexicon, language model and log-probs before a graph is built.

    Prints a page of findings (ok, look, or wrong, with a remedy), then command lines
    with suitable flags. Exits with 1 if anything is wrong. The first 200 utterances are
    inspected.
    """
    page = examine(
        **values_of(args, "tokens logprobs lexicon lm ref blank separator"),
        frame_shift_s=args.frame_shift,
    )
    print(page)
    return int(page.is_wrong)


@command("--recipe --topology --backend --threads", examples="\n  wfstdec demo\n")
def demo(args: Args) -> None:
    """Build a graph from the shipped recipe and decode real speech with it.

    Log-probs of LibriSpeech utterances, a lexicon and a language model are included;
    nothing is downloaded or written. If the acoustic model is installed (pip install
    hama==1.7.0 soundfile soxr), the audio of a few utterances is also transcribed.
    """
    recipe = find_recipe(args.recipe)
    _print(f"Building a graph of {recipe.name}'s tokens, lexicon and language model")
    given = inputs_of(recipe) | {"topology": args.topology}
    graph = wfstdec.build_graph(**given, progress=not args.quiet)
    _print(f"  {graph.num_states:,} states, {graph.num_arcs:,} arcs")
    decoder = wfstdec.WfstDecoder(graph, OPTIONS, args.backend, threads=args.threads)
    references = read_text(recipe / "refs.txt")

    def decoded(boosts: BoostLists, summary: Summary | None) -> dict[str, Hypothesis]:
        reader = open_logprobs(recipe / "logprobs.npz")
        pairs = decode_all(decoder, reader, boosts, summary=summary, progress=True)
        return {utterance: best for utterance, [best] in pairs}

    _print(f"\nDecoding {len(references)} utterances of LibriSpeech, some of them:")
    summary = Summary(decoder.frame_shift_s)
    hypotheses = decoded(BoostLists(), summary)
    plain = _score(references, hypotheses)
    # A few utterances that fit on a line, of different speakers.
    by_speaker: dict[str, UtteranceScore] = {}
    for utterance in plain.utterances:
        if len(utterance.reference) in SHOWN_WORDS:
            by_speaker.setdefault(utterance.utterance.split("-")[0], utterance)
    for shown in list(by_speaker.values())[:SHOWN_UTTERANCES]:
        _print(_with_times(shown, hypotheses[shown.utterance]))
    _print(f"\n{report(plain)}\n{summary}")

    boosts = read_boosts(recipe / "boosts.txt")
    listed = ", ".join(f"{word} {bonus:g}" for word, bonus in boosts.common.items())
    _print(f"\nThe same with boosts in nats: {listed}")
    boosted = _score(references, decoded(BoostLists(boosts), None))
    _print(f"{_differences(plain, boosted)}\n{boosted.wer_line}")
    if (recipe / AUDIO).is_dir() and (recipe / MODEL).is_file():
        _from_audio(recipe, decoder, references)


def _from_audio(
    recipe: Path, decoder: wfstdec.WfstDecoder, references: Mapping[str, Sequence[str]]
) -> None:
    needed = ("hama", "soundfile", "soxr")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        _print(
            f"\nFrom audio: left out, since {', '.join(missing)} cannot be imported; "
            "pip install hama==1.7.0 soundfile soxr"
        )
        return
    _print("\nFrom audio, through the acoustic model in the package hama:")
    transcriber = Transcriber(load_model(recipe / MODEL), decoder)
    sources = find_recordings([recipe / AUDIO])
    hypotheses = {one.name: one.hypothesis for one in transcriber.run(sources)}
    score = _score({name: references[name] for name in hypotheses}, hypotheses)
    for utterance in score.utterances:
        _print(_with_times(utterance, hypotheses[utterance.utterance]))
    _print(score.wer_line)


def _with_times(score: UtteranceScore, hypothesis: Hypothesis) -> str:
    starts = iter([f"{word.start_s:.2f}" for word in hypothesis.words])
    pairs = score.alignment()
    cells = [(ref, hyp, GAP if hyp == GAP else next(starts)) for ref, hyp in pairs]
    rows = zip(("ref", "hyp", "s"), in_columns(cells), strict=True)
    lines = [f"    {name:3}  {row}" for name, row in rows]
    return "\n".join([f"  {score.utterance}", *lines])


def _differences(before: Score, after: Score) -> str:
    """Return a line for each utterance whose words differ, with words and errors."""
    lines = []
    for old, new in zip(before.utterances, after.utterances, strict=True):
        pairs = align_words(old.hypothesis, new.hypothesis)
        differ = [f"{was} -> {now}" for was, now in pairs if was != now]
        if differ:
            errors = f"({old.errors.total} -> {new.errors.total} errors)"
            lines.append(f"  {old.utterance:18} {', '.join(differ)}  {errors}")
    return "\n".join(lines)


def _score(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, Hypothesis]
) -> Score:
    texts = {name: one.spaced_text.split() for name, one in hypotheses.items()}
    return score_texts(references, texts)
