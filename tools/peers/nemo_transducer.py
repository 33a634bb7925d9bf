"""NeMo's batched searches for transducers, on our models, on the CPU.

    pip install --no-deps nemo-toolkit==3.0.0               # and torch
    peer = NemoTransducer(model, arpa="pieces.arpa", lm_scale=0.3)
    texts = peer.decode(frames, lengths, {"strategy": "alsd", "beam_size": 6})

A `TransducerModel` is dressed in what their code calls: a decoder with `predict` and
its handling of states, a joint with the blank last. Their modules are loaded as
`tools.peers.nemo_ctc` does; there is no AES++ for TDT.

Their scores have no end of the utterance: neither `</s>` nor refunds.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tools.peers.interface import import_peer
from tools.peers.nemo_ctc import (
    _EMPTY,
    _INSTALL,
    _PARTS,
    _placeholders,
    _register,
    write_nemo_arpa,
)
from wfstdec.compare.comparison import Setting
from wfstdec.errors import BackendError, OptionError
from wfstdec.text.tokens import token_table
from wfstdec.transducer.options import TransducerOptions

_SUBMODULES = f"{_PARTS}.submodules"
_LOOPING = f"{_SUBMODULES}.transducer_decoding"


class Scored(NamedTuple):
    """A text of theirs: positions in `model.tokens`, and its score."""

    tokens: tuple[int, ...]
    score: float


class NemoTransducer:
    """NeMo's greedy label looping, ALSD++ and AES++ on a model of ours.

    Args:
        model: A `TransducerModel` on the CPU.
        arpa: A language model over its tokens, plain or gzip; None for none.
        lm_scale: Multiplies its log-probs.

    Raises:
        BackendError: NeMo or torch is not installed.
    """

    def __init__(
        self, model: Any, *, arpa: str | Path | None = None, lm_scale: float = 1.0
    ) -> None:
        self._torch = import_peer("torch", _INSTALL)
        self._classes = _load(self._torch)
        self._model = model
        self._decoder = _Decoder(self._torch, model)
        self._joint = _joint(self._torch, model)
        self._fusion: dict[str, Any] = {}
        if arpa is not None:
            blank = "<blank>"
            table = token_table((*model.tokens, blank), blank)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "tokens.arpa"
                write_nemo_arpa(str(arpa), table, path)
                lm = self._classes["lm"].from_arpa(
                    path, len(model.tokens), use_triton=False
                )
            self._fusion = {"lm": lm, "scale": float(lm_scale)}

    def search(self, setting: Setting) -> Any:
        """NeMo's own object; called with frames [B, T, D] and lengths [B].

        Args:
            setting: `strategy`, `beam_size`, `blank_scored`, `fusion`, `max_symbols`
                and the expansions of AES++, as of `TransducerOptions`, with our
                defaults.

        Raises:
            OptionError: AES++ for TDT.
        """
        strategy, durations = setting["strategy"], list(self._model.durations)
        ours = TransducerOptions()
        given: dict[str, Any] = {
            "decoder": self._decoder,
            "joint": self._joint,
            "blank_index": len(self._model.tokens),
            "allow_cuda_graphs": False,
        }
        if durations:
            given["durations"] = durations
        if strategy == "aes":
            if durations:
                raise OptionError("AES++ for TDT, expected ALSD++: NeMo has none")
            lm: dict[str, Any] = {}
            if self._fusion:
                lm = {"ngram_lm_model": self._fusion["lm"], **self._modes(setting)}
                lm["ngram_lm_alpha"] = self._fusion["scale"]
            return self._classes["aes"](
                **given,
                beam_size=setting["beam_size"],
                maes_num_steps=setting.get("expansion_rounds", ours.expansion_rounds),
                maes_expansion_beta=setting.get("expansion_beta", ours.expansion_beta),
                maes_expansion_gamma=setting.get(
                    "expansion_gamma", ours.expansion_gamma
                ),
                **lm,
            )
        given["max_symbols_per_step"] = setting.get("max_symbols", 10)
        if self._fusion:
            given["fusion_models"] = [self._fusion["lm"]]
            given["fusion_models_alpha"] = [self._fusion["scale"]]
        kind = "tdt" if durations else "rnnt"
        if strategy == "greedy":
            return self._classes[f"greedy-{kind}"](**given)
        modes = self._modes(setting) if self._fusion else {}
        return self._classes[f"alsd-{kind}"](
            **given, beam_size=setting["beam_size"], **modes
        )

    def has(self, setting: Setting) -> bool:
        """Tell whether there is such a search: no AES++ for TDT."""
        return not (setting["strategy"] == "aes" and self._model.durations)

    def decode(self, frames: Any, lengths: Any, setting: Setting) -> list[list[Scored]]:
        """The texts of each utterance, best first, by score.

        Args:
            frames: Tensor [B, T, D].
            lengths: int64 [B].
            setting: As of `search`.
        """
        with self._torch.no_grad():
            return self._decode(self.search(setting), frames, lengths, setting)

    def _decode(
        self, search: Any, frames: Any, lengths: Any, setting: Setting
    ) -> list[list[Scored]]:
        if setting["strategy"] == "greedy":
            found, _ = search.torch_impl(frames, lengths)
            counts = found.current_lengths.tolist()
            rows, scores = found.transcript.tolist(), found.scores.tolist()
            triples = zip(rows, counts, scores, strict=True)
            return [[Scored(tuple(row[:n]), score)] for row, n, score in triples]
        if setting["strategy"] == "aes":
            found, _ = search(frames, lengths)
        else:
            found, _ = search.modified_alsd_torch(frames, lengths)
        found.flatten_sort_(score_norm=False)
        blank = len(self._model.tokens)
        return [
            [
                Scored(tuple(t for t in row if 0 <= t < blank), score)
                for row, score in zip(texts, scores, strict=True)
            ]
            for texts, scores in zip(
                found.transcript_wb.tolist(), found.scores.tolist(), strict=True
            )
        ]

    def _modes(self, setting: Setting) -> dict[str, str]:
        scored = setting.get("blank_scored", True)
        return {
            "blank_lm_score_mode": "lm_weighted_full" if scored else "no_score",
            "pruning_mode": "late",
        }


class _Decoder:
    """A predictor in NeMo's clothes: states are lists of tensors, one row each."""

    def __init__(self, torch: Any, model: Any) -> None:
        self._torch, self._model = torch, model
        self._form, _ = model.start(1)

    def initialize_state(self, y: Any) -> list[Any]:
        return _leaves(self._model.start(len(y))[0])

    def predict(
        self, y: Any, state: Any, add_sos: bool = False, batch_size: int | None = None
    ) -> tuple[Any, list[Any]]:
        labels = y[:, 0]
        blank = len(self._model.tokens)
        if state is None or (labels == blank).all():  # the mark before the first token
            begun, first = self._model.start(len(labels))
            return first[:, None], _leaves(begun)
        tokens = labels.clamp(max=blank - 1)
        g, new = self._model.predict(tokens, _tree(self._form, list(state)))
        return g[:, None], _leaves(new)

    def batch_replace_states_mask(
        self, src_states: Any, dst_states: Any, mask: Any, other_src_states: Any = None
    ) -> None:
        for i, (src, dst) in enumerate(zip(src_states, dst_states, strict=True)):
            other = dst if other_src_states is None else other_src_states[i]
            wide = mask.view(-1, *[1] * (dst.ndim - 1))
            dst.copy_(self._torch.where(wide, src, other))

    def batch_replace_states_all(
        self, src_states: Any, dst_states: Any, batch_size: int | None = None
    ) -> None:
        for src, dst in zip(src_states, dst_states, strict=True):
            dst.copy_(src) if batch_size is None else dst[:batch_size].copy_(src)

    def batch_aggregate_states_beam(
        self,
        src_states: Any,
        batch_size: int,
        beam_size: int,
        indices: Any,
        dst_states: Any = None,
    ) -> list[Any]:
        offset = self._torch.arange(batch_size)[:, None] * beam_size
        rows = (indices + offset).flatten()
        return [state.index_select(0, rows) for state in src_states]


