"""What `compare` and `tune` read: utterances with references, searches, peers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import wfstdec
from wfstdec.cli.flags import add_flags
from wfstdec.compare.grids import parse_grid
from wfstdec.compare.machine import file_fingerprint
from wfstdec.compare.peers import available_peers
from wfstdec.compare.points import PeerInputs, Search
from wfstdec.compare.searches import (
    Loaded,
    OurSearch,
    PeerSearch,
    measured,
    trie_maker,
    trie_searches,
    wfst_searches,
)
from wfstdec.compare.speech import Speech, read_speech
from wfstdec.errors import OptionError
from wfstdec.symbols import read_tokens
from wfstdec.vocabulary import load_lexicon


def add_speech_flags(parser: argparse.ArgumentParser) -> None:
    """The utterances."""
    add_flags(parser, "--logprobs", "--ref", required=True)
    add_flags(parser, "--utterances", "--frame-shift")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """What the searches search."""
    add_flags(parser, "--graph", "--tokens", "--blank", "--lexicon", "--arpa")
    add_flags(parser, "--separator", "--separator-optional", "--unk-cost")


def speech_of(args: argparse.Namespace) -> Speech:
    """The utterances that the flags name."""
    return read_speech(
        args.logprobs,
        args.ref,
        limit=args.utterances,
        frame_shift_s=args.frame_shift,
    )


def load_graph(args: argparse.Namespace) -> Loaded[wfstdec.PackedGraph]:
    """The graph, and what loading it took."""
    return measured(lambda: wfstdec.load_graph(args.graph))


def wfst_of(
    args: argparse.Namespace,
    graph: Loaded[wfstdec.PackedGraph],
    base: wfstdec.DecodeOptions,
) -> list[OurSearch]:
    """The searches on the graph."""
    grid = parse_grid(args.wfst, _names(base))
    return wfst_searches(graph, base, grid, frame_shift_s=args.frame_shift)


def tries_of(args: argparse.Namespace, base: wfstdec.BeamOptions) -> list[OurSearch]:
    """The searches on a trie, or on tokens where there is no lexicon.

    Raises:
        OptionError: There are no tokens.
    """
    if args.tokens is None:
        raise OptionError("the trie decoder without --tokens, expected a token table")
    grid = parse_grid(args.trie, _names(base))
    maker = measured(
        lambda: trie_maker(
            tokens=args.tokens,
            lexicon=args.lexicon,
            lm=args.arpa,
            frame_shift_s=args.frame_shift,
            blank=args.blank,
            separator=args.separator,
            separator_optional=args.separator_optional,
            unk_cost=args.unk_cost,
        )
    )
    files = {"tokens": args.tokens, "lexicon": args.lexicon, "lm": args.arpa}
    inputs = {name: file_fingerprint(path) for name, path in files.items() if path}
    return trie_searches(maker, base, grid, inputs=inputs)


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


def _names(options: Any) -> list[str]:
    return [field.name for field in fields(options)]
