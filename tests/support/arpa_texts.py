"""ARPA models as text: one with all that a model may have, and those KenLM refuses."""

# `cat sat` has no back-off, that of `cat` is above 1, `<unk>` is in n-grams.
TRIGRAMS = r"""\data\
ngram 1=6
ngram 2=5
ngram 3=2

\1-grams:
-99	<s>	-0.5
-1.25	</s>
-3.5	<unk>	-0.125
-0.75	the	-0.25
-1	cat	0.0625
-1.5	sat

\2-grams:
-0.25	<s> the	-0.5
-0.5	the cat	-0.75
-0.125	cat sat
-2	the <unk>	-0.375
-0.0625	<unk> sat

\3-grams:
-0.03125	<s> the cat
-0.015625	the <unk> sat

\end\
"""


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
BIGRAMS = r"""\data\
ngram 1=5
ngram 2=3

\1-grams:
-99	<s>	-0.25
-0.75	</s>
-0.5	a	-0.125
-0.75	b	-0.5
-1	c

\2-grams:
-0.125	<s> b
-0.25	a b
-0.0625	c a

\end\
"""

# Over the same and a separator of words.
LETTERS_ARPA = """\\data\\
ngram 1=6

\\1-grams:
-99\t<s>
-0.7\t</s>
-0.5\t<wb>
-0.7\ta
-0.7\tb
-0.6\tc

\\end\\
"""
