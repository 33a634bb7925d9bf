"""Decode log-probs: words, times and costs of each utterance.

Four decoders: on a graph; on the trie of a lexicon, or on bare tokens; greedy on bare
tokens, one at a time; and on a transducer, whose encoder takes the log-probs, or other
features:

    wfstdec decode --graph graph.npz --logprobs x.npz
    wfstdec decode --decoder trie --tokens ... --lexicon ... --arpa ... --logprobs x.npz
    wfstdec decode --decoder greedy --tokens ... --arpa bpe.arpa --logprobs x.npz
    wfstdec decode --decoder transducer --model model.npz --logprobs x.npz

Results come in the order of the log-probs; without --output, on standard output. An
utterance with a fault is named and left out, and the exit code is 1. What is done when
a run is stopped stays beside --output, and --resume goes on from there.
"""

from __future__ import annotations

import argparse
import sys

from wfstdec.batch.boost_lists import BoostLists
from wfstdec.batch.decoding import decode_file
from wfstdec.cli.decoders import add_decoder_flags, make_decoder, search_options
from wfstdec.cli.flags import add_flags
from wfstdec.cli.lattice_flags import READING_FLAGS, reading_of
from wfstdec.cli.phrase_flags import (
    phrase_arguments,
    phrase_options,
    refuse_phrase_flags,
)
from wfstdec.cli.result_flags import (
    RUN_FLAGS,
    SUBTITLE_FLAGS,
    restart_of,
    result_format,
    subtitle_options,
)
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import BoostFile, read_boosts, read_phrase_weights
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import result_writer
from wfstdec.lattice.file import LatticeWriter
from wfstdec.search.decoder import Decoder

HELP = "log-probs to words with times"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--logprobs", required=True)
    add_flags(parser, "--output", "--format", *SUBTITLE_FLAGS, *RUN_FLAGS)
    add_flags(parser, "--boost")
    add_flags(parser, "--phrases", "--phrase-totals", "--phrase-unit")
    add_flags(parser, "--phrase-context", "--phrase-depth", "--phrase-unknown")
    add_flags(parser, "--phrase-boundary", "--sentencepiece")
    add_flags(parser, "--lattices", *READING_FLAGS)
    add_decoder_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Decode all utterances and write their results."""
    options = search_options(args)
    nbest = getattr(options, "nbest", None) or 1
    format, subtitles = result_format(args), subtitle_options(args)
    result_writer(format, nbest=nbest)  # refused before anything is loaded
    wants_lattices = args.lattices or args.confidence or args.mbr
    reading = reading_of(args, nbest) if wants_lattices else None
    words, phrases = _read_lists(args)
    logprobs = open_logprobs(args.logprobs)
    decoder = make_decoder(args, options)
    summary = decode_file(
        decoder,
        logprobs,
        args.output,
        boosts=_boosts_for(decoder, args, words, phrases),
        format=format,
        nbest=nbest,
        subtitles=subtitles,
        lattices=reading,
        keep=LatticeWriter(args.lattices) if args.lattices else None,
        strict=args.strict,
        restart=restart_of(args, makes="lattices"),
        progress=not args.quiet,
    )
    if not args.quiet:
        print(summary, file=sys.stderr)
    summary.check_all_done()


def _read_lists(
    args: argparse.Namespace,
) -> tuple[BoostFile | None, BoostFile | None]:
    """Read the files of `--boost` and `--phrases`; errors as of their readers.

    Raises:
        OptionError: Flags of phrases without phrases.
    """
    if not args.phrases:
        refuse_phrase_flags(args, without="--phrases")
    return (
        read_boosts(args.boost) if args.boost else None,
        read_phrase_weights(args.phrases) if args.phrases else None,
    )


def _boosts_for(
    decoder: Decoder,
    args: argparse.Namespace,
    words: BoostFile | None,
    phrases: BoostFile | None,
) -> BoostLists:
    """The lists for a decoder.

    Raises:
        OptionError: Words for a decoder that has none, or as of `phrase_compiler`.
    """
    if words is not None and not decoder.vocabulary.words:
        raise OptionError(
            f"--boost {args.boost} for a decoder that has no words, expected --phrases"
        )
    if phrases is None:
        return BoostLists(words)
    compiler = decoder.phrase_compiler(phrase_options(args), **phrase_arguments(args))
    return BoostLists(words, phrases, compiler)
