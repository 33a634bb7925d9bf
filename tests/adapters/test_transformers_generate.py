"""Processors in `generate` of random Whisper models, against the enumeration of texts.

Nothing is downloaded: models and tokenizers are made here.
"""

import importlib.util
import io

import naive_attention
import naive_cases
import naive_lm
import naive_phrases
import numpy as np
import pytest

from wfstdec import NgramLM, PhraseOptions
from wfstdec.adapters.transformers import (
    NgramLogitsProcessor,
    PhraseBoostLogitsProcessor,
    token_table_of,
)
from wfstdec.errors import OptionError, ShapeError

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("needs transformers and torch", allow_module_level=True)

import torch
import transformers
from tiny_whisper import (
    EOS,
    LETTERS,
    MARK,
    SOT,
    features,
    letter_tokenizer,
    log_probs,
    moonshine,
    speech_to_text,
    tiny_whisper,
)
from transformers.generation.utils import GenerationMixin

NAMES = dict(enumerate(LETTERS))
LONGEST = 3
WIDE = 90
"""More than there are texts of up to three letters."""
EXACT = {"length_penalty": 0.0, "early_stopping": "never"}
RULES = ("closed", "compensated", "none")
UNK_COST = 2.5
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def one_thread():
    """`generate` has much to say of random models, and threads do not help them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)
    torch.set_num_threads(threads)


class Case:
    """A random model, utterance and list of phrases; oracle and processors of both."""

    def __init__(self, seed, with_lm=False):
        rng = np.random.default_rng(seed)
        self.model = tiny_whisper(seed, temperature=rng.choice([0.3, 1.0]))
        self.frames = features(1, seed)
        lengths = rng.integers(1, 4, size=rng.integers(1, 4))
        self.phrases = {
            "".join(rng.choice(list(LETTERS), length)): float(weight)
            for length, weight in zip(lengths, rng.uniform(-0.5, 2, 9), strict=False)
        }
        self.options = {"uniform": True} if seed % 3 == 0 else {}
        self.arpa = None
        if with_lm:
            self.arpa = naive_cases.random_arpa(rng, list(LETTERS))[0]
            self.weight = float(rng.choice([0.3, 1.0, -0.4]))

    def processors(self, rule, **more):
        tokenizer = letter_tokenizer()
        options = PhraseOptions(**self.options)
        found = [
            PhraseBoostLogitsProcessor(
                self.phrases, tokenizer, end_rule=rule, options=options, **more
            )
        ]
        if self.arpa:
            tokens = token_table_of(tokenizer)
            lm = NgramLM.from_arpa(io.StringIO(self.arpa), tokens, unk_cost=UNK_COST)
            found.append(NgramLogitsProcessor(lm, tokenizer, self.weight))
        return found

    def expected(self, rule, longest=LONGEST):
        """All texts with their totals."""
        definition = self.definition(rule, longest)
        return naive_attention.totals(ends=[EOS], longest=longest, **definition)

    def beam(self, rule, *, width, longest):
        """Texts of a plain beam."""
        definition = self.definition(rule, longest)
        return naive_attention.beam(
            ends=[EOS], longest=longest, width=width, **definition
        )

    def definition(self, rule, longest):
        spelt = {text: [tuple(text)] for text in self.phrases}
        phrases = naive_phrases.Phrases(
            self.phrases, "token", self.options, spellings=spelt
        )
        costs = []
        if self.arpa:
            coster = naive_lm.exact_word_coster(
                naive_lm.parse_arpa(self.arpa), UNK_COST
            )
            costs = [(self.weight, lambda *step: cost_of(coster, *step))]
        credits = naive_attention.Credits(phrases, NAMES)
        rows = log_probs(self.model, self.frames[0], longest)
        return {"rows": rows, "rule": rule, "credits": credits, "costs": costs}


def cost_of(coster, text, token):
    history = ("<s>", *(LETTERS[t] for t in text))
    return coster(history, "</s>" if token is None else LETTERS[token])


def nbest(model, frames, processors, **flags):
    """List of `generate`: {text with its end: total}."""
    num = flags.get("num_return_sequences", 1)
    out = GenerationMixin.generate(
        model,
        frames,
        decoder_input_ids=torch.full((len(frames), 1), SOT),
        logits_processor=processors,
        return_dict_in_generate=True,
        output_scores=True,
        use_cache=True,
        **({"max_new_tokens": LONGEST, "max_length": None} | flags),
    )
    found = {}
    rows, scores = out.sequences[:num, 1:].tolist(), out.sequences_scores[:num]
    for row, score in zip(rows, scores, strict=True):
        text = tuple(row[: row.index(EOS) + 1] if EOS in row else row)
        if score > -1e8:
            assert text not in found
            found[text] = float(score)
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.share(keep=8)
def test_totals_of_generate_are_those_of_the_enumeration(seed, rule):
    case = Case(seed, with_lm=seed % 2 == 1)
    found = nbest(
        case.model,
        case.frames,
        case.processors(rule, begin_index=1, max_new_tokens=LONGEST),
        num_beams=WIDE,
        num_return_sequences=WIDE,
        **EXACT,
    )
    assert found == pytest.approx(case.expected(rule), abs=2e-4)


@pytest.mark.parametrize("rule", ["closed", "none"])
@pytest.mark.parametrize("seed", range(100, 112))
@pytest.mark.share(keep=6)
def test_greedy_search_takes_the_best_of_each_step(seed, rule):
    """`generate` gives raw logits here: adding to them does the same."""
    case = Case(seed)
    rows = log_probs(case.model, case.frames[0], LONGEST)
    phrases = case.processors(rule, begin_index=1)[0]
    text = ()
    while len(text) < LONGEST and EOS not in text:
        scores = torch.tensor(rows[text], dtype=torch.float32)[None]
        ids = torch.tensor([[SOT, *text]])
        text = (*text, int(phrases(ids, scores).argmax()))
    phrases.set_begin_index(1)
    out = GenerationMixin.generate(
        case.model,
        case.frames,
        decoder_input_ids=torch.tensor([[SOT]]),
        logits_processor=[phrases],
        max_new_tokens=LONGEST,
    )
    assert tuple(out[0, 1:].tolist()) == text


@pytest.mark.parametrize("rule", ["closed", "compensated"])
def test_greedy_search_never_passes_an_end_that_the_model_prefers(rule):
    """Of boosts nothing is left where the model's own best is the end."""
    ended = 0
    for seed in (7, 8, 14, 15, 18, 20, 21, 23):
        model, frames = tiny_whisper(seed), features(1, seed)
        rows = log_probs(model, frames[0], LONGEST, prompt=(SOT, MARK))
        boosts = PhraseBoostLogitsProcessor(
            {"ab": 3.0, "cd": 3.0, "a": 3.0}, letter_tokenizer(), end_rule=rule
        )
        out = model.generate(frames, logits_processor=[boosts], max_new_tokens=LONGEST)
        text = tuple(token for token in out[0].tolist() if token < EOS)
        prefers = [int(np.argmax(rows[text[:n]])) == EOS for n in range(len(text))]
        ended += EOS in np.argmax(list(rows.values()), 1)
        assert not any(prefers)
    assert ended > 5


