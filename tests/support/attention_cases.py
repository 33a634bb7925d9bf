"""Random attention models with language models, phrases and options, and oracles."""

import io

import naive_attention
import naive_cases
import naive_joint
import naive_lm
import naive_phrases
import numpy as np
from table_attention import random_model

from wfstdec import (
    AttentionDecoder,
    AttentionOptions,
    PhraseOptions,
    read_arpa,
    token_table,
)

UNK_COST = 2.5
RULES = ("closed", "none")


def random_logprobs(seed, num_frames, num_columns=3):
    """Draw rows of log-probs, float32 [T, V]."""
    rows = np.random.default_rng(seed).normal(size=(num_frames, num_columns)) * 2
    rows = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


class Case:
    """A random model with random language models, phrases and options."""

    tolerance = 5e-4
    """Of totals, in nats."""

    def __init__(self, seed, **sizes):
        rng = np.random.default_rng(seed)
        self.model = random_model(rng, **sizes)
        model = self.model
        self.letters = dict(enumerate(model.tokens[: model.eos]))
        names = list(self.letters.values())
        self.weights = [float(w) for w in rng.choice([0.3, 1.0, -0.4], 2)]
        self.weights = self.weights[: rng.integers(3)]
        self.arpas = [naive_cases.random_arpa(rng, names)[0] for _ in self.weights]
        lengths = rng.integers(1, 4, size=rng.integers(4))
        self.phrases = {
            "".join(rng.choice(names, length)): float(rng.uniform(-0.5, 2))
            for length in lengths
        }
        self.options = {
            "end_rule": RULES[rng.integers(2)],
            "token_insertion": float(rng.choice([0.0, 0.5, -0.25])),
            "length_norm": ("none", "mean", "gnmt")[rng.integers(3)],
            "boost_scale": float(rng.choice([1.0, 0.5])),
            "lm_scale": float(rng.choice([1.0, 0.7])),
        }

    def decoder(self, more=None, **options):
        lms = [read_arpa(io.StringIO(text)) for text in self.arpas]
        decoder = AttentionDecoder(
            self.model,
            lm=list(zip(lms, self.weights, strict=True)),
            unk_cost=UNK_COST,
            options=AttentionOptions(**self.options | options),
            frame_shift_s=0.1,
            **more or {},
        )
        boosts = decoder.phrase_compiler(PhraseOptions()).compile(self.phrases)
        return decoder, boosts if self.phrases else None

    def definition(self, utterance=0, longest=None):
        options = self.options
        scale = options["boost_scale"]
        scaled = {text: weight * scale for text, weight in self.phrases.items()}
        spelt = {text: [tuple(text)] for text in scaled}
        phrases = naive_phrases.Phrases(scaled, "token", spellings=spelt)
        costs = []
        for text, weight in zip(self.arpas, self.weights, strict=True):
            coster = naive_lm.exact_word_coster(naive_lm.parse_arpa(text), UNK_COST)
            costs.append((weight * options["lm_scale"], self.cost_by(coster)))
        longest = self.model.longest if longest is None else longest
        return {
            "rows": self.model.rows(utterance, longest),
            "ends": [self.model.eos],
            "longest": longest + 1,
            "rule": options["end_rule"],
            "credits": naive_attention.Credits(phrases, self.letters),
            "costs": costs,
            "insertion": options["token_insertion"],
            "marks": self.model.neutral,
        }

    def cost_by(self, coster):
        def cost(text, token):
            spoken = [t for t in text if t in self.letters]
            history = ("<s>", *(self.letters[t] for t in spoken))
            return coster(history, "</s>" if token is None else self.letters[token])

        return cost

    def rank(self, total, count):
        """Rank a total of all tokens, the end included."""
        if self.options["length_norm"] == "mean":
            return total / count
        if self.options["length_norm"] == "gnmt":
            return total / ((5 + count - 1) / 6) ** 0.6
        return total

    def found(self, utterances=(0,), more=None, **options):
        """Decode utterances: {text with its end: total}, in the order of the list."""
        decoder, boosts = self.decoder(more, **options)
        frames = [self.model.frames(one, self.model.longest + 2) for one in utterances]
        end = (self.model.eos,)
        return [
            {(*one.token_ids, *end): -one.total_cost for one in texts}
            for texts in decoder.texts(frames, boosts=boosts)
        ]


class JointCase(Case):
    """Case with CTC log-probs, of the letters in any order, some of them -inf."""

    tolerance = 1e-3

    def __init__(self, seed, **sizes):
        super().__init__(seed, **sizes)
        rng = np.random.default_rng(seed + 7)
        self.options["ctc_weight"] = float(rng.choice([0.3, 0.7, 1.0]))
        names = [*self.letters.values(), "<blank>"]
        names = [names[i] for i in rng.permutation(len(names))]
        self.ctc_tokens = token_table(names, names.index("<blank>"))
        self.pre_beam = int(rng.integers(1, 4))
        self.ctc = []
        for _ in range(self.model.num_utterances):
            logits = rng.normal(size=(self.model.longest + 2, len(names))) * 2
            logits[rng.random(logits.shape) < 0.1] = -np.inf
            logits[:, self.ctc_tokens.blank] = rng.normal(size=len(logits))
            sums = np.logaddexp.reduce(logits, axis=1, keepdims=True)
            self.ctc.append((logits - sums).astype(np.float32))

    def decoder(self, more=None, **options):
        return super().decoder(
            {"ctc_tokens": self.ctc_tokens, **(more or {})}, **options
        )

    def definition(self, utterance=0, longest=None):
        columns = {t: self.ctc_tokens.names.index(n) for t, n in self.letters.items()}
        joint = naive_joint.Joint(
            *(self.ctc[utterance].astype(np.float64), self.ctc_tokens.blank),
            weight=self.options["ctc_weight"],
            columns=columns,
        )
        known = {"ctc": joint, "pre_beam": self.pre_beam}
        return super().definition(utterance, longest) | known

    def found(self, utterances=(0,), more=None, **options):
        """Texts found that end, like `Case.found`."""
        decoder, boosts = self.decoder(more, **options)
        frames = [self.model.frames(one, self.model.longest + 2) for one in utterances]
        ctc = [self.ctc[one] for one in utterances]
        end = (self.model.eos,)
        return [
            {(*t.token_ids, *end): -t.total_cost for t in texts if t.reached_final}
            for texts in decoder.texts(frames, boosts=boosts, ctc=ctc)
        ]
