"""Make a language model that decoders map into memory: a folder, of an ARPA file.

Over the tokens (for decoding without a lexicon), over the words of a lexicon, or over
those of a graph; the folder holds them too.

    wfstdec build-lm --arpa bpe.arpa --tokens tokens.txt --output lm
    wfstdec build-lm --arpa lm.arpa --tokens ... --lexicon ... --output lm
    wfstdec decode --decoder trie --lm lm --tokens ... --lexicon ... --logprobs x.npz
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import wfstdec
from wfstdec.cli.flags import add_flags
from wfstdec.errors import OptionError
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.symbols import TokenTable, read_tokens
from wfstdec.text.vocabulary import load_lexicon, sayable, word_table

HELP = "an ARPA file to a language model that is mapped into memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--arpa", "--output", required=True)
    add_flags(parser, "--tokens", "--blank", "--lexicon", "--separator", "--graph")
    add_flags(parser, "--unk-cost", "--nemo-tokens")


def run(args: argparse.Namespace) -> None:
    """Read the file and save the model."""
    model = read_arpa(args.arpa)
    lm = wfstdec.NgramLM.from_arpa(
        model,
        _labels(args, model),
        unk_cost=args.unk_cost,
        nemo_tokens=args.nemo_tokens,
    )
    lm.save(args.output)


def _labels(args: argparse.Namespace, model: ArpaModel) -> TokenTable | Sequence[str]:
    """The tokens, or the words."""
    if (args.graph is None) == (args.tokens is None):
        found = "neither --graph nor" if args.graph is None else "both --graph and"
        raise OptionError(f"{found} --tokens, expected one of them")
    if args.graph is not None:
        return wfstdec.load_graph(args.graph).words
    tokens = read_tokens(args.tokens, args.blank)
    if args.lexicon is None:
        return tokens
    entries = load_lexicon(args.lexicon, tokens, args.separator)
    return word_table(sayable(entries, model.index, args.unk_cost))
