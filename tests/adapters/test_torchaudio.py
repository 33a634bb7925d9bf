"""torchaudio's decoder: what it takes, what it gives, what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from arpa_texts import arpa_of
from ctc_decoder_cases import random_case, random_options

from wfstdec.adapters import torchaudio
from wfstdec.adapters.torchaudio import (
    CTCDecoderLM,
    CTCDecoderLMState,
    ctc_decoder,
    decoder,
    download_pretrained_files,
    search,
)
from wfstdec.errors import (
    ArpaError,
    BackendError,
    FormatError,
    InputError,
    LanguageModelError,
    LexiconError,
    LogprobError,
    OptionError,
    ShapeError,
    TokenTableError,
)

KENLM = Path(__file__).parents[1] / "data" / "kenlm"
TOKENS = list("-|abc")
LEXICON = "ab a b |\nba b a |\nc c |\ncab c a b |\n"
ARPA = arpa_of(
    "-99 <s> -0.25; -0.5 </s>; -0.25 ab -0.5; -1 ba; -0.75 c; -2 <unk>",
    "-0.125 <s> c; -0.0625 c ab",
)


@pytest.fixture
def files(tmp_path):
    names = {"lexicon": LEXICON, "lm": ARPA, "lm_dict": "ab\nba\nc\ncab\n<unk>\n"}
    for name, text in names.items():
        (tmp_path / name).write_text(text, "utf-8")
        names[name] = str(tmp_path / name)
    return names


def emitted(tokens, num_tokens=5, other=-20.0):
    """Emissions that leave no doubt, float32 [1, T, V]."""
    emissions = np.full((1, len(tokens), num_tokens), other, np.float32)
    for t, token in enumerate(tokens):
        emissions[0, t, TOKENS.index(token)] = 0.0
    return emissions


def as_lists(found):
    return [
        [(h.score, h.tokens.tolist(), h.words, h.timesteps.tolist()) for h in one]
        for one in found
    ]


def random_batch(seed, folder, **kind):
    arguments, _ = random_case(seed, folder, **kind)
    emissions = np.random.default_rng(seed).normal(0, 2, (4, 12, len(TOKENS)))
    return arguments, emissions.astype(np.float32)


def test_an_utterance_by_hand(files):
    made = ctc_decoder(
        files["lexicon"], TOKENS, files["lm"], nbest=2, sil_score="-0.25"
    )
    (best, second), (other, *_) = made(
        np.concatenate([emitted("cc|a-b|--"), emitted("--b-a-|||")])
    )
    assert best.words == ["c", "ab"]
    assert best.tokens.tolist() == [1, 4, 1, 2, 3, 1, 1]
    assert best.timesteps.tolist() == [0, 1, 3, 4, 6, 7, 10]
    # <s> c, c ab, </s> after the back-off of ab; two frames of silence
    assert best.score == pytest.approx(2 * (-0.125 - 0.0625 - 0.5 - 0.5) - 2 * 0.25)
    assert second.score < best.score
    assert (other.words, other.tokens.tolist()) == (["ba"], [1, 3, 2, 1])
    assert other.timesteps.tolist() == [0, 3, 5, 7]
    assert made.idxs_to_tokens(best.tokens) == list("|c|ab||")


def test_without_a_lexicon_it_says_tokens():
    (found,) = ctc_decoder(None, TOKENS)(emitted("|aa-ab|"))[0]
    assert (found.words, found.score) == ([], 0.0)
    assert found.tokens.tolist() == [1, 2, 2, 3, 1]
    assert found.timesteps.tolist() == [0, 2, 5, 6, 7]


def test_unknown_words_end_where_no_word_does(files):
    made = ctc_decoder(
        files["lexicon"], TOKENS, files["lm"], unk_score=-1.5, word_score=0.75
    )
    (found,) = made(emitted("a-|c|"))[0]
    assert found.words == ["<unk>", "c"]
    lm = (-0.25 - 2) - 0.75 - 0.5  # <unk> and c without a back-off, </s>
    assert found.score == pytest.approx(2 * lm - 1.5 + 0.75)


def test_words_that_the_model_lacks_are_its_unknown_word(files, caplog):
    made = ctc_decoder(files["lexicon"], TOKENS, files["lm"])
    assert made(emitted("cab|"))[0][0].score == pytest.approx(2 * (-0.25 - 2 - 0.5))
    assert not caplog.records  # most are known
    ctc_decoder(None, TOKENS, files["lm"])
    assert "has 1 of the 5 tokens" in caplog.text


def test_ties_go_by_the_order_of_the_lexicon(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("z a |\ny a |\nx a |\n", "utf-8")
    found = ctc_decoder(str(path), TOKENS, nbest=3)(emitted("a|"))[0]
    assert [one.words for one in found] == [["z"], ["y"], ["x"]]
    assert len({one.score for one in found}) == 1


def test_token_files_may_have_several_names_on_a_line(tmp_path, files):
    path = tmp_path / "tokens.txt"
    path.write_text("-\n| _\n\na A\nb\nc\n", "utf-8")
    (tmp_path / "names").write_text("ab A b _\n", "utf-8")
    made = ctc_decoder(str(tmp_path / "names"), str(path))
    (found,) = made(emitted("ab|"))[0]
    assert found.words == ["ab"]
    assert made.idxs_to_tokens(found.tokens) == list("|ab|")


def test_nothing_that_is_possible_is_found_in_nothing(files):
    made = ctc_decoder(files["lexicon"], TOKENS)
    assert made(np.full((1, 2, 5), -np.inf, np.float32)) == [[]]
    (found,) = made(np.zeros((1, 0, 5), np.float32))[0]
    assert (found.words, found.tokens.tolist(), found.score) == ([], [1], 0.0)


@pytest.mark.parametrize("with_lexicon", [True, False])
def test_pieces_batches_padding_and_threads_change_nothing(with_lexicon, tmp_path):
    for seed in range(6):
        arguments, batch = random_batch(
            seed, tmp_path, with_lexicon=with_lexicon, with_lm=True
        )
        options = random_options(seed, pruned=seed % 2)
        options["beam_size"] = min(options["beam_size"], 100)
        made = ctc_decoder(**arguments, **options)
        lengths = [12, 7, 0, 3]
        expected = as_lists(made(batch, np.array(lengths)))
        threaded = ctc_decoder(**arguments, **options, threads=3)
        assert as_lists(threaded(batch, lengths)) == expected
        for emissions, length, whole in zip(batch, lengths, expected, strict=True):
            assert as_lists(made(emissions[None, :length])) == [whole]
            for piece in (1, 2, 5):
                made.decode_begin()
                for t in range(0, length, piece):
                    made.decode_step(emissions[t : min(t + piece, length)])
                made.decode_end()
                assert as_lists([made.get_final_hypothesis()]) == [whole]


@pytest.mark.parametrize("log_add", [False, True])
def test_arrays_that_grow_change_nothing(log_add, tmp_path, monkeypatch):
    for seed in range(6):
        arguments, batch = random_batch(seed, tmp_path, with_lexicon=True, with_lm=True)
        options = random_options(seed, pruned=True) | {"beam_size": 3}
        options["log_add"] = log_add
        expected = as_lists(ctc_decoder(**arguments, **options)(batch))
        with monkeypatch.context() as patch:
            patch.setattr(search, "FIRST_CANDIDATES", 1)
            assert as_lists(ctc_decoder(**arguments, **options)(batch)) == expected


def test_tensors_and_arrays_are_the_same(files, monkeypatch):
    torch = pytest.importorskip("torch")
    made = ctc_decoder(files["lexicon"], TOKENS, files["lm"])
    batch = np.concatenate([emitted("c|ab|"), emitted("ba|c|")])
    found = made(torch.from_numpy(batch), torch.tensor([5, 3]))
    assert found[0][0].tokens.dtype == torch.int64
    assert found[0][0].timesteps.dtype == torch.int32
    crossed = torch.from_numpy(batch.transpose(1, 0, 2).copy()).transpose(0, 1)
    assert as_lists(made(crossed, [5, 3])) == as_lists(found)
    monkeypatch.setattr(decoder, "_torch", lambda: None)
    plain = made(batch, [5, 3])
    assert plain[0][0].tokens.dtype == np.int64
    assert plain[0][0].timesteps.dtype == np.int32
    assert as_lists(plain) == as_lists(found)


class Bigrams(CTCDecoderLM):
    """The model of `ARPA` in Python; counts what it is asked."""

    log10 = {"ab": -0.25, "ba": -1.0, "c": -0.75, "cab": -2.0, "<unk>": -2.0}
    backoff = {"<s>": -0.25, "ab": -0.5}
    pairs = {("<s>", "c"): -0.125, ("c", "ab"): -0.0625}

    def __init__(self, words):
        CTCDecoderLM.__init__(self)
        self.words, self.last, self.asked = words, {}, []

    def start(self, start_with_nothing):
        assert start_with_nothing is False
        state = CTCDecoderLMState()
        self.last[state] = "<s>"
        return state

    def score(self, state, usr_token_idx):
        self.asked.append((state, usr_token_idx))
        last, word = self.last[state], self.words[usr_token_idx]
        following = state.child(usr_token_idx)
        self.last[following] = word
        if (last, word) in self.pairs:
            return following, self.pairs[last, word]
        return following, np.float64(self.backoff.get(last, 0.0) + self.log10[word])

    def finish(self, state):
        return state, self.backoff.get(self.last[state], 0.0) - 0.5


@pytest.mark.parametrize("binary", ["trie.bin", "probing.bin"])
@pytest.mark.parametrize("with_lexicon", [True, False])
def test_binaries_of_kenlm_are_what_they_are_made_of(binary, with_lexicon, tmp_path):
    if binary == "probing.bin":
        pytest.importorskip("kenlm")
    tokens, lexicon = ["-", "|", "the", "cat", "x", "lacking"], None
    if with_lexicon:
        lexicon = str(tmp_path / "lexicon.txt")
        lines = "the the |\ncat cat |\nmat x the |\nlacking x |\nsat cat x |\n"
        (tmp_path / "lexicon.txt").write_text(lines, "utf-8")
    for seed in range(6):
        options = random_options(seed, pruned=seed % 2)
        options["beam_size"] = min(options["beam_size"], 100)
        emissions = np.random.default_rng(seed).normal(0, 2, (1, 10, 6))
        found, expected = (
            ctc_decoder(lexicon, tokens, str(KENLM / lm), **options)(
                emissions.astype(np.float32)
            )[0]
            for lm in (binary, "tiny.arpa")
        )
        assert [one.score for one in found] == pytest.approx(
            [one.score for one in expected], abs=1e-4
        )
        assert [one.words for one in found] == [one.words for one in expected]


@pytest.mark.parametrize("log_add", [False, True])
def test_a_model_in_python_is_one_like_any_other(files, log_add):
    words = ["ab", "ba", "c", "cab", "<unk>"]
    for seed in range(10):
        emissions = np.random.default_rng(seed).normal(0, 2, (1, 9, 5))
        options = random_options(seed, pruned=seed % 2) | {"log_add": log_add}
        own = Bigrams(words)
        made = ctc_decoder(files["lexicon"], TOKENS, own, files["lm_dict"], **options)
        del own.asked[:]
        found = made(emissions.astype(np.float32))[0]
        assert len(own.asked) == len(set(own.asked)) > 0
        made = ctc_decoder(files["lexicon"], TOKENS, files["lm"], **options)
        expected = made(emissions.astype(np.float32))[0]
        assert [one.words for one in found] == [one.words for one in expected]
        assert [one.score for one in found] == pytest.approx(
            [one.score for one in expected], abs=1e-5
        )


def test_what_a_model_in_python_raises_comes_out(files):
    class Failing(Bigrams):
        def score(self, state, usr_token_idx):
            if self.last[state] == "c":
                raise KeyError("nothing follows c")
            return super().score(state, usr_token_idx)

    own = Failing(["ab", "ba", "c", "cab", "<unk>"])
    made = ctc_decoder(files["lexicon"], TOKENS, own)
    with pytest.raises(KeyError, match="nothing follows c"):
        made(emitted("c|ab|"))


@pytest.mark.parametrize("answer", [None, 1.0, (None, "a"), (None, np.nan), (1, 2, 3)])
def test_what_a_model_in_python_gives_is_checked(answer, files):
    class Odd(Bigrams):
        def finish(self, state):
            return answer

    made = ctc_decoder(files["lexicon"], TOKENS, Odd(["ab", "ba", "c", "cab", "<unk>"]))
    with pytest.raises(LanguageModelError, match="Odd.finish gave .* a state and a sc"):
        made(emitted("c|"))


def test_states_of_a_model_have_children():
    state = CTCDecoderLMState()
    child = state.child(3)
    assert state.child(3) is child and state.child(-1) is not child
    assert state.children == {3: child, -1: state.child(-1)}
    assert child.compare(child) == 0
    assert state.compare(child) == -child.compare(state) != 0
    with pytest.raises(TypeError):
        CTCDecoderLM()


def test_what_is_not_downloaded_is_named():
    with pytest.raises(BackendError, match="downloads nothing"):
        download_pretrained_files("librispeech-4-gram")
    assert "download_pretrained_files" in torchaudio.__all__


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tokens": "missing.txt"}, FormatError, "missing.txt: cannot read"),
        ({"lexicon": "missing.txt"}, FormatError, "missing.txt: cannot read"),
        ({"lm": "missing.arpa"}, FormatError, "missing.arpa: cannot read"),
        ({"lm_dict": "missing.txt"}, FormatError, "missing.txt: cannot read"),
        ({"tokens": []}, TokenTableError, "no tokens, expected at least one"),
        ({"tokens": list("-|aabc")}, TokenTableError, "'a' comes twice"),
        ({"tokens": list("|abc")}, TokenTableError, "blank_token='-', expected one of"),
        ({"sil_token": "_"}, TokenTableError, "sil_token='_', expected one of the 5"),
        ({"tokens": list("-|ab")}, LexiconError, "lexicon: 'c': 'c', expected one of"),
        ({"lm_dict": ["ab"]}, OptionError, r"lm_dict=\['ab'\], expected a file"),
        ({"lm": 3}, OptionError, r"lm is a int without start\(\)"),
        ({"nbest": 0}, OptionError, "nbest=0, expected 1 or more"),
        ({"beam_size": 2.5}, OptionError, "beam_size=2.5, expected 1 or more"),
        ({"beam_size_token": -1}, OptionError, "beam_size_token=-1, expected 1"),
        ({"threads": 0}, OptionError, "threads=0, expected 1 or more"),
        ({"lm_weight": "two"}, OptionError, "lm_weight='two', expected a number"),
        ({"word_score": np.inf}, OptionError, "word_score=inf, expected a number"),
        ({"unk_score": np.nan}, OptionError, "unk_score=nan, expected a number"),
    ],
)
def test_bad_arguments(arguments, error, message, files):
    given = {"lexicon": files["lexicon"], "tokens": TOKENS} | arguments
    with pytest.raises(error, match=message):
        ctc_decoder(**given)


def test_files_that_do_not_fit_each_other(files, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("ab\nba\nc\n", "utf-8")
    with pytest.raises(LexiconError, match="'cab', expected one of the 3 labels of"):
        ctc_decoder(files["lexicon"], TOKENS, files["lm"], str(short))
    short.write_text("ab\nba\nc\ncab\n", "utf-8")
    ctc_decoder(files["lexicon"], TOKENS, files["lm"], str(short))
    with pytest.raises(TokenTableError, match="unk_word='<unk>', expected one of"):
        ctc_decoder(files["lexicon"], TOKENS, None, str(short), unk_score=0)
    with pytest.raises(ShapeError, match="lm_dict has 4 entries, expected one"):
        ctc_decoder(None, TOKENS, files["lm"], str(short))
    short.write_text("ab\nba b a\n", "utf-8")
    with pytest.raises(LexiconError, match="short.txt:1: 'ab' has no tokens"):
        ctc_decoder(str(short), TOKENS)
    with pytest.raises(ArpaError):
        ctc_decoder(files["lexicon"], TOKENS, str(short))


@pytest.mark.parametrize(
    ("emissions", "lengths", "error", "message"),
    [
        (np.zeros((1, 2, 4), "f4"), None, ShapeError, "V=4 tokens, expected the 5"),
        (np.zeros((2, 5), "f4"), None, ShapeError, r"2 axes \(2, 5\), expected \[B"),
        (np.zeros((1, 2, 5)), None, ShapeError, "float64, expected float32"),
        ([[0.0]], None, ShapeError, "emissions are list, expected float32"),
        (np.full((1, 2, 5), np.nan, "f4"), None, LogprobError, "utterance 0: nan in"),
        (np.full((1, 2, 5), np.inf, "f4"), None, LogprobError, "inf in frame 0"),
        (np.zeros((1, 2, 5), "f4"), [3], ShapeError, "length 3, expected 0 to T=2"),
        (np.zeros((1, 2, 5), "f4"), [1, 1], ShapeError, r"expected integers \(1,\)"),
        (np.zeros((1, 2, 5), "f4"), [0.5], ShapeError, "float64"),
    ],
)
def test_bad_emissions(emissions, lengths, error, message, files):
    made = ctc_decoder(files["lexicon"], TOKENS)
    with pytest.raises(error, match=message):
        made(emissions, lengths)


def test_verbs_out_of_order(files):
    made = ctc_decoder(files["lexicon"], TOKENS)
    for verb in (made.decode_end, made.get_final_hypothesis):
        with pytest.raises(InputError, match="decode_begin"):
            verb()
    made.decode_begin()
    with pytest.raises(ShapeError, match=r"3 axes \(1, 1, 5\), expected \[T, V\]"):
        made.decode_step(emitted("c"))
    made.decode_end()
    with pytest.raises(InputError, match="decode_step after decode_end"):
        made.decode_step(emitted("c")[0])
    with pytest.raises(InputError, match="token 5, expected 0 to 4"):
        made.idxs_to_tokens([5])
