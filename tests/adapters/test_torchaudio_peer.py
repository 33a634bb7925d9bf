"""torchaudio's decoder against flashlight-text, called as torchaudio calls it.

Where two sentences have one score flashlight orders them by where they lie in memory;
ours are ordered by a key, so that only what has one score may be in another order.
"""

import gzip
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from arpa_texts import arpa_of
from ctc_decoder_cases import random_case, random_options
from real_speech import RECIPE, utterances

from wfstdec.adapters.torchaudio import CTCDecoderLM, CTCDecoderLMState, ctc_decoder

pytest.importorskip("flashlight.lib.text.decoder")

from flashlight.lib.text import decoder as text  # noqa: E402
from flashlight.lib.text.dictionary import create_word_dict  # noqa: E402

from tools.peers.flashlight_calls import Flashlight  # noqa: E402

pytestmark = pytest.mark.peers
SAME = 1e-4
"""Scores that differ by less are one."""


def both(arguments, emissions, lms=(), **options):
    ours, theirs = ({"lm": lm} for lm in lms) if lms else ({}, {})
    ours = ctc_decoder(**arguments | ours, **options)(emissions[None])[0]
    ours = [
        (one.score, one.tokens.tolist(), one.words, one.timesteps.tolist())
        for one in ours
    ]
    theirs = Flashlight(**arguments | theirs, **options)(emissions)
    return ours, [(one.score, one.tokens, one.words, one.timesteps) for one in theirs]


def ties(answers, cut_off):
    groups = []
    for score, *rest in answers:
        if not groups or groups[-1][0] - score > SAME:
            groups.append((score, []))
        groups[-1][1].append(rest)
    found = [sorted(group) for _, group in groups]
    return found[:-1] if cut_off else found


def assert_same(ours, theirs, nbest):
    assert [one[0] for one in ours] == pytest.approx(
        [one[0] for one in theirs], abs=1e-3
    )
    cut_off = len(ours) == nbest
    assert ties(ours, cut_off) == ties(theirs, cut_off)


@pytest.mark.parametrize("separator", [True, False])
@pytest.mark.parametrize("with_lm", [True, False])
@pytest.mark.parametrize("with_lexicon", [True, False])
@pytest.mark.share(keep=4)
def test_the_same_where_nothing_is_pruned(with_lexicon, with_lm, separator, tmp_path):
    for seed in range(40):
        arguments, emissions = random_case(
            seed,
            tmp_path,
            with_lexicon=with_lexicon,
            with_lm=with_lm,
            separator=separator,
        )
        options = random_options(seed)
        assert_same(*both(arguments, emissions, **options), options["nbest"])


@pytest.mark.parametrize("with_lexicon", [True, False])
def test_the_same_where_much_is_pruned(with_lexicon, tmp_path):
    """Words that are spelt alike would tie, and ties are cut as memory has it."""
    for seed in range(150):
        arguments, emissions = random_case(
            seed,
            tmp_path,
            with_lexicon=with_lexicon,
            with_lm=True,
            separator=seed % 2,
            homophones=False,
        )
        options = random_options(seed, pruned=True)
        options["lm_weight"] = max(0.5, options["lm_weight"])
        assert_same(*both(arguments, emissions, **options), options["nbest"])


def test_the_same_where_tokens_have_other_names(tmp_path):
    """Blank and silence by any name; a word of the model's for the unknown ones."""
    lexicon, arpa = tmp_path / "lexicon.txt", tmp_path / "lm.arpa"
    lexicon.write_text("one a b _\ntwo b _\nother c _\n", "utf-8")
    words = "-99 <s> -0.5; -1 </s>; -0.5 one; -0.75 other; -2 <unk>"
    arpa.write_text(arpa_of(words, "-0.25 <s> one"))
    arguments = {"lexicon": str(lexicon), "tokens": list("a_*cb"), "lm": str(arpa)}
    options = {
        "blank_token": "*",
        "sil_token": "_",
        "unk_word": "other",
        "unk_score": -1.0,
        "sil_score": -0.5,
        "nbest": 20,
    }
    emissions = np.random.default_rng(0).normal(0, 3, (8, 5)).astype(np.float32)
    ours, theirs = both(arguments, emissions, **options)
    assert_same(ours, theirs, 20)
    assert any("other" in words for _, _, words, _ in ours)


