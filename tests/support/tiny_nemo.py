"""A stand-in for NeMo's attention decoder, with its calls.

It has the memories of NeMo's `TransformerDecoder` (what goes into a layer is kept, and
keys are made of it anew) and nothing of its code. `NemoModel` is it for our search.
"""

import torch

from wfstdec.models.attention import DecoderState

DIM = 8


class Embedding(torch.nn.Module):
    def __init__(self, num_tokens):
        super().__init__()
        self.tokens = torch.nn.Embedding(num_tokens, DIM)
        self.positions = torch.nn.Embedding(40, DIM)

    def forward(self, ids, start_pos=0):
        places = start_pos + torch.arange(ids.shape[1])
        return self.tokens(ids) + self.positions(places)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ask, self.tell = torch.nn.Linear(DIM, DIM), torch.nn.Linear(DIM, 2 * DIM)

    def forward(self, query, memory, mask):
        key, value = self.tell(memory).chunk(2, -1)
        scores = self.ask(query) @ key.transpose(1, 2) + mask
        return query + scores.softmax(-1) @ value


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleList([Attention(), Attention()]) for _ in range(2)
        )

    def forward(self, states, mask, frames, frame_mask, mems=None, return_mems=False):
        size = states.shape[1]
        causal = torch.ones(size, size).tril() * mask[:, None]
        past = mems[0].shape[1] if mems else 0
        causal = torch.cat([torch.ones(states.shape[0], size, past), causal], 2)
        hidden = (1 - causal) * -1e4
        outside = (1 - frame_mask[:, None]) * -1e4
        kept = [states if mems is None else torch.cat([mems[0], states], 1)]
        for i, (own, cross) in enumerate(self.layers):
            states = cross(own(states, kept[i], hidden), frames, outside)
            before = [] if mems is None else [mems[i + 1]]
            kept.append(torch.cat([*before, states], 1))
        assert return_mems
        return kept, []


class Classifier(torch.nn.Module):
    def __init__(self, num_tokens):
        super().__init__()
        self.out = torch.nn.Linear(DIM, num_tokens)

    def forward(self, hidden_states):
        return (2 * self.out(hidden_states)).log_softmax(-1)


class NemoModel:
    """Parts of a decoder as the search asks for them; see `AttentionModel`."""

    tokenizer = None

    def __init__(self, parts, tokens, *, eos, prompt, neutral, max_tokens):
        self._embedding, self._decoder, self._classifier = parts
        self.tokens, self.eos = tuple(tokens), eos
        self.prompt, self.neutral = tuple(prompt), frozenset(neutral)
        self._max_tokens = max_tokens

    def limit(self, num_frames):
        return min(self._max_tokens, num_frames + 20)

    def start(self, frames, lengths, prompts):
        return self._run(prompts, DecoderState.of((), frames, lengths))[::-1]

    def step(self, labels, state):
        return self._run(labels[:, None], state)

    def take(self, state, rows):
        memory = tuple(one[rows] for one in state.memory)
        return state._replace(memory=memory, utterance=state.utterance[rows])

    @torch.inference_mode()
    def _run(self, labels, state):
        place = state.memory[0].shape[1] if state.memory else 0
        hidden = self._embedding(labels, start_pos=place)
        memories, _ = self._decoder(
            hidden,
            torch.ones(labels.shape),
            state.frames[state.utterance],
            state.mask[state.utterance].to(state.frames.dtype),
            list(state.memory) or None,
            return_mems=True,
        )
        logprobs = self._classifier(hidden_states=memories[-1][:, -1:])
        return logprobs[:, 0].float(), state._replace(memory=tuple(memories))