def _joint(torch: Any, model: Any) -> Any:
    """A joiner in NeMo's clothes: the blank last, durations behind it."""

    class Joint(torch.nn.Module):
        num_classes_with_blank = len(model.tokens) + 1 + len(model.durations)
        num_extra_outputs = len(model.durations)

        def __init__(self) -> None:
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))  # they ask for a dtype
            columns = [*range(len(model.tokens) + 1)]
            columns.append(columns.pop(model.blank))
            self.columns = None if columns == sorted(columns) else columns

        def project_encoder(self, frames: Any) -> Any:
            return frames

        def project_prednet(self, g: Any) -> Any:
            return g

        def joint_after_projection(self, frames: Any, g: Any) -> Any:
            joined = model.join(frames[:, 0], g[:, 0])
            parts = joined if isinstance(joined, tuple) else (joined,)
            tokens = parts[0] if self.columns is None else parts[0][:, self.columns]
            return torch.cat([tokens, *parts[1:]], 1)[:, None, None]

    return Joint()


def _leaves(tree: Any) -> list[Any]:
    """The tensors of a pytree, in order."""
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in _leaves(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [tree]


def _tree(form: Any, leaves: list[Any]) -> Any:
    """A pytree of this form, of its tensors, which are used up."""
    if isinstance(form, dict):
        return {key: _tree(part, leaves) for key, part in form.items()}
    if isinstance(form, list | tuple):
        return type(form)(_tree(part, leaves) for part in form)
    return leaves.pop(0)


class Unused:
    """Whatever NeMo's modules import from elsewhere and do not call here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def _init_confidence_method(self, confidence_method_cfg: Any = None) -> None:
        pass


def register_all(
    packages: Iterable[str], content: Mapping[str, Mapping[str, Any]]
) -> None:
    """Put empty packages, and stand-ins, in the place of NeMo's.

    Args:
        packages: In addition to those that all of its searches need.
        content: Names of each module that is not to be loaded.

    Raises:
        BackendError: NeMo is not installed.
    """
    spec = importlib.util.find_spec("nemo")
    if spec is None or not spec.submodule_search_locations:
        raise BackendError(f"nemo cannot be imported; {_INSTALL}")
    root = Path(next(iter(spec.submodule_search_locations)))
    confidence = {f"{_PARTS}.utils.asr_confidence_utils": _CONFIDENCE}
    every = dict.fromkeys((*_EMPTY, *packages), {}) | content | confidence
    for name, names in every.items():
        _register(name, root, **names)


_CONFIDENCE = {"ConfidenceMethodMixin": Unused}


@functools.cache
def _load(torch: Any) -> dict[str, Any]:
    """NeMo's classes, by what they are called here."""
    packages = f"{_PARTS}.context_biasing", "nemo.collections.common.parts"
    register_all(packages, _transducer_placeholders(torch))
    sys.modules.pop(f"{_LOOPING}.label_looping_base", None)  # of the CTC search's
    found = {
        "lm": ("ngram_lm.ngram_lm_batched", "NGramGPULanguageModel"),
        "alsd-rnnt": ("rnnt_malsd_batched_computer", "ModifiedALSDBatchedRNNTComputer"),
        "alsd-tdt": ("tdt_malsd_batched_computer", "ModifiedALSDBatchedTDTComputer"),
        "aes": ("rnnt_maes_batched_computer", "ModifiedAESBatchedRNNTComputer"),
    }
    looping = "transducer_decoding"
    for kind in ("rnnt", "tdt"):
        name = f"GreedyBatched{kind.upper()}LabelLoopingComputer"
        found[f"greedy-{kind}"] = f"{looping}.{kind}_label_looping", name
    classes = {
        key: getattr(import_peer(f"{_SUBMODULES}.{module}", _INSTALL), name)
        for key, (module, name) in found.items()
    }
    lm_module: Any = sys.modules[f"{_SUBMODULES}.ngram_lm.ngram_lm_batched"]
    lm_module.tqdm = lambda items, **_: items
    return classes


def _transducer_placeholders(torch: Any) -> dict[str, dict[str, Any]]:
    """Imitations of what NeMo's modules import from elsewhere, by module."""
    biasing = ("GPUBiasingMultiModel", "GPUBiasingMultiModelBase")
    names = _placeholders(torch)
    del names[f"{_LOOPING}.label_looping_base"]
    cuda = names["nemo.core.utils.cuda_python_utils"]
    cuda["CUDA_GRAPH_COMPILE_ERROR_TYPES"] = (Exception,)
    names["omegaconf"]["ListConfig"] = list
    unused = dict.fromkeys(biasing, Unused)
    return names | {f"{_PARTS}.context_biasing.biasing_multi_model": unused}
