"""A folder laid out as the project's data, with next to nothing in it, for benchmarks.

write_sets(tmp_path)          # the set `dev` of six utterances, the model `tiny`
"""

import numpy as np
from arpa_texts import arpa_of

TOKENS = ["<blank>", "<wb>", "a", "b", "c"]
LEXICON = "ab\ta b\ncab\tc a b\nc\tc\n"
ARPA = arpa_of(
    "-0.7 ab -0.3; -0.5 c -0.2; -0.9 cab; -99 <s> -0.3; -0.7 </s>",
    "-0.2 <s> ab; -0.3 ab c",
)


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
