"""What `compare` and `tune` read: utterances with references, searches, peers."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import wfstdec
from wfstdec.boost.boosts import BoostsLike
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.cli.flags import add_flags
from wfstdec.cli.phrases import phrase_compiler
from wfstdec.compare.grids import parse_grid
from wfstdec.compare.machine import fingerprint
from wfstdec.compare.peers import available_peers
from wfstdec.compare.points import PeerInputs, Search
from wfstdec.compare.searches import (
    Loaded,
    OurSearch,
    PeerSearch,
    greedy_maker,
    greedy_searches,
    measured,
    trie_maker,
    trie_searches,
    wfst_searches,
)
from wfstdec.compare.speech import Speech, read_speech
from wfstdec.errors import OptionError
from wfstdec.search.decoder import Decoder
from wfstdec.text.symbols import TokenTable, read_tokens
from wfstdec.text.vocabulary import load_lexicon

_log = logging.getLogger("wfstdec.compare")


def add_speech_flags(parser: argparse.ArgumentParser) -> None:
    """The utterances."""
    add_flags(parser, "--logprobs", "--ref", required=True)
    add_flags(parser, "--utterances", "--frame-shift")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """What the searches search."""
    add_flags(parser, "--graph", "--tokens", "--blank", "--lexicon", "--arpa", "--lm")
    add_flags(parser, "--separator", "--separator-optional", "--unk-cost")


def speech_of(args: argparse.Namespace) -> Speech:
    """The utterances that the flags name."""
    return read_speech(
        args.logprobs,
        args.ref,
        limit=args.utterances,
        frame_shift_s=args.frame_shift,
    )


def lm_of(args: argparse.Namespace) -> str | None:
    """The path of the language model, an ARPA file or a saved one.

    Raises:
        OptionError: Both were given.
    """
    if args.arpa is not None and args.lm is not None:
        raise OptionError("--arpa and --lm, expected one language model")
    return args.arpa or args.lm


def load_graph(args: argparse.Namespace) -> Loaded[wfstdec.PackedGraph]:
    """The graph, and what loading it took."""
    return measured(lambda: wfstdec.load_graph(args.graph))


def wfst_of(
    args: argparse.Namespace,
    graph: Loaded[wfstdec.PackedGraph],
    base: wfstdec.WfstOptions,
) -> list[OurSearch]:
    """The searches on the graph."""
    grid = parse_grid(args.wfst, _names(base))
    return wfst_searches(graph, base, grid, frame_shift_s=args.frame_shift)


def tries_of(args: argparse.Namespace, base: wfstdec.TrieOptions) -> list[OurSearch]:
    """The searches on a trie, or on tokens where there is no lexicon.

    Raises:
        OptionError: There are no tokens.
    """
    if args.tokens is None:
        raise OptionError("the trie decoder without --tokens, expected a token table")
    grid, lm = parse_grid(args.trie, _names(base)), lm_of(args)
    maker = measured(
        lambda: trie_maker(
            tokens=args.tokens,
            lexicon=args.lexicon,
            lm=lm,
            frame_shift_s=args.frame_shift,
            blank=args.blank,
            separator=args.separator,
            separator_optional=args.separator_optional,
            unk_cost=args.unk_cost,
        )
    )
    inputs = _fingerprints(tokens=args.tokens, lexicon=args.lexicon, lm=lm)
    return trie_searches(maker, base, grid, inputs=inputs)


def greedy_of(
    args: argparse.Namespace,
    tokens: str | TokenTable | None,
    base: wfstdec.GreedyOptions,
) -> list[OurSearch]:
    """Greedy decoding; beside a lexicon the language model is not for it.

    Raises:
        OptionError: There are no tokens.
    """
    if tokens is None:
        raise OptionError("--greedy without --tokens, expected a token table")
    grid, lm = parse_grid(args.greedy, _names(base)), lm_of(args)
    if lm is not None and args.lexicon is not None:
        _log.info("greedy: without the language model, which is over words")
        lm = None
    maker = measured(
        lambda: greedy_maker(
            tokens=tokens,
            lm=lm,
            frame_shift_s=args.frame_shift,
            blank=args.blank,
            separator=args.separator,
            unk_cost=None if lm is None else args.unk_cost,
        )
    )
    inputs = _fingerprints(tokens=args.tokens, lm=lm)
    return greedy_searches(maker, base, grid, inputs=inputs)


def with_boosts(
    args: argparse.Namespace, searches: list[OurSearch], *, words: bool
) -> list[OurSearch]:
    """The searches, made to take boost lists as `--phrase-unit` says.

    Args:
        args: The command line.
        searches: Of one kind.
        words: Whether its decoders have words: these take lists as they are.
    """
    if words and args.phrase_unit != "token":
        return searches
    return [replace(search, compile=_by_tokens(args)) for search in searches]


def _by_tokens(args: argparse.Namespace) -> Callable[[Decoder, Any], BoostsLike]:
    """Makes phrases of tokens of a boost list."""
    made: list[wfstdec.PhraseCompiler] = []  # for the decoders of one search

    def compile_list(
        decoder: Decoder, boosts: Mapping[str, float] | None
    ) -> BoostsLike:
        if not boosts:
            return None
        if not made:
            totals = PhraseOptions(weights_are_totals=True)
            made.append(phrase_compiler(args, decoder, totals))
        return made[0].compile(boosts)

    return compile_list


def peers_of(
    args: argparse.Namespace, graph: wfstdec.PackedGraph | None
) -> Sequence[Search]:
    """The peers that are installed and can be made of what was given."""
    if args.tokens is not None:
        tokens = read_tokens(args.tokens, args.blank)
    else:
        assert graph is not None
        tokens = graph.tokens
    lexicon = None
    if args.lexicon is not None:
        lexicon = load_lexicon(args.lexicon, tokens, args.separator)
    inputs = PeerInputs(
        tokens=tokens,
        graph=graph,
        lexicon=lexicon,
        arpa=args.arpa,
        separator=args.separator,
        lm_scale=args.lm_scale,
        word_insertion=args.word_insertion,
    )
    return [PeerSearch(peer) for peer in available_peers(inputs)]


def list_name(path: str) -> str:
    """What a boost list is called: its file's name without the ending."""
    return Path(path).name.split(".")[0]


def _fingerprints(**paths: str | None) -> dict[str, str]:
    return {name: fingerprint(path) for name, path in paths.items() if path}


def _names(options: Any) -> list[str]:
    return [field.name for field in fields(options)]
