"""Commands that build, convert and describe graphs and language models; warm-up."""

import importlib
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec
from wfstdec.cli.flags import (
    Args,
    changed,
    command,
    made_of,
    name_of,
    open_vocabulary_of,
    values_of,
)
from wfstdec.cli.main import make_parser
from wfstdec.errors import OptionError, needs
from wfstdec.fst.grammar import read_grammar
from wfstdec.io.lattices import graph_dot
from wfstdec.io.outputs import open_output
from wfstdec.jit.cache import AHEAD, ENTRY
from wfstdec.readable import training
from wfstdec.readable.options import BuildOptions
from wfstdec.text.display import few
from wfstdec.text.files import composed, read_lines
from wfstdec.text.lexicon import (
    Lexicon,
    separator_of,
    spellable_words,
    spelling_lexicon,
)
from wfstdec.text.tokens import TokenTable, read_tokens
from wfstdec.warm_up import ALL, USUAL
from wfstdec.warm_up import warm_up as compile_ahead

_log = logging.getLogger("wfstdec.build")


_LANG = {
    "tokens": "tokens.txt phones.txt",
    "words": "words.txt",
    "lexicon": "lexicon_disambig.txt lexiconp_disambig.txt lexicon.txt lexiconp.txt",
    "grammar": "G.fst G.fst.txt",
}
"""Files of Kaldi's lang folders by flag; the first existing one is used."""


@command(
    "--tokens --lang --words --topology --blank --separator --separator-optional "
    "--silence --silence-prob --unk-cost --open-vocabulary --sentencepiece-model "
    "--engine --no-minimize",
    required="--output",
    one_of=("--lexicon --spell", "--lm --grammar"),
    changes={
        "--lang": changed(
            None,
            "Kaldi's lang folder, for inputs without a flag: tokens.txt or "
            "phones.txt, words.txt, lexicon_disambig.txt, G.fst",
            metavar="FOLDER",
        ),
        "--words": {"help": "word table of a --grammar without one: 'word id' lines"},
    },
    common="--tokens --lexicon --lm --grammar --lang --separator --blank --output",
    examples=r"""
  wfstdec build --tokens tokens.txt --lexicon lexicon.txt.gz --lm lm.arpa.gz \
      --separator '<wb>' --output graph.npz
""",
)
def build(args: Args) -> None:
    """Build a search graph from tokens, a lexicon and a language model.

    States, arcs, seconds and memory of each stage are printed to standard error.
    """
    if args.lang is not None:
        _take_lang(args)
    for flags in ("--tokens", "--lexicon --spell", "--lm --grammar"):
        if not any(getattr(args, name_of(flag)) for flag in flags.split()):
            one = flags.replace(" ", " nor ")
            raise OptionError(f"neither {one} given, expected one, or --lang")
    if args.grammar is not None and args.words is not None:
        args.grammar = read_grammar(args.grammar, args.words)
    tokens = read_tokens(args.tokens, args.blank)
    graph = wfstdec.build_graph(
        tokens=tokens,
        lexicon=args.lexicon or _spelling_of_words(args, tokens),
        **values_of(args, "lm grammar topology separator separator_optional"),
        **values_of(args, "silence silence_prob unk_cost engine"),
        open_vocabulary=open_vocabulary_of(args),
        minimize=not args.no_minimize,
        progress=not args.quiet,
    )
    graph.save(args.output)


def _take_lang(args: Args) -> None:
    given = {"lexicon": args.spell, "grammar": args.lm}
    for name, files in _LANG.items():
        found = [
            path for one in files.split() if (path := Path(args.lang, one)).is_file()
        ]
        if found and getattr(args, name) is None and given.get(name) is None:
            setattr(args, name, str(found[0]))


def _spelling_of_words(args: Args, tokens: TokenTable) -> Lexicon:
    """Return the words of the list (first column), spelled with the tokens."""
    lines = map(str.split, read_lines(args.spell))
    words = composed(line[0] for line in lines if line)
    how = values_of(args, "sentencepiece_model")
    how["separator"] = separator_of(args.separator, tokens, silence=args.silence)
    lexicon, bad = spellable_words(words, tokens, **how)
    # A few words in other scripts are usual; half of a list indicates other tokens.
    if len(bad) >= len(lexicon):
        # raises, with the words that cannot be spelled
        return spelling_lexicon(words, tokens, **how)
    if bad:
        _log.warning(
            "%s: %d of %d words cannot be spelt with the tokens and are left out: %s",
            *(args.spell, len(bad), len(bad) + len(lexicon), few(bad, 5)),
        )
    return lexicon


@command(
    "--tokens --blank --lexicon --separator --graph --unk-cost --nemo-tokens",
    required="--arpa --output",
    examples=r"""
  wfstdec build-lm --arpa lm.arpa.gz --tokens tokens.txt --lexicon lexicon.txt.gz \
      --separator '<wb>' --output lm
""",
)
def build_lm(args: Args) -> None:
    r"""Build a language model for memory mapping: a folder, from an ARPA file.

    It is over the tokens (for decoding without a lexicon), over the words of a lexicon,
    or over those of a graph; the folder includes them.

        wfstdec build-lm --arpa bpe.arpa --tokens tokens.txt --output lm
        wfstdec build-lm --arpa lm.arpa --tokens ... --lexicon ... --output lm
        wfstdec decode --decoder trie --lm lm --tokens ... --lexicon ... \
            --logprobs x.npz
    """
    if (args.graph is None) == (args.tokens is None):
        found = "neither --graph nor" if args.graph is None else "both --graph and"
        raise OptionError(f"{found} --tokens, expected one of them")
    lm = wfstdec.build_lm(
        args.arpa,
        words=None if args.graph is None else wfstdec.load_graph(args.graph).words,
        **values_of(args, "tokens lexicon blank separator unk_cost nemo_tokens"),
    )
    lm.save(args.output)