@pytest.mark.parametrize("num_beams", [1, 3])
def test_boosts_on_silence_say_nothing(num_beams):
    """100 phrases, noise, and a model that would say nothing: no token more.

    Elsewhere a listed word comes again and again in speechless audio.
    """
    rng = np.random.default_rng(0)
    phrases = {"".join(rng.choice(list(LETTERS), 4)): 3.0 for _ in range(150)}
    assert len(phrases) > 100
    more = {"max_new_tokens": LONGEST, "num_beams": num_beams}
    more |= EXACT if num_beams > 1 else {}
    silent = loud = 0
    for seed in range(30):
        model, frames = tiny_whisper(seed), features(1, seed)
        rows = log_probs(model, frames[0], 1, prompt=(SOT, MARK))
        if int(np.argmax(rows[()])) != EOS:
            continue
        plain = model.generate(frames, **more)
        for rule in ("closed", "none"):
            boosts = PhraseBoostLogitsProcessor(
                phrases, letter_tokenizer(), end_rule=rule
            )
            found = model.generate(frames, logits_processor=[boosts], **more)
            if rule == "none":
                loud += not torch.equal(found, plain)
            else:
                assert torch.equal(found, plain)
        silent += 1
    assert silent > 3 and loud > 0


def test_defaults_of_generate_lose_better_texts():
    """Totals divided by length, and a bound that takes all gains to be below 0."""
    worse = 0
    for seed in range(10):
        case = Case(seed)
        best = case.expected("none")
        processors = case.processors("none", begin_index=1, max_new_tokens=LONGEST)
        texts = nbest(case.model, case.frames, processors, num_beams=WIDE)
        (text,) = texts
        worse += best[text] < max(best.values()) - 1e-3
        processors = case.processors("none", begin_index=1, max_new_tokens=LONGEST)
        (text,) = nbest(case.model, case.frames, processors, num_beams=WIDE, **EXACT)
        assert best[text] == pytest.approx(max(best.values()), abs=1e-4)
    assert worse >= 2


