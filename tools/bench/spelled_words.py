"""Words as their phones spell them: real speech for decoders that know letters alone.

spelled = spelled_words("lexicon.txt", labels, "<wb>")     # {'the': 'ðə', ...}
words = spelled_arpa("lm.arpa.gz", spelled, "spelled.arpa")
"""

from __future__ import annotations

from pathlib import Path

from wfstdec.text.files import atomic_write, read_lines


def spelled_words(
    lexicon: Path, labels: list[str], separator: str | None
) -> dict[str, str]:
    """Spell words by their first pronunciation, where labels can."""
    known, found = set(labels), dict[str, str]()
    for line in read_lines(lexicon):
        word, *said = line.split()
        said = [token for token in said if token != separator]
        if said and word not in found and known.issuperset(said):
            found[word] = "".join(said)
    return found


def spelled_arpa(arpa: Path, spelled: dict[str, str], out: Path) -> list[str]:
    """Write a model with its words as they are spelled; the words that it has then.

    Of words that are spelled alike the likeliest stays; n-grams with others are left
    out, as are words that nothing spells.
    """
    sections = _sections(arpa)
    likeliest: dict[str, tuple[float, str]] = {}
    for fields in sections[0]:
        text = spelled.get(fields[1])
        if text is not None:
            likeliest[text] = max(
                likeliest.get(text, (-1e9, "")), (float(fields[0]), fields[1])
            )
    names = {word: text for text, (_, word) in likeliest.items()}
    names |= {mark: mark for mark in ("<s>", "</s>", "<unk>")}
    kept = [
        [
            [cost, " ".join(names[word] for word in words.split()), *rest]
            for cost, words, *rest in section
            if all(word in names for word in words.split())
        ]
        for section in sections
    ]
    with atomic_write(out, "w") as file:
        file.write("\\data\\\n")
        for n, section in enumerate(kept, start=1):
            file.write(f"ngram {n}={len(section)}\n")
        for n, section in enumerate(kept, start=1):
            lines = "".join("\t".join(fields) + "\n" for fields in section)
            file.write(f"\n\\{n}-grams:\n{lines}")
        file.write("\n\\end\\\n")
    return sorted(likeliest)


def _sections(arpa: Path) -> list[list[list[str]]]:
    """The fields of each line, order by order."""
    sections: list[list[list[str]]] = []
    for line in read_lines(arpa):
        if line.startswith("\\"):
            if line.endswith("-grams:"):
                sections.append([])
        elif sections and line.strip():
            sections[-1].append(_fields(line, len(sections)))
    return sections


def _fields(line: str, order: int) -> list[str]:
    """Log-prob, words with spaces between them, a back-off weight if there is one."""
    cost, *rest = line.split()
    return [cost, " ".join(rest[:order]), *rest[order:]]
