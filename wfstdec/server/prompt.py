"""Boosts from the free text of OpenAI's `prompt`.

    "Glossary: Bartley, New York"             ["Bartley", "New York"]
    "Silas met Mr Smith in the garden."       ["Silas", "Mr Smith"]

All entries of a list become boosts. In sentences, words that are rare in the language
model become boosts; so does a run of capitalised words without a rare one, as a phrase.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from wfstdec.boost.lists import first_of
from wfstdec.server.service import Service

_MOST, _MOST_WORDS = 200, 4
"""Boosts of a prompt, and words of an entry of a list, at most."""
_COMMONEST = 5000  # Number of frequent words of the language model that are not rare

IsRare = Callable[[str], bool | None]
"""Returns whether a word is rare; None if the language model has no frequencies."""


def prompt_terms(service: Service, prompt: str | None) -> tuple[list[str], list[str]]:
    """Return words and phrases of a prompt to boost, and warnings."""
    if not prompt or not prompt.strip():
        return [], []
    if not service.prompt_boosts:
        return [], ["the prompt has no effect: the server's --prompt-boosts is off"]
    decoder, limits = service.decoder, service.limits
    found = terms(prompt, lambda word: decoder.is_rare(word, _COMMONEST))
    found = [term for term in found if len(term) <= limits.boost_chars]
    taken = found[: min(_MOST, limits.boosts)]
    if not taken:
        return [], ["the prompt has no rare words or names, and no effect"]
    left = f"; {n} more are left out" if (n := len(found) - len(taken)) else ""
    return taken, [f"{len(taken)} boosts of the prompt: {first_of(taken)}{left}"]


def terms(prompt: str, is_rare: IsRare) -> list[str]:
    """Return words and phrases of a prompt, in order, without duplicates."""
    # A text in capitals alone shows no names.
    has_case = any(map(str.islower, prompt))
    lines = (_of_line(line, is_rare, has_case) for line in prompt.splitlines())
    return list(dict.fromkeys(chain.from_iterable(lines)))


def _of_line(line: str, is_rare: IsRare, has_case: bool) -> Iterator[str]:
    if line.rstrip().endswith(":"):  # the label of lines below
        return
    label, has_label, rest = line.rpartition(": ")
    entries = [one for part in re.split("[,;]", rest) if (one := _bare(part))]
    is_list = len(entries) > 1 and bool(has_label)
    if max(map(_length, (label, *entries))) <= _MOST_WORDS:
        # Sentences are also cut at commas, and contain common words. Capitals at the
        # start of a line carry no information.
        has_names = all(
            any(map(str.isupper, one[i == 0 :]))
            or any(is_rare(word) is not False for word in one.split())
            for i, one in enumerate(entries)
        )
        is_list |= line.rstrip()[-1:] not in ".!?" and has_names
        if is_list:
            yield from entries
            return
    for sentence in re.split(r"(?<=[.!?:])\s+", line):
        yield from _of_sentence(sentence, is_rare, has_case)


def _of_sentence(sentence: str, is_rare: IsRare, has_case: bool) -> Iterator[str]:
    run: list[str] = []  # capitalised words in a row, none of them rare
    for place, given in enumerate([*sentence.split(), "."]):
        word = re.sub("['’]s$", "", _bare(given))
        rare = is_rare(word) if any(map(str.isalpha, word)) else False
        is_name = has_case and word[:1].isupper() and place > 0
        if is_name and not rare:
            run.append(word)
        if rare or not is_name or given[-1] in ",;)":
            # A single common word needs no boost.
            if len(run) > 1 or (run and len(run[0]) > 1 and is_rare(run[0]) is None):
                yield " ".join(run)
            run = []
        if rare:
            yield word


def _length(text: str) -> int:
    return len(text.split())


def _bare(text: str) -> str:
    # A regular expression would take quadratic time in the length of inner runs.
    first, end = 0, len(text)
    while first < end and not text[first].isalnum():
        first += 1
    while end > first and not text[end - 1].isalnum():
        end -= 1
    return text[first:end]
