"""Small random lexicons and models, and det(L o G) of them.

lexicon = random_lexicon(rng)                         # over TOKENS
arpa = random_arpa(rng, sorted(set(lexicon.words)))
log, tries, labels = machines(lexicon, arpa, random_fillers(rng))
"""

import io

import numpy as np

from wfstdec import Lexicon, read_arpa, token_table
from wfstdec.fst import tlg
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.grammar import build_grammar
from wfstdec.fst.history_tries import build_history_tries
from wfstdec.fst.lexicon_fst import Fillers, build_lexicon_fst, mark_lexicon
from wfstdec.fst.operations import compose
from wfstdec.text.lexicon import sayable, word_table

TOKENS = token_table(["_", "s", "a", "b", "c"])
SEPARATOR, A = 1, 2


def random_lexicon(rng):
    """Few short words, with prefixes, homophones and words that extend others."""
    words = [f"w{i}" for i in range(rng.randint(3, 6))]
    first = [tuple(rng.choices([2, 3, 4], k=rng.choice([1, 2, 2, 3]))) for _ in words]
    entries = list(zip(words, first, strict=True))
    for word in words:
        pron, kind = rng.choice(first), rng.randrange(5)
        if kind < 3:
            pron = (pron[: rng.randint(1, len(pron))], pron, (*pron, A)[:4])[kind]
            entries.append((word, pron))
    rng.shuffle(entries)
    costs = [rng.choice([0.0, rng.uniform(0, 3)]) for _ in entries]
    return Lexicon(*zip(*entries, strict=True), np.array(costs, np.float32))


def random_arpa(rng, words):
    """A model of order 1 to 3 with and without <unk>, back-offs and all words."""
    order, words = rng.randint(1, 3), words[: rng.choice([None, None, -1])]
    unigrams = ["<s>", "</s>", *words, *["<unk>"] * (rng.random() < 0.4)]
    grams = [[(word,) for word in unigrams]]
    for n in range(2, order + 1):
        columns = [["<s>", *words], *[words] * (n - 2), [*words, "</s>"]]
        drawn = {tuple(map(rng.choice, columns)) for _ in range(rng.randint(2, 9))}
        grams.append(sorted(drawn))
    lines = ["\\data\\", *(f"ngram {n}={len(g)}" for n, g in enumerate(grams, 1))]
    for n, table in enumerate(grams, 1):
        lines.append(f"\n\\{n}-grams:")
        for gram in table:
            line = f"{rng.uniform(-1.5, 0):.3f}\t{' '.join(gram)}"
            if n < order and gram[-1] != "</s>" and rng.random() < 0.7:
                line += f"\t{rng.uniform(-1, 0.3):.3f}"
            lines.append(line)
    return "\n".join([*lines, "\n\\end\\\n"])


def random_fillers(rng):
    kind = rng.choice(["none", "separator", "optional", "silence"])
    if kind == "silence":  # one that words may begin with, or not
        return Fillers(silence=rng.choice([1, A]), silence_prob=rng.choice([0.2, 0.9]))
    separator = None if kind == "none" else SEPARATOR
    return Fillers(separator=separator, separator_optional=kind == "optional")


def machines(lexicon, arpa, fillers, tokens=TOKENS, unk_cost=None):
    """L o G, what `build_graph` makes of it, and the labels."""
    model = read_arpa(io.BytesIO(arpa.encode())) if isinstance(arpa, str) else arpa
    marked = mark_lexicon(sayable(lexicon, model.index, unk_cost), fillers, tokens)
    class_cost = tlg._class_cost(model, unk_cost)
    words, has_exits = word_table(marked.lexicon), class_cost is not None
    labels = LabelSpace(tokens, words, marked.num_disambig, has_exits)
    g = build_grammar(model, labels, unk_cost, class_cost)
    l_fst = build_lexicon_fst(marked, labels)
    return compose(l_fst, g), build_history_tries(marked, labels, g), labels
