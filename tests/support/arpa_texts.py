"""ARPA models as text: one with all that a model may have, and those KenLM refuses.

arpa_of("-99 <s> -0.5; -1 </s>; -0.25 a", "-0.75 <s> a")      # a string for each order
"""


def arpa_of(*orders):
    """Write a model as a file has it; numbers stay as they are spelled."""
    sections = [[one.split() for one in order.split(";")] for order in orders]
    text = "\\data\\\n"
    for n, entries in enumerate(sections, 1):
        text += f"ngram {n}={len(entries)}\n"
    for n, entries in enumerate(sections, 1):
        text += f"\n\\{n}-grams:\n"
        for cost, *words in entries:
            text += "\t".join([cost, " ".join(words[:n]), *words[n:]]) + "\n"
    return text + "\n\\end\\\n"


# `cat sat` has no back-off, that of `cat` is above 1, `<unk>` is in n-grams.
TRIGRAMS = arpa_of(
    "-99 <s> -0.5; -1.25 </s>; -3.5 <unk> -0.125; -0.75 the -0.25; -1 cat 0.0625; "
    "-1.5 sat",
    "-0.25 <s> the -0.5; -0.5 the cat -0.75; -0.125 cat sat; -2 the <unk> -0.375; "
    "-0.0625 <unk> sat",
    "-0.03125 <s> the cat; -0.015625 the <unk> sat",
)


# KenLM reads none of these; the oracle in Python does.
REFUSED = {
    "unigram-only": r"""\data\
ngram 1=3

\1-grams:
-1 <s>
-1 </s>
-0.5 a
\end\
""",
    "history missing": TRIGRAMS.replace("the <unk> sat", "sat the cat"),
    "rounded above zero": TRIGRAMS.replace("-0.0625", "0.0001"),
}


def random_sentences(rng, words, count):
    return [tuple(rng.choice(words, size=rng.integers(0, 12))) for _ in range(count)]


# Over the letters a, b and c.
BIGRAMS = arpa_of(
    "-99 <s> -0.25; -0.75 </s>; -0.5 a -0.125; -0.75 b -0.5; -1 c",
    "-0.125 <s> b; -0.25 a b; -0.0625 c a",
)

# Over the same and a separator of words.
LETTERS_ARPA = arpa_of("-99 <s>; -0.7 </s>; -0.5 <wb>; -0.7 a; -0.7 b; -0.6 c")
