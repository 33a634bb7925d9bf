"""A folder laid out as the project's data, with next to nothing in it, for benchmarks.

write_sets(tmp_path)          # the set `dev` of six utterances, the model `tiny`
"""

import numpy as np

TOKENS = ["<blank>", "<wb>", "a", "b", "c"]
LEXICON = "ab\ta b\ncab\tc a b\nc\tc\n"
ARPA = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-0.7\tab\t-0.3
-0.5\tc\t-0.2
-0.9\tcab
-99\t<s>\t-0.3
-0.7\t</s>

\\2-grams:
-0.2\t<s> ab
-0.3\tab c

\\end\\
"""


def write_sets(path):
    """Write the set `dev` and what decodes it; every reference is `ab c`."""
    for folder in ("posteriors", "lexicon", "lm"):
        (path / folder).mkdir()
    (path / "tokens.txt").write_text("".join(f"{t}\n" for t in TOKENS))
    (path / "lexicon" / "lexicon_ipa.txt").write_text(LEXICON)
    (path / "lm" / "tiny.arpa.gz").write_text(ARPA)  # gzip or not: both are read
    rng = np.random.default_rng(11)
    arrays = {f"utt{i}": rng.dirichlet(np.ones(5), 20 + i) for i in range(6)}
    arrays = {utt: np.log(x).astype(np.float16) for utt, x in arrays.items()}
    np.savez(path / "posteriors" / "librispeech_dev.npz", **arrays)
    lines = "".join(f"{utt} ab c\n" for utt in arrays)
    (path / "posteriors" / "librispeech_dev.txt").write_text(lines)
