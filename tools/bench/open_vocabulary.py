"""Open vocabulary in our trie decoder against pyctcdecode, which spells any word.

    pip install -e '.[peers,trie-peers,tools]'
    pip install --no-deps pyctcdecode==0.5.0 && pip install pygtrie
    python -m tools.bench.open_vocabulary --utterances 100
    python -m tools.bench.open_vocabulary --profile small            # a smoke test

Everyone gets the same log-probs, words, language model and scale, and one thread.
Before anything is timed the CPU backend and the reference must agree bit for bit on the
beginnings of a few utterances. A ratio is of a point of pyctcdecode and the fastest of
our points whose word error rate is no higher; points of pyctcdecode that are slower
than another of its own with no more errors are left out. What open words cost was
chosen on `bpe-mild` and `bpe-hard`: for figures take another seed of
`tools.data.make_synthetic`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

from tools.bench import data
from tools.bench.cases import Case, Inputs, load_set
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.contestants import Contestant, peer_contestants, settings
from tools.bench.harness import check_and_time, run_cases
from tools.bench.report import (
    Columns,
    Row,
    figure,
    format_table,
    speed,
    text_figure,
    word_errors,
)
from tools.bench.trie_checks import compare_backends
from tools.bench.trie_report import setting_text, verdicts
from wfstdec.search.options import OpenVocabulary
from wfstdec.text.lexicon import Lexicon
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions

CASES = [
    *("bpe-mild:lm_books.3g_pruned", "bpe-hard:lm_books.3g_pruned"),
    "chars-mid:lm_books.3g_pruned",
]
LEXICON, OPEN, SPELLED = "trie", "trie, open", "trie, no lexicon"
"""With a lexicon alone, with open words beside it, with a language model alone."""
SETTINGS = settings(
    "beam:beam_size:token_top_k:merge=5.0:8:none:max,5.0:16:none:max,6.0:16:none:sum,"
    "7.0:12:6:sum,7.5:12:6:sum,8.0:16:none:sum,8.0:32:none:sum,9.0:48:none:sum,"
    "10.0:64:none:sum,10.0:128:none:sum,11.0:96:none:sum,12.0:128:none:sum"
)
PEER_SETTINGS = settings(
    "beam_width:beam_prune_logp:token_min_logp=10:-10.0:-5.0,25:-10.0:-5.0,"
    "50:-10.0:-5.0,100:-10.0:-5.0,500:-10.0:-5.0,25:-7.0:-4.0,50:-7.0:-4.0,"
    "100:-14.0:-7.0"
)
"""Of pyctcdecode: its own thresholds, narrower and wider ones."""
COSTS = ["4:3", "4:3", "8:1"]
CHECKED = {"beam": 8.0, "beam_size": 8, "token_top_k": 6, "merge": "sum"}
"""The setting at which the backends are compared."""
COLUMNS: Columns = {
    "decoder": text_figure("decoder"),
    "setting": lambda row: setting_text(row["setting"]),
    "WER %": figure("wer", ".2f"),
    "new": lambda row: str(row["new_words"]),
    "RTFx": figure("rtfx", ".0f"),
    "median": figure("rtfx_median", ".0f"),
}
LEGEND = "  new: words in the hypotheses that the lexicon does not have"
PROFILES = profiles(cases=["dev:lm"], costs=["4:1"], utterances=4)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=CASES, help="set:language model")
    add("--costs", nargs="+", default=COSTS, help="word_cost:token_cost of each case")
    add("--slow", type=float, default=2.0, help="CPU s: who takes longer runs twice")
    return parse(parser, argv, PROFILES)


class WordCase(Case):
    """A set with a language model over words, for decoders without a graph."""

    @cached_property
    def lexicon(self) -> Lexicon:
        """Words that the language model has."""
        return self.known_words()


def make_case(name: str, inputs: Inputs) -> WordCase:
    """A set with a language model, by `set:language model`."""
    wanted, _, lm = name.rpartition(":")
    arpa = data.find_lm(lm, inputs.data)
    named = load_set(wanted, inputs), data.name_of_lm(arpa)
    return WordCase(*named, arpa, inputs.lm_scale, None)


def decoder_of(
    case: WordCase, costs: OpenVocabulary | None, backend: str = "cpu", **more: Any
) -> TrieDecoder:
    """Ours; with open words where they have costs."""
    options = TrieOptions(lm_scale=case.lm_scale)
    return case.trie_decoder(options, 1, backend, open_vocabulary=costs, **more)


def contestants(case: WordCase, costs: OpenVocabulary) -> Iterator[Contestant]:
    """Ours in all three ways, and pyctcdecode if it is installed."""
    plain = decoder_of(case, None)
    ours = {LEXICON: plain, OPEN: decoder_of(case, costs, lm=plain.lm)}
    spelling = ours[OPEN].open_spelling
    if spelling is not None and spelling.is_spelled:
        ours[SPELLED] = decoder_of(case, costs, lexicon=None)
    for name, decoder in ours.items():
        for setting in SETTINGS:
            yield Contestant(name, setting, decoder.with_options(**setting).decode)
    yield from peer_contestants(case, "pyctcdecode", PEER_SETTINGS)


def run_case(
    args: argparse.Namespace, named: tuple[str, str]
) -> tuple[list[Row], list[str]]:
    """Check, then time all by turns; rows, and what is wrong.

    `named`: a case, and its costs, as flags have them.
    """
    case = make_case(named[0], Inputs.of(args))
    costs = OpenVocabulary(*map(float, named[1].split(":")))
    hours = case.speech.audio_s / 3600
    print(
        f"\n{case.name}: {len(case.utterances)} utterances, {hours:.3f} h", flush=True
    )
    everyone = list(contestants(case, costs))
    for one in everyone:
        one.run(case.utterances[:2])
    runs = {one.name: partial(one.run, case.utterances) for one in everyone}
    make = partial(decoder_of, case, costs, lm=decoder_of(case, None).lm)
    timed = check_and_time(
        runs,
        lambda _: compare_backends(case, [CHECKED], lambda name: make(backend=name)),
        args,
    )
    if timed.faults:
        return [], timed.faults
    rows, known = [], set(case.lexicon.words)
    for one in everyone:
        texts = [answer.text for answer in timed.answers[one.name]]
        row = {
            "case": case.name,
            "decoder": one.decoder,
            "setting": dict(one.setting),
            "costs": [costs.word_cost, costs.token_cost],
            "audio_s": round(case.speech.audio_s, 2),
            **word_errors(
                case.speech.references,
                dict(zip(case.speech.references, texts, strict=True)),
            ),
            "new_words": sum(w not in known for text in texts for w in text.split()),
            **speed(case.speech.audio_s, timed.seconds[one.name]),
        }
        rows.append(row)
    print(format_table(COLUMNS, rows), flush=True)
    return rows, []


def verdict_line(verdict: Row) -> str:
    """A verdict, to be read."""
    them = f"{verdict['case']} {setting_text(verdict['setting'])}"
    them += f": WER {verdict['value']:.2f}"
    if verdict["ours"] is None:
        return f"  {them}; ours: none as good"
    ours = f"{verdict['decoder']} {setting_text(verdict['ours'])}"
    return (
        f"  {them}; {ours}: WER {verdict['ours_value']:.2f}, {verdict['ratio']:.1f} x"
    )


def report(rows: list[Row]) -> tuple[list[str], Row]:
    """Compare pyctcdecode's points with ours."""
    told = verdicts(rows, (OPEN, SPELLED), (LEXICON,), ["wer"])
    return [LEGEND, *map(verdict_line, told)], {"verdicts": told}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    cases = zip(args.cases, args.costs, strict=True)
    run = Run("tools.bench.open_vocabulary", args)
    return run_cases(run, cases, partial(run_case, args), report)


if __name__ == "__main__":
    exit_with(main)
