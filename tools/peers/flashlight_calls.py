"""flashlight-text called as torchaudio calls it, but for one thing.

Without a lexicon and without `lm_dict`, torchaudio numbers the language model's labels
in the order of a hash table, so that each token is scored as some other; here they are
numbered as the tokens are.
"""

import itertools
from typing import NamedTuple

import numpy as np
from flashlight.lib.text import decoder as text
from flashlight.lib.text.decoder.kenlm import KenLM
from flashlight.lib.text.dictionary import Dictionary, create_word_dict, load_words

DEFAULTS = {
    "nbest": 1,
    "beam_size": 50,
    "beam_size_token": None,
    "beam_threshold": 50.0,
    "lm_weight": 2.0,
    "word_score": 0.0,
    "unk_score": -float("inf"),
    "sil_score": 0.0,
    "log_add": False,
    "blank_token": "-",
    "sil_token": "|",
    "unk_word": "<unk>",
}

COMMON = ("beam_size", "beam_threshold", "lm_weight", "sil_score", "log_add")
"""Options of both decoders that go by the same name."""


class Answer(NamedTuple):
    """A hypothesis in lists."""

    tokens: list[int]
    words: list[str]
    score: float
    timesteps: list[int]


class Flashlight:
    """A decoder of flashlight-text, made of what `ctc_decoder` takes."""

    def __init__(self, lexicon, tokens, lm=None, lm_dict=None, **options):
        options = DEFAULTS | options
        self.options, self.num_tokens = options, len(tokens)
        table = Dictionary(list(tokens))
        self.blank = table.get_index(options["blank_token"])
        sil = table.get_index(options["sil_token"])
        spellings = load_words(str(lexicon)) if lexicon else None
        if lm_dict is not None:
            self.words = Dictionary(str(lm_dict))
        elif spellings is None:
            self.words = table
        else:
            self.words = create_word_dict(spellings)
        if lm is None:
            lm = text.ZeroLM()
        elif isinstance(lm, str):
            lm = KenLM(lm, self.words)
        self.lm = lm  # it must live as long as the decoder
        common = {name: options[name] for name in COMMON}
        common["beam_size_token"] = options["beam_size_token"] or len(tokens)
        common["criterion_type"] = text.CriterionType.CTC
        if spellings is None:
            rules = text.LexiconFreeDecoderOptions(**common)
            self.decoder = text.LexiconFreeDecoder(rules, lm, sil, self.blank, [])
            return
        rules = text.LexiconDecoderOptions(
            **common, word_score=options["word_score"], unk_score=options["unk_score"]
        )
        trie = text.Trie(len(tokens), sil)
        start = lm.start(False)
        for word, ways in spellings.items():
            label = self.words.get_index(word)
            _, score = lm.score(start, label)
            for spelling in ways:
                trie.insert([table.get_index(t) for t in spelling], label, score)
        trie.smear(text.SmearingMode.MAX)
        unknown = self.words.get_index(options["unk_word"])
        self.decoder = text.LexiconDecoder(
            rules, trie, lm, sil, self.blank, unknown, [], False
        )

    def __call__(self, emissions):
        """Answers for one utterance, float32 [T, V]."""
        emissions = np.ascontiguousarray(emissions, np.float32)
        found = self.decoder.decode(emissions.ctypes.data, *emissions.shape)
        return [self._answer(result) for result in found[: self.options["nbest"]]]

    def _answer(self, result):
        runs = [token for token, _ in itertools.groupby(result.tokens)]
        tokens = result.tokens
        begins = [
            t
            for t, token in enumerate(tokens)
            if token != self.blank and (t == 0 or token != tokens[t - 1])
        ]
        words = [self.words.get_entry(word) for word in result.words if word >= 0]
        spoken = [token for token in runs if token != self.blank]
        return Answer(spoken, words, result.score, begins)
