"""The decoder that a command line asks for: its flags, its options, and making it.

add_decoder_flags(parser)                        # of all decoders, and --decoder
add_decoder_flags(parser, of_audio=True)         # behind an acoustic model
options = search_options(args)                   # flags of another one are an error
decoder = make_decoder(args, options)
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import wfstdec
from wfstdec.attention import need_torch
from wfstdec.cli.flags import DECODERS, add_flags
from wfstdec.cli.result_flags import g2p_of
from wfstdec.errors import OptionError
from wfstdec.search.decoder import Decoder


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


def _trie(*, open_vocabulary: Sequence[float] | None = None, **more: Any) -> Decoder:
    if open_vocabulary is not None:
        more["open_vocabulary"] = wfstdec.OpenVocabulary(*open_vocabulary)
    return wfstdec.TrieDecoder(**more)


def _open(module: str, who: str, *, model: str, **more: Any) -> Decoder:
    """Open a decoder that runs its model itself, by a module that needs torch."""
    need_torch(who)
    return importlib.import_module(module).open_decoder(model, **more)


_TOKENS = ("tokens", "blank", "separator", "lm", "unk_cost")
_G2P = ("g2p", "g2p_phones")
KINDS = {
    "wfst": Kind(
        ("graph", "exact_boosts", *_G2P), lambda **more: wfstdec.WfstDecoder(**more)
    ),
    "trie": Kind(
        (*_TOKENS, *"lexicon separator_optional open_vocabulary exact_boosts".split())
        + _G2P,
        _trie,
    ),
    "greedy": Kind(_TOKENS, lambda **more: wfstdec.GreedyDecoder(**more)),
    "transducer": Kind(
        ("model", "head", "lm", "separator", "unk_cost"),
        partial(_open, "wfstdec.transducer.decoder", "transducers"),
    ),
    "attention": Kind(
        ("model", "lm", "separator", "unk_cost"),
        partial(_open, "wfstdec.attention.decoder", "attention decoders"),
    ),
}
"""By the name in `--decoder`."""
CTC_DECODERS = ("wfst", "trie", "greedy")
"""Decoders of log-probs, which any CTC model makes of audio."""
_SEARCHES = {
    "wfst": "wfst on a graph",
    "trie": "trie on a lexicon, or on bare tokens",
    "greedy": "greedy on bare tokens, without a beam",
    "transducer": "transducer on --model",
    "attention": "attention on --model",
}
_OF_THE_MODEL = {
    "tokens": "the model's token table, where it does not say",
    "blank": "the model's blank, where it does not say: a name or an index, -1 for the "
    "last",
    "frame_shift": "from one frame of the model to the next, where it does not say",
}
"""Flags of a command with an acoustic model, which are not the decoder's there."""


def add_decoder_flags(
    parser: argparse.ArgumentParser, *, of_audio: bool = False
) -> None:
    """Give a command the flags of decoders; those not given are not set."""
    decoders = CTC_DECODERS if of_audio else tuple(KINDS)
    text = f"the search: {'; '.join(_SEARCHES[one] for one in decoders)}"
    text += f" (default: {decoders[0]})"
    add_flags(parser, "--decoder", choices=decoders, help=text)
    add_flags(parser, "--backend", "--threads")
    for name, text in _OF_THE_MODEL.items() if of_audio else ():
        add_flags(parser, flag_of(name), help=text, default=argparse.SUPPRESS)
    if not of_audio:
        add_flags(parser, "--frame-shift")
    # Help shows flags by the decoders that have them; SUPPRESS tells a flag that was
    # not given from a default that was.
    groups: dict[str, argparse._ActionsContainer] = {}
    for name, all_owners in _owners().items():
        owners = [owner for owner in all_owners if owner in decoders]
        if not owners or (of_audio and name in _OF_THE_MODEL):
            continue
        title = f"for --decoder {' or '.join(owners)}"
        if len(owners) == len(decoders):
            title = "for all decoders"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        add_flags(
            groups[title],
            flag_of(name),
            decoders=decoders,
            default=argparse.SUPPRESS,
        )


def search_options(args: argparse.Namespace, *, of_audio: bool = False) -> Any:
    """The options of the decoder that the flags ask for."""
    of_model = _OF_THE_MODEL if of_audio else {}
    for name, decoders in _owners().items():
        if name in of_model:
            continue
        # A flag of another decoder would do nothing, and nobody would see it.
        if hasattr(args, name) and args.decoder not in decoders:
            raise OptionError(
                f"{flag_of(name)} with --decoder {args.decoder}, expected flags of "
                f"that decoder; {flag_of(name)} is for --decoder "
                f"{' or '.join(decoders)}"
            )
    needed = KINDS[args.decoder].inputs[0]
    if needed not in of_model and not hasattr(args, needed):
        raise OptionError(
            f"--decoder {args.decoder} without {flag_of(needed)}, expected both"
        )
    return DECODERS[args.decoder](**_given(args, _options(args.decoder)))


def make_decoder(args: argparse.Namespace, options: Any) -> Decoder:
    """The decoder that the flags ask for, with these options; errors as its own."""
    kind = KINDS[args.decoder]
    given = _given(args, kind.inputs)
    if kind.inputs[-2:] == _G2P:
        given["g2p"] = g2p_of(given.pop("g2p", None), given.pop("g2p_phones", None))
    return kind.make(
        **given,
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
    """The values of flags that are on the command line."""
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
