"""Attention decoders as ONNX files, in published layouts.

    Optimum (Whisper, Moonshine), one file for both cases or two
              input_ids [N, U], encoder_hidden_states [N, T, D], use_cache_branch,
              past_key_values.* [N, H, U', d] -> logits [N, U, V], present.*
    NeMo's Canary (onnx-asr)
              input_ids, encoder_embeddings, encoder_mask, decoder_mems [L, N, U', H]
              -> logits, the next memories
    NeMo's Canary (sherpa-onnx)
              decoder_input_ids [1, U + 1], the last of them the position of the first,
              memories [1, U', H] of layers, enc_states, enc_mask -> logits, memories
    Whisper (sherpa-onnx)
              tokens [N, U], two caches [L, N, positions, S], keys and values of
              cross-attention [L, N, T, S], offset [1] -> logits, caches
    Moonshine (sherpa-onnx): a file for the first token, one for others
              tokens [1, U], frames, number of tokens [1], states -> logits, states

Inputs are recognised by name, Moonshine's by position.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.errors import ModelError
from wfstdec.models.onnx_asr_models import FLOATS, INTEGERS

_NAMES = {
    "labels": "input_ids tokens",
    "placed labels": "decoder_input_ids",
    "frames": "encoder_hidden_states encoder_embeddings enc_states",
    "cross": "n_layer_cross_k n_layer_cross_v",
    "mask": "encoder_attention_mask encoder_mask enc_mask",
    "is later": "use_cache_branch",
    "place": "offset",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
"""Roles of inputs by name; others are caches."""
_BY_PLACE = ("labels", "frames", "count")
_TYPES = {**FLOATS, **INTEGERS, "tensor(bool)": np.bool_}
_SECOND = re.compile("decoder_mems|in_n_layer_self_.*|n_layer_cross_.")
"""Inputs whose second axis is the batch."""

Arrays = dict[str, np.ndarray]


class OnnxAttentionState(NamedTuple):
    """State of the decoder after some tokens, of N rows; arrays by input name."""

    size: int  # Number of tokens so far, including the prompt
    caches: Arrays  # Of rows
    fixed: Arrays  # Of utterances: frames, mask, keys and values of cross-attention
    of_rows: Arrays  # The same for rows
    utterance: np.ndarray  # int64 [N], utterance of each row


class _Part:
    """Session with the roles of its inputs, and the caches of its outputs."""

    def __init__(self, session: Any) -> None:
        self.session, self.inputs = session, session.get_inputs()
        self.outputs = [one.name for one in session.get_outputs()]
        names = [one.name for one in self.inputs]
        self.roles = [_ROLES.get(name, "cache") for name in names]
        if not {"labels", "placed labels"} & {*self.roles}:
            self.roles[: len(_BY_PLACE)] = _BY_PLACE[: len(names)]
        roles = zip(names, self.roles, strict=True)
        self.caches = [name for name, role in roles if role == "cache"]

    def run(
        self, given: Mapping[str, Any], known: Arrays, num_rows: int
    ) -> list[np.ndarray]:
        """Run it on inputs by role and by name; unknown caches are empty."""
        feeds: Arrays = {}
        for one, role in zip(self.inputs, self.roles, strict=True):
            array = known.get(one.name, given.get(role))
            if array is None:
                shape = [size if isinstance(size, int) else 0 for size in one.shape]
                shape[_axis(one.name)] = num_rows
                array = np.zeros(shape)
            feeds[one.name] = np.asarray(array).astype(_TYPES[one.type], copy=False)
        return self.session.run(None, feeds)


class OnnxAttention:
    """`AttentionModel` of onnxruntime sessions on the CPU.

    `first` is the decoder for a prompt, `later` for the tokens after it. The last
    number of marked frames is 1 within the audio.
    """

    neutral: frozenset[int] = frozenset()
    suppressed: Collection[int] = ()  # Tokens that are never emitted
    positions = 448  # Positions, including the prompt
    tokenizer: Any = None
    is_marked = False

    def __init__(
        self, first: Any, later: Any, tokens: Sequence[str], eos: int, prompt: list[int]
    ) -> None:
        self._later = _Part(later)
        self._first = self._later if later is first else _Part(first)
        self._is_placed = "placed labels" in self._first.roles
        self._is_single = self._is_placed or "count" in self._first.roles
        if not self._later.caches:
            names = ", ".join(one.name for one in self._later.inputs)
            expected = "expected caches of earlier tokens among them"
            raise ModelError(f"the decoder takes {names}, {expected}")
        self.tokens, self.eos, self.prompt = tuple(tokens), eos, tuple(prompt)

    def limit(self, num_frames: int) -> int:
        """Implement `AttentionModel.limit`: the positions of the decoder."""
        return self.positions - len(self.prompt)

    def num_audio_frames(self, frames: Tensor) -> int:
        """Return the number of audio frames of an utterance."""
        return int(frames[:, -1].sum()) if self.is_marked else len(frames)

    def start(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor
    ) -> tuple[Any, Tensor]:
        """Implement `AttentionModel.start`."""
        given, counts, labels = frames.float().numpy(), lengths.numpy(), prompts.numpy()
        if self.is_marked:
            given = np.ascontiguousarray(given[:, :, :-1])
        if not self._is_single:
            found, state = self._begun(given, counts, labels)
            return state, found
        each = [
            self._begun(row[None, :count], counts[i : i + 1], labels[i : i + 1])
            for i, (row, count) in enumerate(zip(given, counts, strict=True))
        ]
        return [state for _, state in each], torch.cat([found for found, _ in each])

    def step(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Implement `AttentionModel.step`."""
        rows = labels[:, None].numpy()
        if not isinstance(state, list):
            return self._run(rows, state)
        pairs = zip(rows, state, strict=True)
        each = [self._run(row[None], one) for row, one in pairs]
        return torch.cat([found for found, _ in each]), [one for _, one in each]

    def take(self, state: Any, rows: Tensor) -> Any:
        """Implement `AttentionModel.take`."""
        at = rows.numpy()
        if isinstance(state, list):
            return [state[i] for i in at.tolist()]
        if np.array_equal(at, np.arange(len(state.utterance))):
            return state
        utterance, of_rows = state.utterance[at], state.of_rows
        if not np.array_equal(utterance, state.utterance):
            of_rows = _taken(state.fixed, utterance)
        caches = _taken(state.caches, at)
        return state._replace(caches=caches, of_rows=of_rows, utterance=utterance)

    def _begun(
        self, frames: np.ndarray, counts: np.ndarray, labels: np.ndarray
    ) -> tuple[Tensor, OnnxAttentionState]:
        """Return log-probs after the prompts, and the state."""
        is_real = np.arange(frames.shape[1]) < counts[:, None]
        fixed: Arrays = {}
        for part in (self._first, self._later):
            # Keys and values joined in a frame, [N, T, 2, L, S].
            num = part.roles.count("cross")
            for one, role in zip(part.inputs, part.roles, strict=True):
                array = {"frames": frames, "mask": is_real}.get(role)
                if role == "cross":
                    sizes = *frames.shape[:2], num, one.shape[0], -1
                    which = int(one.name.endswith("v"))
                    array = frames.reshape(sizes)[:, :, which].transpose(2, 0, 1, 3)
                if array is not None:
                    fixed[one.name] = np.ascontiguousarray(array, _TYPES[one.type])
        state = OnnxAttentionState(0, {}, fixed, fixed, np.arange(len(frames)))
        # With explicit positions, sherpa-onnx takes one label at a time.
        size = 1 if self._is_placed else labels.shape[1]
        for first in range(0, labels.shape[1], size):
            found, state = self._run(labels[:, first : first + size], state)
        return found, state

    def _run(
        self, labels: np.ndarray, state: OnnxAttentionState
    ) -> tuple[Tensor, OnnxAttentionState]:
        part, size = self._later if state.size else self._first, len(labels[0])
        places = np.full((len(labels), 1), state.size)
        given = {
            "labels": labels,
            "placed labels": np.concatenate([labels, places], 1),
            "is later": [state.size > 0],
            "place": [state.size],
            "count": [state.size + size],
        }
        known = state.caches | state.of_rows
        logits, *others = part.run(given, known, len(labels))
        caches = dict(zip(self._names(part), others, strict=True))
        fixed, of_rows = state.fixed, state.of_rows
        if not state.size:  # keys and values of cross-attention do not change
            own = {name: one for name, one in caches.items() if ".encoder." in name}
            fixed, of_rows = fixed | own, of_rows | own
        caches = {name: one for name, one in caches.items() if name not in fixed}
        rows = torch.from_numpy(logits[:, -1].astype(np.float32))
        rows[:, list(self.suppressed)] = -torch.inf
        after = state.size + size, caches, fixed, of_rows, state.utterance
        return torch.log_softmax(rows, -1), OnnxAttentionState(*after)

    def _names(self, part: _Part) -> list[str]:
        if part.outputs[1].startswith("present"):
            names = part.outputs[1:]
            return [name.replace("present", "past_key_values", 1) for name in names]
        return self._later.caches


def _axis(name: str) -> int:
    return 1 if _SECOND.fullmatch(name) else 0


def _taken(arrays: Arrays, rows: np.ndarray) -> Arrays:
    return {name: one.take(rows, _axis(name)) for name, one in arrays.items()}
