"""The CUDA kernels in emulation on 1,024 word pieces: long rows, many live labels."""

import gzip
import shutil

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice
from cuda_emulation.machines import made_of
from real_speech import RECIPE
from wfst_searches import bits, decoded

import wfstdec
from wfstdec import (
    CompiledBoosts,
    PhraseCompiler,
    PhraseOptions,
    WfstOptions,
    read_lexicon,
    read_tokens,
)
from wfstdec.boost.phrases import by_lexicon
from wfstdec.boost.words import compile_word_boosts
from wfstdec.search.backend import make_backend
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.options import BACKENDS

pytest.importorskip("sentencepiece")

from tools.data import make_synthetic  # noqa: E402

__all__ = ["made_of"]
pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.share,
]
PIECES, NUM_WORDS, FRAMES = 1024, 3000, 120


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """The graph of a set that the tool made, its log-probs, lexicon and sentences."""
    folder = tmp_path_factory.mktemp("pieces")
    with gzip.open(RECIPE / "lm.arpa.gz", "rt", encoding="utf-8") as file:
        fields = [line.split("\t") for line in file]
    words = [line[1] for line in fields if len(line) == 3 and " " not in line[1]]
    words = sorted(word for word in words if word.isascii() and word.isalpha())
    rng = np.random.default_rng(1)
    few = rng.choice(words, NUM_WORDS, replace=False)
    lines = (" ".join(rng.choice(words, 12)) for _ in range(1500))
    said = (" ".join(rng.choice(few, 8)) for _ in range(200))
    (folder / "text.txt").write_text("\n".join([*lines, *said]) + "\n")
    known = "".join(f"-4\t{word}\n" for word in ["<s>", "</s>", *words])
    header = f"\\data\\\nngram 1={len(words) + 2}\n\n\\1-grams:\n"
    (folder / "words.arpa").write_text(header + known + "\n\\end\\\n")
    make_synthetic.main(
        ["--text", str(folder / "text.txt"), "--arpa", str(folder / "words.arpa")]
        + ["--out", str(folder / "set"), "--level", "hard", "--utterances", "4"]
        + ["--pieces", str(PIECES), "--train-sentences", "1500"]
    )
    tokens = read_tokens(folder / "set" / "tokens.txt")
    lexicon = read_lexicon(folder / "set" / "lexicon.txt", tokens)
    refs = (folder / "set" / "refs.txt").read_text("utf-8").splitlines()
    sentences = [line.split()[1:] for line in refs]
    wanted = {word for sentence in sentences for word in sentence} | set(few.tolist())
    lexicon, _ = lexicon.restrict(wanted)
    graph = wfstdec.build_graph(
        tokens=tokens, lexicon=lexicon, lm=RECIPE / "lm.arpa.gz"
    )
    with np.load(folder / "set" / "posteriors.npz") as file:
        logprobs = [file[name].astype(np.float32)[:FRAMES] for name in file.files]
    return graph, logprobs, lexicon, sentences


def boosts_of(graph, lexicon, sentences):
    """None; words that are said; phrases of tokens that are said; both."""
    none = compile_word_boosts(None, graph.word_ids)[0]
    said = {word: 2.0 for words in sentences for word in words[::2]}
    words = compile_word_boosts(said, graph.word_ids)[0]
    totals = PhraseOptions(weights_are_totals=True)
    compiler = PhraseCompiler(by_lexicon(lexicon), graph.tokens, totals)
    known = set(lexicon.words)
    pairs = [" ".join(words[i : i + 2]) for words in sentences for i in (0, 2)]
    pairs = {pair: 3.0 for pair in pairs if set(pair.split()) <= known}
    phrases = compiler.compile(pairs)
    assert phrases.num_arcs > 10
    lists = [(none, None), (words, None), (none, phrases), (words, phrases)]
    return [CompiledBoosts(*both) for both in lists]


OPTIONS = [
    WfstOptions(beam=10.0, lm_scale=0.8, max_active=400),
    WfstOptions(beam=7.0, min_active=30, beam_delta=0.5),
]


def test_the_bits_of_the_cpu(pieces):
    graph, logprobs, lexicon, sentences = pieces
    assert len(graph.tokens) == PIECES + 1
    assert np.diff(graph.state_arc_splits).max() > 256  # where words begin
    boosts = boosts_of(graph, lexicon, sentences)
    cpu = make_backend(BACKENDS, "cpu", graph)
    for options in OPTIONS:
        expected = []
        for x, one in zip(logprobs, boosts, strict=True):
            under_way = cpu.start(options, one)
            under_way.advance(x)
            path = under_way.finish()
            assert len(path.tokens.word) > 3  # words
            expected.append(bits(path))
        device = EmulatedDevice(64, preempt=500, os_threads=2, shared_slots=1024)
        backend = DeviceBackend(graph, device, first_capacity=64)
        assert decoded(backend, options, logprobs, boosts) == expected
        assert device.launches.count("search_chunk") > 1  # arrays grew
