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
RULES = ("closed", "none")
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

    def expected(self, rule):
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
        rows = log_probs(self.model, self.frames[0], LONGEST)
        given = {"rows": rows, "rule": rule, "credits": credits, "costs": costs}
        return naive_attention.totals(ends=[EOS], longest=LONGEST, loops=False, **given)


def cost_of(coster, text, token):
    history = ("<s>", *(LETTERS[t] for t in text))
    return coster(history, "</s>" if token is None else LETTERS[token])


def nbest(model, frames, processors, **flags):
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


def test_greedy_search_never_passes_an_end_that_the_model_prefers():
    """Of boosts nothing is left where the model's own best is the end."""
    ended = 0
    for seed in (7, 8, 14, 15, 18, 20, 21, 23):
        model, frames = tiny_whisper(seed), features(1, seed)
        rows = log_probs(model, frames[0], LONGEST, prompt=(SOT, MARK))
        boosts = PhraseBoostLogitsProcessor(
            {"ab": 3.0, "cd": 3.0, "a": 3.0}, letter_tokenizer()
        )
        out = model.generate(frames, logits_processor=[boosts], max_new_tokens=LONGEST)
        text = tuple(token for token in out[0].tolist() if token < EOS)
        prefers = [int(np.argmax(rows[text[:n]])) == EOS for n in range(len(text))]
        ended += EOS in np.argmax(list(rows.values()), 1)
        assert not any(prefers)
    assert ended > 5


@pytest.mark.parametrize("num_beams", [1, 3])
def test_boosts_on_silence_say_nothing(num_beams):
    """Elsewhere a listed word comes again and again in speechless audio."""
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


def test_half_paid_boosts_at_max_length():
    """A text that is cut off has no end to pay back at, unless the length is given."""
    model, frames = tiny_whisper(3), features(1, 3)
    phrases = {"abcda": 4.0}
    flags = {"num_beams": WIDE, "num_return_sequences": WIDE, **EXACT}
    how = {"begin_index": 1, "options": PhraseOptions()}
    informed = PhraseBoostLogitsProcessor(
        phrases, letter_tokenizer(), max_length=1 + LONGEST, **how
    )
    untold = PhraseBoostLogitsProcessor(phrases, letter_tokenizer(), **how)
    plain = nbest(model, frames, [], **flags)
    assert nbest(model, frames, [informed], **flags) == pytest.approx(plain, abs=1e-4)
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
    model.generation_config.suppress_tokens = [SOT, MARK]
    return model.generate(
        frames,
        attention_mask=torch.ones(frames.shape[0], frames.shape[2]),
        logits_processor=processors,
        return_timestamps=True,
        **flags,
    )


def test_long_audio_goes_with_one_list_for_all():
    """Whisper gives each window's prompt; phrases begin anew behind it."""
    informed = []

    class Watched(PhraseBoostLogitsProcessor):
        def set_begin_index(self, begin_index):
            informed.append(begin_index)
            super().set_begin_index(begin_index)

    model, frames = tiny_whisper(2), features(2, 3, frames=3 * 20)
    boosts = Watched({"ab": 4.0}, letter_tokenizer())
    plain = long_form(model, frames, [], num_beams=2, max_new_tokens=6)
    boosted = long_form(model, frames, [boosts], num_beams=2, max_new_tokens=6)
    assert len(informed) >= 3
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


@pytest.mark.parametrize("make", [moonshine, speech_to_text])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_models_of_other_kinds_take_it(make, num_beams):
    """Other models have no `begin_index`: the beginning is a mark, and not spoken."""
    torch.manual_seed(0)
    model, inputs = make(2)
    flags = {"max_new_tokens": 6, "num_beams": num_beams}
    flags |= {"suppress_tokens": [SOT, MARK, 7, 8, 9]}
    boosts = PhraseBoostLogitsProcessor({"dab": 60.0}, letter_tokenizer())
    plain = model.eval().generate(**inputs, **flags)
    found = model.generate(**inputs, logits_processor=[boosts], **flags)
    assert "3, 0, 1" in str(found.tolist()) and "3, 0, 1" not in str(plain.tolist())
