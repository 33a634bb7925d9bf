"""Commands on log-probs and lattices: decode, align, rescore."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import wfstdec
from wfstdec.align.options import AlignOptions
from wfstdec.batch.aligning import align_file
from wfstdec.batch.decoding import decode_file
from wfstdec.batch.lattices import rescore_file
from wfstdec.batch.ray import DecodeRows, are_rows, logprob_rows
from wfstdec.cli.decoders import (
    boosts_for,
    finish,
    g2p_of,
    make_decoder,
    read_lists,
    reading_of,
    ready_for_ray,
    restart_of,
    run_on_ray,
    run_options,
)
from wfstdec.cli.flags import (
    BOOSTS,
    DECODERS,
    GIVEN_LATTICES,
    RAY_OPTIONS,
    READING,
    RUN,
    SUBTITLES,
    command,
    made_of,
    need,
    normalizer_of,
    search_options,
    values_of,
)
from wfstdec.io.lattices import KaldiLatticeWriter
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import result_writer
from wfstdec.lattice.file import LatticeWriter

RESULTS = {"help": "results: .txt, .jsonl, .ctm, .srt, .vtt or .TextGrid"}
"""Of `--output`."""
_MISFITS_AT_MOST = 20


@command(
    f"--output --format {SUBTITLES} {RUN} {BOOSTS} --lattices {READING}",
    required="--logprobs",
    decoders=tuple(DECODERS),
    groups={"for --ray": f"--ray {RAY_OPTIONS}"},
    changes={"--output": RESULTS},
    common="--logprobs --graph --decoder --output --lm-scale --beam --nbest --boost "
    "--confidence --threads",
    # They run in `graphs/librispeech_demo`, once a graph is there.
    examples=r"""
  wfstdec decode --graph graph.npz --logprobs logprobs.npz --output hyp.ctm
  wfstdec decode --decoder trie --tokens tokens.txt --lexicon lexicon.txt.gz \
      --lm lm.arpa.gz --separator '<wb>' --logprobs logprobs.npz --output hyp.jsonl
