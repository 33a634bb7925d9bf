"""The decoder that a command line asks for: its flags, its options, and making it.

add_decoder_flags(parser)                        # of all decoders, and --decoder
options = search_options(args)                   # flags of another one are an error
decoder = make_decoder(args, options)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import wfstdec
from wfstdec.cli.flags import DECODERS, add_flags
from wfstdec.cli.result_flags import g2p_of
from wfstdec.errors import OptionError
from wfstdec.search.decoder import Decoder
from wfstdec.transducer import need_torch


@dataclass(frozen=True)
class Kind:
    """Kind of decoder: what makes it, and its options.

    Attributes:
        inputs: The flags that it reads besides its options, by name; it cannot do
            without the first.
        make: Makes it of inputs and options.
    """

    inputs: tuple[str, ...]
    make: Callable[..., Decoder]


def _wfst(*, graph: str, options: wfstdec.WfstOptions, **common: Any) -> Decoder:
    g2p = g2p_of(common.pop("g2p", None), common.pop("g2p_phones", None))
    return wfstdec.WfstDecoder(wfstdec.load_graph(graph), options, g2p=g2p, **common)


def _trie(*, open_vocabulary: Sequence[float] | None = None, **more: Any) -> Decoder:
    if open_vocabulary is not None:
        more["open_vocabulary"] = wfstdec.OpenVocabulary(*open_vocabulary)
    g2p = g2p_of(more.pop("g2p", None), more.pop("g2p_phones", None))
    return wfstdec.TrieDecoder(g2p=g2p, **more)


def _greedy(**more: Any) -> Decoder:
    return wfstdec.GreedyDecoder(**more)


def _transducer(*, model: str, **more: Any) -> Decoder:
    need_torch()
    from wfstdec.transducer.loading import open_decoder

    return open_decoder(model, **more)


_TOKENS = ("tokens", "blank", "separator", "lm", "unk_cost")
_G2P = ("g2p", "g2p_phones")
KINDS = {
    "wfst": Kind(("graph", *_G2P), _wfst),
    "trie": Kind(
        (*_TOKENS, "lexicon", "separator_optional", "open_vocabulary", *_G2P), _trie
    ),
    "greedy": Kind(_TOKENS, _greedy),
    "transducer": Kind(("model", "head", "lm", "separator", "unk_cost"), _transducer),
}
"""By the name in `--decoder`."""


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
    """Give a command the flags of all decoders; those not given are not set."""
    add_flags(parser, "--decoder", "--backend", "--threads", "--frame-shift")
    groups: dict[str, argparse._ActionsContainer] = {}
    for name, decoders in _owners().items():
        title = f"for --decoder {' or '.join(decoders)}"
        if len(decoders) == len(DECODERS):
            title = "for all decoders"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        add_flags(groups[title], flag_of(name), default=argparse.SUPPRESS)


def search_options(args: argparse.Namespace) -> Any:
    """The options of the decoder that the flags ask for.

    Raises:
        OptionError: A flag of another decoder, one that is missing, two that exclude
            each other, or a value out of range.
    """
    for name, decoders in _owners().items():
        if hasattr(args, name) and args.decoder not in decoders:
            raise OptionError(
                f"{flag_of(name)} with --decoder {args.decoder}, expected flags of "
                f"that decoder; {flag_of(name)} is for --decoder "
                f"{' or '.join(decoders)}"
            )
    needed = KINDS[args.decoder].inputs[0]
    if not hasattr(args, needed):
        raise OptionError(
            f"--decoder {args.decoder} without {flag_of(needed)}, expected both"
        )
    return DECODERS[args.decoder](**_given(args, _options(args.decoder)))


def make_decoder(args: argparse.Namespace, options: Any) -> Decoder:
    """The decoder that the flags ask for, with these options; errors as its own."""
    kind = KINDS[args.decoder]
    return kind.make(
        **_given(args, kind.inputs),
        options=options,
        backend=args.backend,
        frame_shift_s=args.frame_shift,
        threads=args.threads,
    )


def flag_of(name: str) -> str:
    """The flag of an option."""
    return "--" + name.replace("_", "-")


def _owners() -> dict[str, list[str]]:
    """The decoders that have a flag, by its name."""
    owners: dict[str, list[str]] = {}
    for decoder, kind in KINDS.items():
        for name in (*kind.inputs, *_options(decoder)):
            owners.setdefault(name, []).append(decoder)
    return owners


def _options(decoder: str) -> list[str]:
    return [field.name for field in fields(DECODERS[decoder])]


def _given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The values of those flags that are on the command line."""
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
