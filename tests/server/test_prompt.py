"""Words of a prompt that become boosts."""

import json

import pytest
from real_speech import utterances
from row_streams import wav_of
from served import post_file, serving

from tools.bench.row_encoder import rounded_rows
from wfstdec.boost.automatic import DefaultBonuses
from wfstdec.server.limits import Limits
from wfstdec.server.prompt import terms
from wfstdec.server.service import Service

COMMON = set(
    "the a i i'm met in was it is and then we new garden mr smith yesterday of to talk "
    "mark home went meeting notes she about".split()
)
LISTS = ["Bartley", "New York", "wheat"]


@pytest.mark.parametrize(
    ("prompt", "known", "unknown"),
    [
        # Boosts where a language model knows what is rare, and where there is none.
        ("Glossary: Bartley, New York, wheat.", LISTS, LISTS),
        ("Bartley\nNew York", LISTS[:2], LISTS[:2]),
        ("Names:\nSilas\nthe Quilter", ["Silas", "the Quilter"], [..., ...]),
        ("kubernetes, helm", ["kubernetes", "helm"], ["kubernetes", "helm"]),
        ("We met Mr Smith. Mr Smith went home.", ["Mr Smith"], [..., ...]),
        ("Silas went in. Yesterday Mark was home.", ["Silas"], ["Mark"]),
        ("We met Silas and Mark's Bartley.", ["Silas", "Bartley"], [..., ...]),
        ("Yesterday, I went home, and then it was a talk", [], []),
        ("WE WENT TO BARTLEY AND HOME", ["BARTLEY"], []),
        ("It was in 2024, and is 3 % of it.", [], []),
        *((text, [], []) for text in ("I'm in the garden, and I went.", "", "\n,;: -")),
    ],
)
def test_boosts_of_a_prompt(prompt, known, unknown):
    def is_rare(word):
        return word.lower() not in COMMON

    assert terms(prompt, is_rare) == known
    found = terms(prompt, lambda word: None)
    assert found == unknown or (... in unknown and len(found) == len(unknown))


def test_rare_words():
    bonuses = DefaultBonuses(["<eps>", "a", "b", "c"], None, [float("inf"), 1, 2, 3])
    assert [bonuses.is_rare([word], 2) for word in "abc"] == [False, False, True]
    assert bonuses.is_rare(["a", "c"], 2) is False and bonuses.is_rare([], 9) is True
    assert DefaultBonuses(["<eps>", "a"]).is_rare(["a"], 1) is None


def test_prompts_of_files(encoder, decoder):
    recording = wav_of(rounded_rows(utterances(9)[0]))

    def text_of(**fields):
        found = post_file(server, recording, **fields).json()
        return found["text"], found.get("warnings")

    with serving(Service(encoder, decoder, Limits(boosts=5))) as server:
        plain, none = text_of()
        assert none is None and "yet" not in plain.split()
        names = ", ".join(f"Zz{letter}" for letter in "abcdef")
        text, warnings = text_of(prompt=f"Glossary: Yet, {names}")
        assert "yet" in text.split()
        assert warnings[0].startswith("5 boosts of the prompt: 'Yet', 'Zza'")
        assert warnings[0].endswith("2 more are left out")
        assert any("'Zzb' (fits no word)" in text for text in warnings)
        # A list of the client's own comes first.
        own = json.dumps({"yet": -50})
        assert text_of(prompt="Terms: yet, zzyzx", boosts=own)[0] == plain
        assert text_of(prompt="x" * 999)[0] == plain
    with serving(Service(encoder, decoder, prompt_boosts=False)) as server:
        text, warnings = text_of(prompt="Glossary: Yet, Zza")
        off = "the prompt has no effect: the server's --prompt-boosts is off"
        assert (text, warnings) == (plain, [off])


def test_a_long_run_of_marks_takes_no_time():
    # It took the square of their length, hours for these.
    for prompt in ("a" + "!" * 100_000 + "a", " " * 100_000, "x, " * 30_000):
        assert len(terms(prompt, lambda word: False)) < 2