""",
)
def decode(args: argparse.Namespace) -> None:
    r"""Decode log-probs: words, times and costs of each utterance.

    Five decoders: on a graph; on the trie of a lexicon, or on bare tokens; greedy on
    bare tokens, one at a time; on a transducer, and on an attention decoder, whose
    encoders take the log-probs, or other features:

        wfstdec decode --graph graph.npz --logprobs x.npz
        wfstdec decode --decoder trie --tokens ... --lexicon ... --lm ... \
            --logprobs x.npz
        wfstdec decode --decoder greedy --tokens ... --lm bpe.arpa --logprobs x.npz
        wfstdec decode --decoder transducer --model model.npz --logprobs x.npz
        wfstdec decode --decoder attention --model model.npz --logprobs x.npz

    Results come in the order of the log-probs; without --output, on standard output. An
    utterance with a fault is named and left out, and the exit code is 1. Results of a
    run that was stopped stay next to --output, and --resume continues from there.

    On a Ray cluster (--ray) log-probs may also be rows: Parquet, or shards of
    WebDataset; --output is a folder of Parquet.
    """
    if args.ray is not None:
        args = ready_for_ray(args)
        path = Path(args.logprobs)
        rows = [path] if are_rows([path]) else logprob_rows(path)
        _decode_rows(args)  # faults of the flags are raised here, before
        run_on_ray(args, rows, partial(_decode_rows, args))
        return
    need(args, RAY_OPTIONS, "--ray")
    options = search_options(args)
    nbest = getattr(options, "nbest", None) or 1
    how = run_options(args, "lattices")
    result_writer(how["format"], nbest=nbest)  # refused before anything is loaded
    reading = reading_of(args, nbest)
    # Everything small is read, and refused, before a graph is loaded.
    words, phrases = read_lists(args)
    logprobs = open_logprobs(args.logprobs)
    decoder = make_decoder(args, options)
    summary = decode_file(
        decoder,
        logprobs,
        args.output,
        boosts=boosts_for(decoder, args, words, phrases),
        nbest=nbest,
        lattices=reading,
        keep=LatticeWriter(args.lattices) if args.lattices else None,
        **how,
    )
    finish(summary, args)


def _decode_rows(args: argparse.Namespace) -> DecodeRows:
    """The work of an actor: the decoder that the flags ask for, and its lists."""
    options = search_options(args)
    nbest = getattr(options, "nbest", None) or 1
    words, phrases = read_lists(args)
    return DecodeRows(
        make_decoder(args, options),
        lambda decoder: boosts_for(decoder, args, words, phrases),
        nbest=nbest,
        lattices=reading_of(args, nbest),
        keep=args.lattices,
    )


@command(
    "--lexicon --g2p --g2p-phones --sentencepiece-model --ignore-case --normalize "
    f"--output --format {SUBTITLES} {RUN} --separator --separator-optional --silence "
    "--silence-prob --topology --blank --beam --exact --skip-cost --insert-cost "
    "--insert-frame-cost --frame-shift",
    required="--tokens --logprobs --ref",
    changes={
        "--beam": {
            "default": AlignOptions.beam,
            "help": "beam width in nats; widened where the text does not fit "
            f"(default: {AlignOptions.beam:g})",
        }
    },
)
def align(args: argparse.Namespace) -> None:
    r"""Align known texts with log-probs: times of words and tokens.

        wfstdec align --tokens tokens.txt --lexicon lexicon.txt --separator '<wb>' \
            --logprobs x.npz --ref ref.txt --output x.ctm

    Without --lexicon words are spelt with the tokens. With --ignore-case or --normalize
    words that the lexicon lacks as they are written are looked up by these rules. The
    format follows from the name of the output: .ctm, .jsonl (tokens too, and where text
    and audio do not fit), .srt, .vtt, .TextGrid; the last three are for one utterance,
    or take a folder and --format. An utterance with a fault, such as an unknown word,
    is named and left out, and the exit code is 1. Results of a run that was stopped
    stay, and --resume continues from there.
    """
    how, options = run_options(args), made_of(AlignOptions, args)
    aligner = wfstdec.ForcedAligner(
        **values_of(args, "tokens lexicon separator separator_optional silence"),
        **values_of(args, "silence_prob sentencepiece_model topology blank"),
        g2p=g2p_of(args),
        normalizer=normalizer_of(args),
        options=options,
        frame_shift_s=args.frame_shift,
    )
    summary = align_file(aligner, args.logprobs, args.ref, args.output, **how)
    shown = [] if args.quiet else list(summary.misfits.items())[:_MISFITS_AT_MOST]
    for utterance, misfits in shown:
        for misfit in misfits:
            print(f"{utterance}: {misfit}", file=sys.stderr)
    if shown and (more := len(summary.misfits) - len(shown)):
        print(f"... and {more} more", file=sys.stderr)
    finish(summary, args)


_OF_THE_SEARCH = "(default: that of the search)"


@command(
    f"--lm --unk-cost --lm-scale --word-insertion --nbest {READING} --output --format "
    f"{RUN} --kaldi --kaldi-words",
    required="--lattices",
    changes={
        "--lattices": GIVEN_LATTICES,
        "--lm-scale": {
            "default": None,
            "help": f"factor of the costs of --lm, or of the graph {_OF_THE_SEARCH}",
        },
        "--word-insertion": {
            "default": None,
            "help": f"cost of each word; above 0 penalises {_OF_THE_SEARCH}",
        },
        "--nbest": {"default": 1, "help": "different texts of each utterance"},
    },
)
def rescore(args: argparse.Namespace) -> None:
    """Rescore lattices with another language model, or under other scales.

        wfstdec decode --graph small.npz --logprobs x.npz --lattices x.lat
        wfstdec rescore --lattices x.lat --lm large.arpa --lm-scale 0.8 --output hyp.txt

    The words of a lattice get new costs: those of its graph are dropped. Without a
    language model the graph's costs stay, and --lm-scale and --word-insertion change
    their weight; no new search is needed for that. Results can be written as compact
    lattices for Kaldi's tools, too. A lattice with a fault is named and left out, and
    the exit code is 1. Results of a run that was stopped stay next to --output, and
    --resume continues from there.
    """
    need(args, "--kaldi-words", "--kaldi")
    kaldi = None
    if args.kaldi:
        is_text = args.kaldi.endswith(".txt")
        kaldi = KaldiLatticeWriter(args.kaldi, text=is_text, words=args.kaldi_words)
    summary = rescore_file(
        args.lattices,
        args.output,
        **values_of(args, "lm unk_cost lm_scale word_insertion format strict"),
        reading=reading_of(args, args.nbest),
        kaldi=kaldi,
        restart=restart_of(args, "kaldi"),
        progress=not args.quiet,
    )
    finish(summary, args)
