"""Make a language model that decoders map into memory: a folder, of an ARPA file.

Over the tokens (for decoding without a lexicon), over the words of a lexicon, or over
those of a graph; the folder holds them too.

    wfstdec build-lm --arpa bpe.arpa --tokens tokens.txt --output lm
    wfstdec build-lm --arpa lm.arpa --tokens ... --lexicon ... --output lm
    wfstdec decode --decoder trie --lm lm --tokens ... --lexicon ... --logprobs x.npz
"""

from __future__ import annotations

import argparse

import wfstdec
from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import values_of
from wfstdec.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--arpa", "--output", required=True)
    add_flags(parser, "--tokens", "--blank", "--lexicon", "--separator", "--graph")
    add_flags(parser, "--unk-cost", "--nemo-tokens")


def run(args: argparse.Namespace) -> None:
    """Read the file and save the model."""
    if (args.graph is None) == (args.tokens is None):
        found = "neither --graph nor" if args.graph is None else "both --graph and"
        raise OptionError(f"{found} --tokens, expected one of them")
    lm = wfstdec.build_lm(
        args.arpa,
        words=None if args.graph is None else wfstdec.load_graph(args.graph).words,
        **values_of(args, "tokens lexicon blank separator unk_cost nemo_tokens"),
    )
    lm.save(args.output)
