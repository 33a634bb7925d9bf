"""Decode log-probs: words, times and costs of each utterance.

Five decoders: on a graph; on the trie of a lexicon, or on bare tokens; greedy on bare
tokens, one at a time; on a transducer, and on an attention decoder, whose encoders take
the log-probs, or other features:

    wfstdec decode --graph graph.npz --logprobs x.npz
    wfstdec decode --decoder trie --tokens ... --lexicon ... --lm ... --logprobs x.npz
    wfstdec decode --decoder greedy --tokens ... --lm bpe.arpa --logprobs x.npz
    wfstdec decode --decoder transducer --model model.npz --logprobs x.npz
    wfstdec decode --decoder attention --model model.npz --logprobs x.npz

Results come in the order of the log-probs; without --output, on standard output. An
utterance with a fault is named and left out, and the exit code is 1. What is done when
a run is stopped stays beside --output, and --resume goes on from there.

On a Ray cluster (--ray) log-probs may also be rows: Parquet, or shards of WebDataset;
--output is a folder of Parquet.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from wfstdec.batch.decoding import decode_file
from wfstdec.batch.ray import DecodeRows, are_rows, logprob_rows
from wfstdec.cli.boost_flags import BOOST_FLAGS, boosts_for, read_lists
from wfstdec.cli.decoders import add_decoder_flags, make_decoder, search_options
from wfstdec.cli.flags import add_flags
from wfstdec.cli.lattice_flags import READING_FLAGS, reading_of
from wfstdec.cli.ray_flags import (
    RAY_FLAGS,
    ready_for_ray,
    refuse_flags_of_ray,
    run_on_ray,
)
from wfstdec.cli.result_flags import RUN_FLAGS, SUBTITLE_FLAGS, run_options, tell
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import result_writer
from wfstdec.lattice.file import LatticeWriter
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.options import WfstOptions

COMMON_FLAGS = {
    "--logprobs PATH": ".npz, Kaldi .ark or .scp, or a folder of .npy: [T, V] each",
    "--graph FILE": "what `wfstdec build` wrote",
    "--decoder NAME": "wfst (on a graph, the default), trie, greedy, transducer "
    "or attention",
    "--output FILE": "what to write: .txt, .jsonl, .ctm, .srt, .vtt or .TextGrid",
    "--lm-scale X": "weight of the language model; `wfstdec tune` finds it",
    "--beam NATS": "wider is slower and misses less (default: "
    f"{WfstOptions.beam:g} for wfst, {TrieOptions.beam:g} for trie)",
    "--nbest N": "different texts of each utterance, in .jsonl",
    "--boost FILE": "words and phrases to favour, one a line",
    "--confidence": "how sure each word is, from 0 to 1",
    "--threads N": "utterances at once (default: one for each core)",
}
"""Flags that `--help` shows, and what it says of them; `--help-all` has all."""
EXAMPLES = r"""
  wfstdec decode --graph graph.npz --logprobs logprobs.npz --output hyp.ctm
  wfstdec decode --decoder trie --tokens tokens.txt --lexicon lexicon.txt.gz \
      --lm lm.arpa.gz --separator '<wb>' --logprobs logprobs.npz --output hyp.jsonl
"""
"""They run in `graphs/librispeech_demo`, once a graph is there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--logprobs", required=True)
    add_flags(parser, "--output", "--format", *SUBTITLE_FLAGS, *RUN_FLAGS)
    add_flags(parser, *BOOST_FLAGS)
    add_flags(parser, "--lattices", *READING_FLAGS)
    add_decoder_flags(parser)
    add_flags(parser.add_argument_group("for --ray"), *RAY_FLAGS)


def run(args: argparse.Namespace) -> None:
    """Decode all utterances and write their results."""
    if args.ray is not None:
        args = ready_for_ray(args)
        path = Path(args.logprobs)
        rows = [path] if are_rows([path]) else logprob_rows(path)
        decode_rows(args)  # what is wrong with the flags is said before
        run_on_ray(args, rows, partial(decode_rows, args))
        return
    refuse_flags_of_ray(args)
    options = search_options(args)
    nbest = getattr(options, "nbest", None) or 1
    how = run_options(args, makes="lattices")
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
    tell(summary, args)


def decode_rows(args: argparse.Namespace) -> DecodeRows:
    """Make what an actor does: the decoder that the flags ask for, and its lists."""
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