class Counting:
    """A score that depends on the whole text so far: mixed into both interfaces."""

    def __init__(self):
        super().__init__()
        self.histories = {}

    def start(self, start_with_nothing):
        state = self.new_state()
        self.histories[state] = ()
        return state

    def score(self, state, usr_token_idx):
        following = state.child(usr_token_idx)
        history = (*self.histories[state], usr_token_idx)
        self.histories[following] = history
        return following, self.of(history)

    def finish(self, state):
        following = state.child(-1)
        self.histories[following] = (*self.histories[state], -1)
        return following, self.of(self.histories[following])

    @staticmethod
    def of(history):
        """Above 0 at times."""
        return (hash(history) % 1000) / 250 - 3


class Own(Counting, CTCDecoderLM):
    new_state = CTCDecoderLMState


class Theirs(Counting, text.LM):
    new_state = text.LMState


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("with_lexicon", [True, False])
def test_the_same_with_a_model_in_python(with_lexicon, pruned, tmp_path):
    for seed in range(20):
        arguments, emissions = random_case(
            seed, tmp_path, with_lexicon=with_lexicon, with_lm=False
        )
        if with_lexicon:
            lines = Path(arguments["lexicon"]).read_text("utf-8").splitlines()
            words = dict.fromkeys([*(line.split()[0] for line in lines), "<unk>"])
            arguments["lm_dict"] = str(tmp_path / "words.txt")
            Path(arguments["lm_dict"]).write_text("\n".join(words), "utf-8")
        options = random_options(seed, pruned=pruned)
        options |= {"lm_weight": 0.5 + options["lm_weight"]}
        found = both(arguments, emissions, (Own(), Theirs()), **options)
        assert_same(*found, options["nbest"])


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    arpa = folder / "lm.arpa"
    arpa.write_bytes(gzip.decompress((RECIPE / "lm.arpa.gz").read_bytes()))
    known = {line.split("\t")[1] for line in arpa.open() if line.count("\t") > 0}
    alike, lines = {}, []
    for line in gzip.open(RECIPE / "lexicon.txt.gz", "rt", encoding="utf-8"):
        word, *spelt = line.split()
        alike.setdefault(tuple(spelt), {})[word] = None
        if word in known and len(alike[tuple(spelt)]) <= 6:
            lines.append(" ".join([word, *spelt, "<wb>"]))
    lexicon = folder / "lexicon.txt"
    lexicon.write_text("\n".join(lines), "utf-8")
    tokens = (RECIPE / "tokens.txt").read_text("utf-8").splitlines()
    return {
        "lexicon": str(lexicon),
        "tokens": [line.split()[0] for line in tokens],
        "lm": str(arpa),
        "blank_token": "<blank>",
        "sil_token": "<wb>",
    }


@pytest.mark.parametrize("options", [{}, {"log_add": True, "beam_size_token": 12}])
@pytest.mark.share(keep=1)
def test_real_utterances_have_the_same_texts(speech, options):
    ours, theirs = ctc_decoder(**speech, **options), Flashlight(**speech, **options)
    for emissions in utterances(4):
        found, expected = ours(emissions[None])[0][0], theirs(emissions)[0]
        assert found.score == pytest.approx(expected.score, abs=1e-3)
        assert found.words == expected.words


ARPA = arpa_of("-99 <s> -0.5; -1 </s>; -0.25 a; -3 b; -1.5 |; -2 <unk>", "-0.125 <s> a")


