"""Small real files for the commands, and running commands on them."""

import gzip

import numpy as np
from arpa_texts import arpa_of

from wfstdec import WfstDecoder, WfstOptions, build_graph
from wfstdec.cli.main import main

TOKENS = ["<blank>", "<wb>", "a", "b", "c"]
LEXICON = "ab\ta b\ncab\tc a b\nc\tc\nrare\tb b\n"
ARPA = arpa_of(
    "-0.7 ab -0.3; -0.7 c -0.3; -0.7 cab; -99 <s> -0.3; -0.7 </s>",
    "-0.2 <s> ab; -0.3 ab c",
)
SENTENCES = {"utt2": "a b | c", "utt1": "c a b", "utt3": "c"}


def logprobs_of(text):
    """Two frames a token, a blank after each; nearly all on one token."""
    rows = []
    for token in text.replace("|", "<wb>").split():
        rows += [TOKENS.index(token)] * 2 + [0]
    array = np.full((len(rows), len(TOKENS)), np.log(0.01), np.float32)
    array[np.arange(len(rows)), rows] = np.log(0.96)
    return array


def write_files(folder):
    """Put all that the commands read into a folder; the folder."""
    (folder / "tokens.txt").write_text("".join(f"{t}\n" for t in TOKENS))
    (folder / "lexicon.txt").write_text(LEXICON)
    (folder / "lm.arpa").write_text(ARPA)
    arrays = {utt: logprobs_of(text) for utt, text in SENTENCES.items()}
    np.savez(folder / "x.npz", **arrays)
    (folder / "ref.txt").write_text("utt2 ab c\nutt1 cab\nutt3 c\n")
    return folder


def wfstdec(folder, command, *arguments):
    """Run a command with file names relative to a folder."""
    made = [str(folder / a) if _is_file(a) else a for a in arguments]
    return main([command, *made])


def _is_file(argument):
    return "." in argument and argument[0].isalpha() and "=" not in argument


def build(folder, *more):
    given = ["--tokens", "tokens.txt", "--lexicon", "lexicon.txt", "--lm", "lm.arpa"]
    given += ["--separator", "<wb>", "--output", "graph.npz", *more]
    return wfstdec(folder, "build", *given)


def small_decoder(folder):
    """A WFST decoder of the small files, with lists of three texts."""
    graph = build_graph(
        tokens=folder / "tokens.txt",
        lexicon=folder / "lexicon.txt",
        lm=folder / "lm.arpa",
        separator="<wb>",
    )
    options = WfstOptions(beam=12.0, nbest=3)
    return WfstDecoder(graph, options, "cpu", frame_shift_s=0.02, threads=1)


def recipe_of(files):
    """The small files under the names of a recipe."""
    (files / "lexicon.txt.gz").write_bytes(gzip.compress(LEXICON.encode()))
    (files / "lm.arpa.gz").write_bytes(gzip.compress(ARPA.encode()))
    (files / "x.npz").rename(files / "logprobs.npz")
    (files / "ref.txt").rename(files / "refs.txt")
    (files / "boosts.txt").write_text("c\t2\n")
    return files