def test_the_bound_of_generate_takes_gains_to_be_below_zero():
    """`generate` stops when the best live text is below the worst finished one.

    Here a phrase would lift that by 13.6 nats later. So even the right settings are no
    guarantee; `stop="bound"` of our own decoder is one.
    """
    after = {"": {"": -0.1, "a": -3.0}, "a": {"": -0.1, "a": -3.0}}
    after |= {"aa": {"b": -0.1}, "aab": {"c": -0.1}, "aabc": {"d": -0.1}}
    after |= {"aabcd": {"": -0.1}}

    def table(input_ids, scores):
        scores = torch.full_like(scores, -1e4)
        for row, ids in zip(scores, input_ids[:, 1:].tolist(), strict=True):
            text = "".join(LETTERS[t] for t in ids if t < EOS)
            for letter, score in after.get(text, {}).items():
                row[LETTERS.index(letter) if letter else EOS] = score
        return scores

    boosts = PhraseBoostLogitsProcessor(
        {"bcd": 2.0}, letter_tokenizer(), end_rule="none"
    )
    flags = {"num_beams": 2, "max_new_tokens": 6, "num_return_sequences": 2}
    found = nbest(tiny_whisper(0), features(1), [table, boosts], **flags, **EXACT)
    assert found == pytest.approx({(EOS,): -0.1, (0, EOS): -3.1}, abs=1e-3)
    flags["num_beams"] = 9
    wide = nbest(tiny_whisper(0), features(1), [table, boosts], **flags, **EXACT)
    best = -6.4 + 2 * (1 + 2 + np.log(2) + 2 + np.log(3))
    assert wide[0, 0, 1, 2, 3, EOS] == pytest.approx(best, abs=1e-3)