def test_a_model_over_tokens_is_asked_for_the_tokens(tmp_path):
    """torchaudio numbers its labels in the order of a hash table, not of the tokens."""
    tokens = list("-|ab")
    theirs = create_word_dict({name: [[name]] for name in [*tokens, "<unk>"]})
    assert [theirs.get_entry(i) for i in range(4)] != tokens
    arpa, lm_dict = tmp_path / "lm.arpa", tmp_path / "tokens.txt"
    arpa.write_text(ARPA, "utf-8")
    lm_dict.write_text("\n".join(tokens), "utf-8")
    arguments = {"lexicon": None, "tokens": tokens, "lm": str(arpa)}
    emissions = np.zeros((1, 3, 4), np.float32)
    found = ctc_decoder(**arguments, nbest=9)(emissions)[0]
    named = ctc_decoder(**arguments, nbest=9, lm_dict=str(lm_dict))(emissions)[0]
    right = Flashlight(**arguments, nbest=9, lm_dict=str(lm_dict))(emissions[0])
    scores = [one.score for one in found]
    assert scores == pytest.approx([one.score for one in right], abs=1e-3)
    assert scores == [one.score for one in named]


def test_more_than_six_words_may_be_spelt_alike(tmp_path):
    """flashlight keeps six, and says on stderr that it dropped some."""
    lexicon = tmp_path / "lexicon.txt"
    words = [f"w{i}" for i in range(8)]
    lexicon.write_text("".join(f"{word} a |\n" for word in words), "utf-8")
    emissions = np.log(np.float32([[0.1, 0.1, 0.8], [0.1, 0.8, 0.1]]))
    arguments = {"lexicon": str(lexicon), "tokens": list("-|a")}
    ours, theirs = both(arguments, emissions, nbest=20)
    spoken = [
        {words[0] for _, _, words, _ in found if words} for found in (ours, theirs)
    ]
    assert spoken[0] == set(words)
    assert len(spoken[1]) == 6


@pytest.mark.parametrize(
    ("lexicon", "emitted", "words", "score"),
    [
        ("w a b b\n", "abb", ["w"], 0.0),  # the last token needs no blank before it
        ("w a b b |\n", "ab-b|", ["w"], 0.0),  # where silence ends words it does
        ("w a b\n", "abb", ["w"], -20.0),  # the last token cannot be held
        ("w a b\n", "ab||", ["w"], 0.0),  # silence can
    ],
)
def test_rules_of_theirs_are_kept(lexicon, emitted, words, score, tmp_path):
    path, tokens = tmp_path / "lexicon.txt", list("-|abc")
    path.write_text(lexicon, "utf-8")
    emissions = np.full((len(emitted), len(tokens)), -20.0, np.float32)
    emissions[range(len(emitted)), [tokens.index(one) for one in emitted]] = 0.0
    ours, theirs = both({"lexicon": str(path), "tokens": tokens}, emissions)
    assert_same(ours[:1], theirs[:1], 1)
    assert (ours[0][2], ours[0][0]) == (words, score)


def test_their_sums_of_homophones_are_kept(tmp_path):
    """Hopes at a node add up log10 as if they were natural logarithms."""
    path, arpa = tmp_path / "lexicon.txt", tmp_path / "lm.arpa"
    path.write_text("a a |\nb a |\n", "utf-8")
    arpa.write_text(ARPA, "utf-8")
    arguments = {"lexicon": str(path), "tokens": list("-|a"), "lm": str(arpa)}
    emissions = np.float32([[-9, -9, 0]])  # one hypothesis does not reach the end
    (ours,), (theirs,) = both(arguments, emissions, beam_size=1)
    hoped = math.log(math.exp(-0.125) + math.exp(-0.5 - 3))  # of `a`, of `b`
    assert ours[0] == pytest.approx(2 * (hoped + -0.5 - 1))  # and `</s>`
    assert_same([ours], [theirs], 2)


def test_blank_may_be_silence_too(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("w a b\nv b\n", "utf-8")
    arguments = {"lexicon": str(path), "tokens": list("-ab"), "sil_token": "-"}
    for seed, lexicon in itertools.product(range(5), (str(path), None)):
        rng = np.random.default_rng(seed)
        emissions = rng.normal(0, 2, (6, 3)).astype(np.float32)
        given = arguments | {"lexicon": lexicon}
        found = both(given, emissions, sil_score=-0.5, nbest=50)
        assert_same(*found, 50)
