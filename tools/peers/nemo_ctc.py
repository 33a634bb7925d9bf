"""NeMo's batched CTC beam search with a token language model, on the CPU or a GPU.

    pip install --no-deps nemo-toolkit==3.0.0               # and torch
    peer = NemoPeer(inputs)                                 # tokens and an ARPA file
    peer.decode(utterances, {"beam_size": 8, "beam_threshold": 20.0, "batch_size": 32})

NeMo asks for some 130 packages, and importing one of its decoders the normal way runs
378 of its modules. What is measured here needs four of them, so the packages around
these are registered empty, and the few names that they import from elsewhere and that
a CTC search never calls are put there as placeholders. The four modules are NeMo's own.

Where torch has CUDA the search has all that it is made for there: its CUDA graphs, by
its own module of CUDA calls (`cuda-bindings`), and its Triton kernel. A search's
`cuda_graphs_mode` says which of these it uses; "full_graph" is all.

Its objective without CUDA is that of `TrieDecoder` with `merge="max"`:

    score = log-probs + alpha * ln(LM, with </s>) + beta * tokens
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import logging
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.peers.interface import PeerInputs, ScoredPeer, import_peer, name_with_version
from wfstdec.compare.comparison import Setting
from wfstdec.errors import BackendError, OptionError
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import WORD_START
from wfstdec.text.tokens import TokenTable

_INSTALL = "pip install --no-deps nemo-toolkit==3.0.0 && pip install torch"
_PARTS = "nemo.collections.asr.parts"
_UTILS = "nemo.core.utils"
_EMPTY = (
    "nemo",
    "nemo.collections",
    "nemo.collections.asr",
    _PARTS,
    f"{_PARTS}.submodules",
    f"{_PARTS}.submodules.transducer_decoding",
    f"{_PARTS}.utils",
    "nemo.collections.common",
    _UTILS,
)
"""Packages whose files are found but whose `__init__` is not run."""
_OFFSET = 100
"""NeMo's language models name a token by the character of its index plus this."""
_NEVER = -1e4


