"""Interface of pyctcdecode 0.5.0: only the import changes.

    from wfstdec.adapters.pyctcdecode import build_ctcdecoder

    decoder = build_ctcdecoder(labels, "lm.arpa", unigrams)
    decoder.decode(logits)

After `install_shim()` code that imports pyctcdecode itself runs unchanged.
"""

import sys
from importlib.machinery import ModuleSpec
from itertools import chain
from types import ModuleType

from wfstdec.adapters.pyctcdecode import alphabet, decoder, language_model
from wfstdec.adapters.pyctcdecode.alphabet import Alphabet
from wfstdec.adapters.pyctcdecode.decoder import BeamSearchDecoderCTC, build_ctcdecoder
from wfstdec.adapters.pyctcdecode.language_model import (
    AbstractLanguageModel,
    HotwordScorer,
    LanguageModel,
    MultiLanguageModel,
)
from wfstdec.errors import OptionError

__all__ = [
    "AbstractLanguageModel",
    "Alphabet",
    "BeamSearchDecoderCTC",
    "HotwordScorer",
    "LanguageModel",
    "MultiLanguageModel",
    "build_ctcdecoder",
    "install_shim",
    "remove_shim",
]

_NAME, _MARK = "pyctcdecode", "_is_shim_of_wfstdec"
_SOURCES = {
    "alphabet": (alphabet,),
    "constants": (alphabet,),
    "decoder": (alphabet, decoder),
    "language_model": (alphabet, language_model),
}
"""Our modules by module of the shim."""
_FACE = (Alphabet, BeamSearchDecoderCTC, LanguageModel, build_ctcdecoder)


def install_shim() -> None:
    """Make `pyctcdecode` and its modules importable, in this process.

    Raises:
        OptionError: The real pyctcdecode is already imported.
    """
    present = sys.modules.get(_NAME)
    if present is not None and not hasattr(present, _MARK):
        raise OptionError(
            "pyctcdecode has been imported already, expected install_shim() before it"
        )
    if present is None:
        face = _module(_NAME)
        vars(face).update({one.__name__: one for one in _FACE}, __path__=[])
        setattr(face, _MARK, True)
        for inner, sources in _SOURCES.items():
            module = _module(f"{_NAME}.{inner}")
            for name, value in chain(*(vars(source).items() for source in sources)):
                if not name.startswith("_"):
                    setattr(module, name, value)
            setattr(face, inner, module)


def remove_shim() -> None:
    """Remove the modules of `install_shim`, if present."""
    if hasattr(sys.modules.get(_NAME), _MARK):
        for name in [_NAME, *(f"{_NAME}.{inner}" for inner in _SOURCES)]:
            sys.modules.pop(name, None)


def _module(name: str) -> ModuleType:
    module = ModuleType(name, "Part of pyctcdecode in wfstdec.")
    is_package = name == _NAME
    module.__spec__ = ModuleSpec(name, None, origin=__name__, is_package=is_package)
    sys.modules[name] = module
    return module
