"""Names without pronunciations on the command line: a list, and one flag."""

import numpy as np
import pytest
from cli_files import build, logprobs_of, wfstdec, write_files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_files(tmp_path_factory.mktemp("names"))
    assert build(folder, "--unk-cost", "5") == 0
    np.savez(folder / "ba.npz", utt=logprobs_of("b a"))
    return folder


@pytest.fixture
def decode(files, capsys):
    def run(name, *flags):
        (files / "names.txt").write_text(f"{name}\n")
        given = ["--graph", "graph.npz", "--logprobs", "ba.npz", "--boost", "names.txt"]
        code = wfstdec(files, "decode", *given, *flags)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_name_of_letters_needs_no_flag(decode):
    assert decode("ba")[:2] == (0, "utt ba\n")


def test_a_lexicon_in_other_phones_says_a_name(decode, files):
    (files / "cmudict.dict").write_text("BAH B AE1\nBAH(2) B OY2\n")
    (files / "phones.txt").write_text("B b\nAE1 a\n")
    flags = ["--g2p", "cmudict.dict", "--g2p-phones", "phones.txt"]
    assert decode("Bah", *flags)[:2] == (0, "utt Bah\n")
    code, _, err = decode("bah", "--g2p", "cmudict.dict")
    assert code == 0
    assert "g2p has names that are no tokens: 'AE1' in 1 ('bah'), 'OY2' in 1" in err


def test_a_program_says_a_name(decode):
    code, out, _ = decode(
        "Bah", "--g2p", "sh -c 'while read w; do echo \"$w\tb a\"; done'"
    )
    assert (code, out) == (0, "utt Bah\n")


def test_g2p_flags_that_cannot_be(decode):
    code, _, err = decode("Bah", "--g2p-phones", "phones.txt")
    assert code == 1 and "without --g2p, expected both" in err
    code, _, err = decode("Bah", "--g2p", "no-such-program")
    assert code == 1 and "no file and no program has this name" in err