@command(
    "--tune --speech --vocabulary --passes",
    places={"text": {"nargs": "+", "help": "printed text: plain, .gz or .xz"}},
    required="--output",
    examples="""
  wfstdec build-punctuation books/*.txt.xz --output en.punct.npz
""",
)
def build_punctuation(args: Args) -> None:
    """Build a model of punctuation and capitals from printed text in any language.

    Input has a paragraph per line. The model is a network on the words around each
    place.
    """
    options = made_of(BuildOptions, args)
    given = values_of(args, "tune speech")
    model = training.build_punctuation(args.text, **given, options=options)
    model.save(args.output)


@command(
    "--tokens --words --blank --to",
    places={"input": {"help": "graph to read"}, "output": {"help": "graph to write"}},
    examples="\n  wfstdec convert graph.npz graph.fst\n",
)
def convert(args: Args) -> None:
    """Convert graphs of Kaldi, k2 or NeMo scripts to ours, ours to OpenFst files.

    An input that ends in .npz is ours and becomes an OpenFst file; any other is an
    OpenFst file (const, vector) or AT&T text and becomes ours. Foreign graphs need
    token and word tables unless their files have them.
    """
    if args.input.endswith(".npz"):
        wfstdec.to_openfst(wfstdec.load_graph(args.input), args.output, args.to)
    else:
        tables = values_of(args, "tokens words blank")
        wfstdec.from_openfst(args.input, **tables).save(args.output)


@command(
    "--draw",
    places={"graph": {"help": "output of `wfstdec build` or `build-lm`"}},
    examples="\n  wfstdec info graph.npz\n",
)
def info(args: Args) -> None:
    """Describe a graph or a saved language model: sizes, degrees, tables."""
    is_lm = Path(args.graph).is_dir()
    if args.draw is not None:
        if is_lm:
            raise OptionError("--draw with a language model, expected a graph")
        drawing = graph_dot(wfstdec.load_graph(args.graph))
        with open_output(args.draw) as file:
            file.write(drawing)
        return
    if is_lm:
        facts = _describe_lm(wfstdec.load_lm(args.graph))
    else:
        facts = wfstdec.load_graph(args.graph).describe()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {value}")


def _describe_lm(lm: wfstdec.NgramLM) -> dict[str, str]:
    automaton, unit = lm.automaton, lm.unit
    degrees = np.diff(automaton.state_arc_splits)
    # The label after the last is that of unknown words.
    unknown = np.count_nonzero(automaton.label_alias == lm.num_labels)
    num_labels = lm.num_labels - (unit == "word")  # the table begins with <eps>
    facts = {
        "states": f"{lm.num_states:,}",
        "arcs": f"{lm.num_arcs:,}",
        "arcs of a state": f"{degrees.mean():.2f} on average, {degrees.max()} at most",
        "size": f"{lm.num_bytes / 2**20:.1f} MiB",
        f"{unit}s": f"{num_labels:,}",
        "unknown to it": f"{unknown:,} {unit}s",
        "cost of </s>": f"{lm.final(lm.start):.2f} nats after <s>",
    }
    if isinstance(tokens := lm.labels, TokenTable):
        facts["tokens"] += f", fingerprint {tokens.fingerprint}"
        facts["blank"] = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}"
    elif tokens is None:
        facts[f"{unit}s"] += ", names not kept"
    return facts


@command(
    places={"shell": {"choices": ("bash", "zsh"), "help": "bash or zsh"}},
    examples="\n  wfstdec completion bash > ~/.local/share/bash-completion/"
    "completions/wfstdec\n",
)
def completion(args: Args) -> None:
    """Print a script that completes commands, flags and their values in a shell."""
    with needs("completion needs shtab", ": pip install shtab"):
        shtab = importlib.import_module("shtab")
    parser = make_parser()
    groups: Any = parser._subparsers
    commands = groups._group_actions[0].choices
    for one in (action for own in commands.values() for action in own._actions):
        if one.nargs != 0 and not one.choices:
            one.complete = shtab.FILE
    print(shtab.complete(parser, args.shell))


@command("--all", examples="\n  wfstdec warm-up\n")
def warm_up(args: Args) -> None:
    """Compile kernels ahead of time, to avoid latency on the first call.

    For container builds, editable installations, and packages without machine code.
    Compiled kernels are stored next to the sources, in NUMBA_CACHE_DIR or in
    ~/.cache/wfstdec. Existing kernels are not compiled again.
    """
    ways = ALL if args.all else USUAL
    ahead = {path.name for place in AHEAD for path in place.glob(f"*{ENTRY}")}
    print(f"{len(ahead)} kernels came with the package")
    print("compiling the others, once: a minute of CPU time or more", flush=True)
    begin = time.perf_counter()
    compile_ahead(ways)
    print(f"{len(ways)} ways warm in {time.perf_counter() - begin:.1f} s")
