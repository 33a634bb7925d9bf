"""`import pyctcdecode` without pyctcdecode: its modules, with what is here in them.

    install_shim()
    from pyctcdecode import build_ctcdecoder         # wfstdec's
    from transformers import Wav2Vec2ProcessorWithLM # runs unchanged

It is there for this process alone, and only where it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType

from wfstdec.adapters.pyctcdecode import (
    alphabet,
    beams,
    constants,
    decoder,
    language_model,
    ngrams,
)
from wfstdec.adapters.pyctcdecode import word_tree as hotwords
from wfstdec.errors import OptionError

NAME = "pyctcdecode"
_MARK = "_is_shim_of_wfstdec"
_SOURCES: Mapping[str, tuple[ModuleType, ...]] = {
    "alphabet": (alphabet,),
    "constants": (constants,),
    "decoder": (constants, alphabet, beams, decoder),
    "language_model": (constants, language_model, hotwords, ngrams),
}
"""Modules of ours that each module takes its names from; later ones win."""
_FACE = ("Alphabet", "BeamSearchDecoderCTC", "LanguageModel", "build_ctcdecoder")


def install_shim() -> None:
    """Make `pyctcdecode` and its modules importable, in this process.

    Calling it again changes nothing.

    Raises:
        OptionError: pyctcdecode itself has been imported already.
    """
    present = sys.modules.get(NAME)
    if present is not None and not hasattr(present, _MARK):
        raise OptionError(
            "pyctcdecode has been imported already, expected install_shim() before it"
        )
    if present is None:
        face = _module(NAME, is_package=True)
        setattr(face, _MARK, True)
        found = {NAME: face}
        for inner, sources in _SOURCES.items():
            module = found[f"{NAME}.{inner}"] = _module(f"{NAME}.{inner}")
            setattr(face, inner, module)
            for source in sources:
                public = {
                    name: value
                    for name, value in vars(source).items()
                    # What users may import from pyctcdecode's own modules.
                    if not name.startswith("_")
                }
                vars(module).update(public)
        for name in _FACE:
            origin = "language_model" if name == "LanguageModel" else "decoder"
            setattr(face, name, getattr(found[f"{NAME}.{origin}"], name))
        sys.modules.update(found)


def remove_shim() -> None:
    """Take the modules away again, if they are those of `install_shim`."""
    if hasattr(sys.modules.get(NAME), _MARK):
        for name in [NAME, *(f"{NAME}.{inner}" for inner in _SOURCES)]:
            sys.modules.pop(name, None)


def _module(name: str, is_package: bool = False) -> ModuleType:
    module = ModuleType(name, "What wfstdec has of pyctcdecode.")
    module.__spec__ = ModuleSpec(name, None, origin=__name__, is_package=is_package)
    if is_package:
        module.__path__ = []
    return module
