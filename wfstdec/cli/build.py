"""Build a search graph of tokens, a lexicon and a language model.

Each stage says its states, arcs, seconds and memory on standard error.
"""

from __future__ import annotations

import argparse
import logging

import wfstdec
from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import values_of
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import Lexicon, spellable_words, spelling_lexicon
from wfstdec.text.loading import separator_of
from wfstdec.text.tokens import TokenTable, read_tokens

_NAMED_AT_MOST = 5
_log = logging.getLogger("wfstdec.build")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--tokens", "--output", required=True)
    words = parser.add_mutually_exclusive_group(required=True)
    for name in ("--lexicon", "--spell"):
        add_flags(words, name)
    language = parser.add_mutually_exclusive_group(required=True)
    for name in ("--lm", "--grammar"):
        add_flags(language, name)
    add_flags(parser, "--topology", "--blank", "--separator", "--separator-optional")
    add_flags(parser, "--silence", "--silence-prob", "--unk-cost", "--open-vocabulary")
    add_flags(parser, "--sentencepiece-model", "--engine", "--no-minimize")


def run(args: argparse.Namespace) -> None:
    """Build the graph and save it."""
    tokens = read_tokens(args.tokens, args.blank)
    costs = args.open_vocabulary
    graph = wfstdec.build_graph(
        tokens=tokens,
        lexicon=args.lexicon or _spelt(args, tokens),
        **values_of(args, "lm grammar topology separator separator_optional"),
        **values_of(args, "silence silence_prob unk_cost engine"),
        open_vocabulary=costs and wfstdec.OpenVocabulary(*costs),
        minimize=not args.no_minimize,
        progress=not args.quiet,
    )
    graph.save(args.output)


def _spelt(args: argparse.Namespace, tokens: TokenTable) -> Lexicon:
    """The words of the list, in its first column, spelt with the tokens.

    Words that cannot be spelt are left out, and said.
    """
    words = [line.split()[0] for line in read_lines(args.spell) if line.split()]
    how = {
        "separator": separator_of(args.separator, tokens, silence=args.silence),
        "sentencepiece_model": args.sentencepiece_model,
    }
    found, bad = spellable_words(words, tokens, **how)
    # A few words in other scripts are usual; half of a list is a list for other tokens.
    if len(bad) >= len(found):
        return spelling_lexicon(words, tokens, **how)  # which says what is lacking
    if bad:
        named = ", ".join(map(repr, bad[:_NAMED_AT_MOST]))
        more = ", ..." if len(bad) > _NAMED_AT_MOST else ""
        _log.warning(
            "%s: %d of %d words cannot be spelt with the tokens and are left out: %s%s",
            *(args.spell, len(bad), len(bad) + len(found), named, more),
        )
    return found