def test_half_paid_boosts_at_max_length():
    """A text that is cut off has no end to pay back at, unless the length is told."""
    model, frames = tiny_whisper(3), features(1, 3)
    phrases = {"abcda": 4.0}
    flags = {"num_beams": WIDE, "num_return_sequences": WIDE, **EXACT}
    told = PhraseBoostLogitsProcessor(
        phrases, letter_tokenizer(), begin_index=1, max_length=1 + LONGEST
    )
    untold = PhraseBoostLogitsProcessor(phrases, letter_tokenizer(), begin_index=1)
    plain = nbest(model, frames, [], **flags)
    assert nbest(model, frames, [told], **flags) == pytest.approx(plain, abs=1e-4)
    wrong = nbest(model, frames, [untold], **flags)
    paid = wrong[0, 1, 2] - plain[0, 1, 2]
    assert paid == pytest.approx(4 * (1 + 2 + np.log(2) + 2 + np.log(3)), abs=1e-3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_batch_gives_what_each_utterance_gives_alone(rule, num_beams):
    """Among them two utterances whose rows have equal texts, one of them closed."""
    frames = torch.cat([features(3, 5), features(2, 6) * 3, features(1, 7) * 0])
    changed = 0
    for seed in (0, 4, 8):
        model = tiny_whisper(seed)
        flags = {"num_beams": num_beams, "max_new_tokens": 8, **EXACT}
        if num_beams == 1:
            flags = {"max_new_tokens": 8}

        def texts(frames, model=model, flags=flags):
            boosts = PhraseBoostLogitsProcessor(
                {"ab": 1.5, "cd": 1.0, "bb": 1.0}, letter_tokenizer(), end_rule=rule
            )
            out = model.generate(frames, logits_processor=[boosts], **flags)
            return [[t for t in row if t < EOS] for row in out.tolist()]

        alone = [texts(one[None])[0] for one in frames]
        assert texts(frames) == alone
        changed += len(set(map(tuple, alone))) > 1
    assert changed


def test_a_list_for_each_utterance_in_one_call():
    model, tokenizer = tiny_whisper(1), letter_tokenizer()
    frames = features(3, 2)
    lists = [["ab"], None, {"cd": 2.0}]
    together = PhraseBoostLogitsProcessor(lists, tokenizer)
    out = model.generate(
        frames, logits_processor=[together], num_beams=3, max_new_tokens=5, **EXACT
    )
    for phrases, row, one in zip(lists, out.tolist(), frames, strict=True):
        alone = PhraseBoostLogitsProcessor(phrases, tokenizer)
        expected = model.generate(
            one[None], logits_processor=[alone], num_beams=3, max_new_tokens=5, **EXACT
        )
        assert [t for t in row if t < EOS] == [
            t for t in expected[0].tolist() if t < EOS
        ]


def long_form(model, frames, processors, **flags):
    """Audio of more than one window, with timestamps."""
    model.generation_config.suppress_tokens = [SOT, MARK]
    return model.generate(
        frames,
        attention_mask=torch.ones(frames.shape[0], frames.shape[2]),
        logits_processor=processors,
        return_timestamps=True,
        **flags,
    )


def test_long_audio_goes_with_one_list_for_all():
    """Whisper tells each window's prompt; phrases begin anew behind it."""
    told = []

    class Watched(PhraseBoostLogitsProcessor):
        def set_begin_index(self, begin_index):
            told.append(begin_index)
            super().set_begin_index(begin_index)

    model, frames = tiny_whisper(2), features(2, 3, frames=3 * 20)
    boosts = Watched({"ab": 4.0}, letter_tokenizer())
    plain = long_form(model, frames, [], num_beams=2, max_new_tokens=6)
    boosted = long_form(model, frames, [boosts], num_beams=2, max_new_tokens=6)
    assert len(told) >= 3
    assert plain.tolist() != boosted.tolist()


def test_lists_for_each_utterance_are_refused_in_long_audio():
    model, frames = tiny_whisper(2), features(2, 3, frames=3 * 20)
    boosts = PhraseBoostLogitsProcessor([["ab"], ["cd"]], letter_tokenizer())
    with pytest.raises(OptionError, match="one list for all"):
        long_form(model, frames, [boosts], max_new_tokens=6)


def test_rows_that_vanish_are_an_error_where_each_utterance_has_a_list():
    boosts = PhraseBoostLogitsProcessor([["ab"], ["cd"]], letter_tokenizer())
    ids = torch.full((4, 1), SOT)
    boosts(ids, torch.zeros(4, 10))
    with pytest.raises(ShapeError, match="2 rows of scores after 4"):
        boosts(ids[:2], torch.zeros(2, 10))
    with pytest.raises(ShapeError, match="3 rows of scores, expected a multiple of"):
        boosts(ids[:3], torch.zeros(3, 10))


def test_temperature_fallback_samples():
    """Fallbacks are drawn, beams or not: `temperature=0.0` is what to give."""
    model, frames = tiny_whisper(5, temperature=0.3), features(1, 5)
    boosts = PhraseBoostLogitsProcessor(["ab"], letter_tokenizer())

    def texts(temperature):
        found = set()
        for seed in range(8):
            torch.manual_seed(seed)
            out = long_form(
                model,
                frames,
                [boosts],
                temperature=temperature,
                logprob_threshold=10.0,
                num_beams=3,
                max_new_tokens=6,
            )
            found.add(tuple(out[0].tolist()))
        return found

    assert len(texts((0.0, 1.0))) > 1
    assert len(texts(0.0)) == 1


def test_sequence_bias_favours_the_last_token_alone():
    """transformers#28805: whole phrases come only if the model walks in by itself."""
    found = {"theirs": 0, "ours": 0}
    for seed in range(30):
        model, frames = tiny_whisper(seed, temperature=0.3), features(1, seed)
        plain = model.generate(frames, max_new_tokens=5)[0].tolist()
        if 2 in plain:
            continue
        theirs = transformers.SequenceBiasLogitsProcessor([[[2, 3, 1], 9.0]])
        ours = PhraseBoostLogitsProcessor({"cdb": 2.0}, letter_tokenizer())
        for name, processor in (("theirs", theirs), ("ours", ours)):
            out = model.generate(frames, logits_processor=[processor], max_new_tokens=5)
            found[name] += "2, 3, 1" in str(out[0].tolist())
    assert found["theirs"] == 0 and found["ours"] > 3


@pytest.mark.parametrize("make", [moonshine, speech_to_text])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_models_of_other_kinds_take_it(make, num_beams):
    """Other models tell no `begin_index`: the beginning is a mark, and says nothing."""
    torch.manual_seed(0)
    model, inputs = make(2)
    flags = {"max_new_tokens": 6, "num_beams": num_beams}
    flags |= {"suppress_tokens": [SOT, MARK, 7, 8, 9]}
    boosts = PhraseBoostLogitsProcessor({"dab": 6.0}, letter_tokenizer())
    plain = model.eval().generate(**inputs, **flags)
    found = model.generate(**inputs, logits_processor=[boosts], **flags)
    assert "3, 0, 1" in str(found.tolist()) and "3, 0, 1" not in str(plain.tolist())
