"""`import pyctcdecode` where `install_shim` was called: in a process of its own."""

import sys

import pytest
from processes import python

from wfstdec.adapters.pyctcdecode import install_shim, remove_shim
from wfstdec.errors import OptionError

NAMES = """
import importlib.util
from wfstdec.adapters.pyctcdecode import BeamSearchDecoderCTC, install_shim
install_shim()
install_shim()
assert importlib.util.find_spec("pyctcdecode") is not None
import numpy as np
import pyctcdecode
from pyctcdecode import Alphabet, LanguageModel, build_ctcdecoder
from pyctcdecode.alphabet import BLANK_TOKEN_PTN, UNK_TOKEN, UNK_TOKEN_PTN
from pyctcdecode.alphabet import BPE_TOKEN, UNK_BPE_TOKEN, verify_alphabet_coverage
from pyctcdecode.constants import DEFAULT_BEAM_WIDTH, DEFAULT_MIN_TOKEN_LOGP
from pyctcdecode.constants import DEFAULT_PRUNE_BEAMS, DEFAULT_UNK_LOGP_OFFSET
from pyctcdecode.decoder import BeamSearchDecoderCTC as Decoder, OutputBeam
from pyctcdecode.language_model import AbstractLanguageModel, HotwordScorer
from pyctcdecode.language_model import MultiLanguageModel, load_unigram_set_from_arpa
assert Decoder is BeamSearchDecoderCTC is pyctcdecode.BeamSearchDecoderCTC
assert pyctcdecode.decoder.build_ctcdecoder is build_ctcdecoder
print(build_ctcdecoder(["", "a"]).decode(np.eye(2)[[1, 0, 1]] * 9))
"""


def test_code_that_imports_pyctcdecode_runs():
    done = python("-c", NAMES)
    assert (done.stdout, done.returncode) == ("aa\n", 0), done.stderr


def test_the_shim_is_taken_away_again(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyctcdecode"]:
        monkeypatch.delitem(sys.modules, name)
    install_shim()
    assert "pyctcdecode.decoder" in sys.modules
    remove_shim()
    assert not any(name.startswith("pyctcdecode") for name in sys.modules)
    remove_shim()


def test_pyctcdecode_itself_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyctcdecode", sys)
    with pytest.raises(OptionError, match="imported already"):
        install_shim()
    remove_shim()
    assert sys.modules["pyctcdecode"] is sys