class NemoPeer(ScoredPeer):
    """A `ScoredPeer`: tokens with a language model over tokens, no lexicon.

    Utterances are decoded in batches of like length. What an utterance gets depends on
    the frames that fill its batch up (a defect of that code): here they are certainly
    blank, which does the least harm.

    Raises:
        BackendError: NeMo or torch is not installed.
        OptionError: There is a lexicon, a cost for words, or no language model.
    """

    def __init__(self, inputs: PeerInputs) -> None:
        if inputs.arpa is None or inputs.lexicon is not None or inputs.word_insertion:
            raise OptionError(
                "NeMo's search with a lexicon, a cost for words or no language model, "
                "expected tokens and a language model over them"
            )
        self._torch = import_peer("torch", _INSTALL)
        self._torch.set_num_threads(1)
        self._search, model = _load_nemo(self._torch)
        self.name = name_with_version("nemo-toolkit")
        self._tokens, self._alpha = inputs.tokens, float(inputs.lm_scale)
        blank = self._tokens.blank
        self._order = [t for t in range(len(self._tokens)) if t != blank] + [blank]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokens.arpa"
            write_nemo_arpa(inputs.arpa, self._tokens, path)
            # None: with Triton where it is installed, and the model is on a GPU
            self._lm = model.from_arpa(path, len(self._order) - 1, use_triton=None)

    def settings(self) -> Sequence[Setting]:
        """Numbers of hypotheses, with its default threshold."""
        return [
            {"beam_size": size, "beam_threshold": 20.0, "batch_size": 32}
            for size in (4, 8, 16)
        ]

    def decode_scored(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> list[tuple[str, float]]:
        """See `ScoredPeer`."""
        search, from_numpy = self.search(setting), self._torch.from_numpy
        by_length = sorted(range(len(utterances)), key=lambda i: len(utterances[i]))
        found: list[tuple[str, float]] = [("", 0.0)] * len(utterances)
        for start in range(0, len(by_length), setting["batch_size"]):
            batch = by_length[start : start + setting["batch_size"]]
            padded, lengths = self.pad([utterances[i] for i in batch])
            beams = search(from_numpy(padded), self._torch.tensor(lengths))
            for i, hypothesis in zip(batch, self.read(beams, lengths), strict=True):
                found[i] = hypothesis
        return found

    def search(self, setting: Setting) -> Any:
        """NeMo's own object: takes log-probs in its order and lengths, both tensors."""
        return self._search(
            len(self._order) - 1,
            setting["beam_size"],
            beam_threshold=setting["beam_threshold"],
            fusion_models=[self._lm],
            fusion_models_alpha=[self._alpha],
            allow_cuda_graphs=bool(self._torch.cuda.is_available()),
        )

    def to_gpu(self) -> None:
        """Put the language model on torch's current GPU."""
        self._lm = self._lm.to("cuda")

    def nemo_order(self, logprobs: np.ndarray) -> np.ndarray:
        """Log-probs [..., V] with the blank last."""
        return np.maximum(logprobs[..., self._order], np.float32(_NEVER))

    def pad(self, utterances: Sequence[np.ndarray]) -> tuple[np.ndarray, list[int]]:
        """Log-probs [B, T, V] in NeMo's order, filled up with blanks, and lengths."""
        lengths = [len(rows) for rows in utterances]
        shape = len(utterances), max(lengths), len(self._order)
        padded = np.full(shape, _NEVER, np.float32)
        padded[..., -1] = 0.0
        for rows, own in zip(utterances, padded, strict=True):
            own[: len(rows)] = self.nemo_order(rows)
        return padded, lengths

    def read(self, beams: Any, lengths: Sequence[int]) -> list[tuple[str, float]]:
        """Text and score of the best of each, of what `search` returned."""
        beams.flatten_sort_(score_norm=False)
        labels, scores = beams.transcript_wb[:, 0].tolist(), beams.scores[:, 0].tolist()
        return [
            (self._text_of(row[:length]), score)
            for row, length, score in zip(labels, lengths, scores, strict=True)
        ]

    def _text_of(self, labels: Sequence[int]) -> str:
        distinct = [label for label, _ in itertools.groupby(labels)]
        names = [
            self._tokens.names[self._order[label]]
            for label in distinct
            if 0 <= label < len(self._order) - 1
        ]
        return " ".join("".join(names).replace(WORD_START, " ").split())


def write_nemo_arpa(arpa: str | Path, tokens: TokenTable, path: Path) -> None:
    """Write a model over token names as one over NeMo's characters.

    NeMo counts tokens without the blank, which is last there.
    """
    spoken = [name for t, name in enumerate(tokens.names) if t != tokens.blank]
    names = {name: chr(index + _OFFSET) for index, name in enumerate(spoken)}
    with path.open("w", encoding="utf-8") as file:
        for line in read_lines(arpa):
            fields = line.split("\t")
            if len(fields) > 1:
                fields[1] = " ".join(names.get(w, w) for w in fields[1].split(" "))
            file.write("\t".join(fields) + "\n")


@functools.cache
def _load_nemo(torch: Any) -> tuple[Any, Any]:
    """NeMo's search and its language model, classes both."""
    spec = importlib.util.find_spec("nemo")
    if spec is None or not spec.submodule_search_locations:
        raise BackendError(f"nemo cannot be imported; {_INSTALL}")
    root = Path(next(iter(spec.submodule_search_locations)))
    # Packages whose own imports ask for much that the search never calls.
    for name in _EMPTY:
        _register(name, root)
    content = _placeholders(torch)
    if torch.cuda.is_available():
        del content[f"{_UTILS}.cuda_python_utils"]  # NeMo's own
        content[f"{_UTILS}.optional_libs"] |= {
            "TRITON_AVAILABLE": _is_installed("triton"),
            "CUDA_PYTHON_AVAILABLE": _is_installed("cuda.bindings"),
        }
    for name, names in content.items():
        _register(name, root, **names)
    submodules = f"{_PARTS}.submodules"
    search = import_peer(f"{submodules}.ctc_batched_beam_decoding", _INSTALL)
    model = import_peer(f"{submodules}.ngram_lm.ngram_lm_batched", _INSTALL)
    model.tqdm = lambda items, **_: items
    return search.BatchedBeamCTCComputer, model.NGramGPULanguageModel


def _is_installed(module: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):  # of the package around it
        return importlib.util.find_spec(module) is not None
    return False


def _register(name: str, root: Path, **content: Any) -> None:
    """Put a module in place of the package or module of that name."""
    module: Any = types.ModuleType(name)
    module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    module.__dict__.update(content)
    sys.modules[name] = module


def _placeholders(torch: Any) -> dict[str, dict[str, Any]]:
    """Imitations of what the four modules import from elsewhere, by module."""

    class Model(torch.nn.Module):
        def __init__(self, cfg: Any = None, trainer: Any = None) -> None:
            super().__init__()

    class Unused:
        structured = staticmethod(lambda config: config)

    def same(function: Any) -> Any:
        return function

    libraries = ("kenlm", "triton", "cuda_python")
    absent = {f"{name.upper()}_AVAILABLE": False for name in libraries}
    required = {f"{name}_required": same for name in libraries}
    cuda = "check_cuda_python_cuda_graphs_conditional_nodes_supported"
    cuda_names = (cuda, "cu_call", "run_nvrtc", "with_conditional_node")
    log = logging.getLogger("nemo")
    log.setLevel(logging.ERROR)
    label_looping = f"{_PARTS}.submodules.transducer_decoding.label_looping_base"
    return {
        "nemo.utils": {"logging": log},
        "nemo.core": {"ModelPT": Model, "PretrainedModelInfo": Unused},
        f"{_UTILS}.optional_libs": absent | required,
        f"{_UTILS}.cuda_python_utils": dict.fromkeys(cuda_names)
        | {"NeMoCUDAPythonException": Exception},
        "nemo.collections.common.parts": {"NEG_INF": -10000.0},
        f"{_PARTS}.context_biasing": {"GPUBoostingTreeModel": Unused},
        f"{_PARTS}.utils.asr_confidence_utils": {"ConfidenceMethodMixin": Unused},
        f"{_PARTS}.utils.rnnt_utils": dict.fromkeys(
            ("Hypothesis", "NBestHypotheses"), Unused
        ),
        label_looping: {"BatchedBeamState": Unused},
        "lightning": {},
        "lightning.pytorch": {"Trainer": Unused},
        "omegaconf": {"MISSING": None, "DictConfig": dict, "OmegaConf": Unused},
    }
