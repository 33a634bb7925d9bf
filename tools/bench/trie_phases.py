"""Where a frame of the trie search goes: time-stamp ticks by phase, and what-if runs.

    python -m tools.bench.trie_phases --utterances 40
    python -m tools.bench.trie_phases --cases bpe-mild:lm_books.3g_pruned --open 4:3
    python -m tools.bench.trie_phases --profile small                # a smoke test

A phase is timed by a clock around its calls; what the clock itself takes is measured
and taken off. Clocks keep a phase from overlapping with what stands beside it, so that
one of short calls is told too large. Beside them is a what-if run: the answers of the
look-ahead are read one by one from a list of those before, which takes off what it
computes and waits for. Clocks are compiled into the kernels, so that each variant has a
process of its own. Hypotheses must be the same in all, or nothing is told, exit
status 1. Ticks go on while others have the processor: with a load above the cores they
mean nothing.

    frame   all that the kernel does, from one utterance of a group to the next;
            `price` to `settle` are its steps
    stay    entries if no token begins; tokens: finding and sorting those that may
            begin; model: asking the language model; look-ahead: what is not in the
            cache; inside: children of nodes: all in `expand`
    log_add in `merge`; sort in `choose`; trace in `settle`
    host    what `decode` takes beside the kernel: preparing, reading the path
"""

from __future__ import annotations

import argparse

from tools.bench.cases import Inputs
from tools.bench.clocks import (
    TICKS,
    KernelTime,
    begin_keeping,
    change,
    clocked,
    digest_of,
    empty_clocks,
    fastest_turn,
    keep_no_kernels,
    remembered,
)
from tools.bench.command import (
    Run,
    exit_with,
    in_own_process,
    make_parser,
    parse,
    profiles,
)
from tools.bench.open_vocabulary import WordCase, decoder_of, make_case
from tools.bench.report import Columns, Row, figure, text_figure
from wfstdec.search.options import OpenVocabulary
from wfstdec.trie.cpu import groups as host
from wfstdec.trie.decoder import TrieDecoder

CASES = ["dev:lm_books.3g_pruned", "bpe-mild:lm_books.3g_pruned"]
SETTINGS = ["8:32:max", "12:128:max", "14:256:max"]
SETTINGS += [setting.replace("max", "sum") for setting in SETTINGS]
STEPS = {
    "price": ["frame.price"],
    "expand": ["frame.expand"],
    "merge": ["frame.merge"],
    "choose": ["frame.choose"],
    "settle": ["frame.settle"],
}
"""Functions of `wfstdec.trie.cpu` by phase: where they are called, under which name."""
PARTS = {
    "stay": ["frame.stay"],
    "tokens": ["frame.find_tokens", "frame.drop_tokens", "frame.rank_tokens"],
    "model": ["nodes.step", "frame.step"],
    "look-ahead": ["nodes.potential_of"],
    "inside": ["frame._find_inside"],
    "log_add": ["merge.log_add"],
    "sort": ["merge.sort_keys"],
    "trace": ["merge._settle_nonblank"],
}
LISTED = "0x look-ahead"
PLAIN, ROOM = "plain", "wfstdec.trie.cpu"
PROFILES = profiles(cases=["dev:lm"], settings=["8:32:max"], utterances=4)
COLUMNS: Columns = {
    "case": text_figure("case"),
    "setting": text_figure("setting"),
    "frame": figure("frame", ".0f"),
    "host": figure("host", ".0f"),
    **{name: figure(name, ".0f") for name in (*STEPS, *PARTS)},
    LISTED: figure(LISTED, ".0f"),
}


def change_kernels(variant: str) -> dict[str, int]:
    """Change kernels as a variant says, before any is compiled; phases by name."""
    if variant == PLAIN:
        return {}
    keep_no_kernels()
    if variant == LISTED:
        change(ROOM, PARTS["look-ahead"], remembered)
        return {}
    first, clocks = (0, STEPS) if variant == "steps" else (len(STEPS), PARTS)
    phases = {name: first + i for i, name in enumerate(clocks)}
    for name, functions in clocks.items():
        change(ROOM, functions, lambda one, at=phases[name]: clocked(one, at))
    empty_clocks(len(TICKS) - 1, 1000)
    return phases


def run_variant(variant: str, args: argparse.Namespace) -> list[Row]:
    """Decode everything with kernels of a variant; ns per frame."""
    phases = change_kernels(variant)
    timer = KernelTime(host.search_group)
    host.search_group = timer
    rows = []
    for name in args.cases:
        case = make_case(name, Inputs.of(args))
        for costs in (None, args.open):
            opened = costs and OpenVocabulary(*map(float, costs.split(":")))
            decoder = decoder_of(case, opened or None)
            for setting in args.settings:
                row = time_setting(case, decoder, setting, args, timer, phases)
                row["case"] += "" if costs is None else ", open words"
                rows.append(row)
    return rows


def time_setting(
    case: WordCase,
    decoder: TrieDecoder,
    setting: str,
    args: argparse.Namespace,
    timer: KernelTime,
    phases: dict[str, int],
) -> Row:
    """Nanoseconds of a frame, in all and by phase: of the fastest of the turns."""
    beam, size, merge = setting.split(":")
    options = {"beam": float(beam), "beam_size": int(size), "merge": merge}
    decoder = decoder.with_options(**options)
    utterances = case.utterances
    frames = sum(map(len, utterances))
    for _ in range(2):  # the second time caches are as they will be from then on
        begin_keeping(read=False)
        decoder.decode(utterances)
    begin_keeping(read=True)
    answers = digest_of(decoder.decode(utterances))
    row: Row = {"case": case.name, "setting": setting, "answers": answers}

    def decode() -> None:
        begin_keeping(read=True)
        decoder.decode(utterances)

    return row | fastest_turn(decode, timer, frames, args.repeats, phases)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=CASES, help="set:language model")
    add("--settings", nargs="+", default=SETTINGS, help="beam:beam_size:merge")
    add("--open", default="8:1", help="word_cost:token_cost of open words")
    return parse(parser, argv, PROFILES)


def main(argv: list[str] | None = None) -> int:
    """Run all variants; join and compare what they say."""
    args = parse_arguments(argv)
    run = Run("tools.bench.trie_phases", args)
    rows, *others = (
        in_own_process(run_variant, variant, args)
        for variant in (PLAIN, "steps", "parts", LISTED)
    )
    for row, steps, parts, listed in zip(rows, *others, strict=True):
        for other in (steps, parts, listed):
            if other["answers"] != row["answers"]:
                print(f"ANSWERS DIFFER, nothing is told: {row['case']}")
                return 1
        listed = {LISTED: round(listed["frame"] - row["frame"], 2)}
        row |= steps | parts | row | listed
    print("ns for a frame, the fastest of the turns")
    return run.finish(rows, COLUMNS)


if __name__ == "__main__":
    exit_with(main)
