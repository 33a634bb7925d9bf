# %% [markdown]
# # A search graph or a trie? Both decoders on the same speech
#
# wfstdec has two searches for the log-probs of a CTC model. Both take the same tokens,
# lexicon, language model, boosts and options, and give the same kind of hypothesis:
#
# - `WfstDecoder` searches a graph composed of topology, lexicon and language model (T,
#   L and G);
# - `TrieDecoder` searches a prefix tree of the lexicon and queries the language model
#   during the search. No graph is built; without a lexicon it decodes bare tokens.
#
# This notebook compares them on the shipped recipe: 40 utterances of LibriSpeech, a
# lexicon of 30,000 words and a pruned 3-gram. It takes about a minute and needs
# `pip install wfstdec[plot,notebook]`. `python -m tools.make_notebook --execute` makes
# it from the `.py` file of the same name.
#
# On your own data the same is one command: `wfstdec compare --help`.

# %%
import tempfile
import time
from pathlib import Path

import numpy as np
from IPython.display import Image, display

import wfstdec
from wfstdec import compare
from wfstdec.io import read_boosts
from wfstdec.recipes import find_recipe

recipe = find_recipe()
speech = compare.read_speech(recipe / "logprobs.npz", recipe / "refs.txt")
print(f"{len(speech.logprobs)} utterances, {speech.audio_s / 60:.1f} minutes")

# %% [markdown]
# ## Time and memory before the first word
#
# The graph is built once and saved; decoders load it. The trie decoder reads the text
# files each time. `compare.Models` measures seconds and resident memory of loading.

# %%
files = {
    "tokens": recipe / "tokens.txt",
    "lexicon": recipe / "lexicon.txt.gz",
    "lm": recipe / "lm.arpa.gz",
    "separator": "<wb>",
}
began = time.perf_counter()
built = wfstdec.build_graph(**files)
print(f"graph built: {time.perf_counter() - began:.1f} s, once")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "graph.npz"
    built.save(path)
    print(f"  {built.num_arcs:,} arcs, {path.stat().st_size / 1e6:.0f} MB on disk")
    del built
    models = compare.Models(graph=path, **files)
    graph = models.loaded_graph
print(f"graph loaded: {graph.load_s:.1f} s, {graph.load_mb:.0f} MB")
[trie] = models.trie_searches(wfstdec.TrieOptions(), {})
print(
    f"trie decoder, from text: {trie.facts.load_s:.1f} s, {trie.facts.load_mb:.0f} MB"
)

# %% [markdown]
# ## The same answers
#
# With wide beams both minimise the same cost and should output the same words. There is
# one difference. In the graph a back-off is an epsilon arc, which may be taken even if
# the longer n-gram exists, so that a path may cost a little less than in the model. The
# trie decoder backs off only where the model does.

# %%
wide = {"lm_scale": 0.8}
decoders = {
    "WFST": wfstdec.WfstDecoder(graph.item, wfstdec.WfstOptions(beam=17.0, **wide)),
    "trie": trie.make(wfstdec.TrieOptions(beam_size=1024, beam=17.0, **wide)),
}
utterances = list(speech.logprobs.values())
results = {name: decoder.decode(utterances) for name, decoder in decoders.items()}
costs = {name: np.array([h.total_cost for h in hyps]) for name, hyps in results.items()}
pairs = list(zip(*results.values(), strict=True))
print(f"same words: {sum(a.text == b.text for a, b in pairs)} of {len(pairs)}")
difference = costs["trie"] - costs["WFST"]
print(f"trie's cost less the graph's: {difference.min():.4f} to {difference.max():.4f}")
for name, hyps in results.items():
    words = " ".join(f"{word.text}@{word.start_s:.2f}" for word in hyps[5].words)
    print(f"{name}: {words}")

# %% [markdown]
# ## How narrow may the beam be?
#
# Each decoder runs over a grid: beams in nats for the graph; for the trie, which also
# limits the entries of a frame, pairs of beam and size, with the best alignment of a
# text and with the sum over all alignments. Speed is seconds of audio per CPU second of
# one thread, best of two runs. A search error is an utterance whose cost is above that
# of the widest setting of the same search.

# %%
searches = models.wfst_searches(
    wfstdec.WfstOptions(**wide), {"beam": [6.0, 8.0, 10.0, 13.0]}
)
searches += models.trie_searches(
    wfstdec.TrieOptions(**wide),
    {
        ("beam", "beam_size"): [(6, 16), (8, 32), (10, 128), (14, 256)],
        "merge": ["max", "sum"],
    },
)
comparison = compare.run(speech, searches, repeats=2)
print(compare.table(comparison))

# %%
with tempfile.TemporaryDirectory() as folder:
    compare.plot(comparison, Path(folder) / "comparison.png")
    display(Image((Path(folder) / "comparison.png").read_bytes(), width=800))

# %% [markdown]
# ## Names that the language model does not expect
#
# Five words of these utterances, mostly names, are recognised wrongly. A boost is a
# bonus in nats for a word, for all utterances or for one. It means the same in both
# decoders and is part of the search, not of a rescoring. Precision, recall and F below
# are those of the five words ("partly" above is "bartley" in the reference).

# %%
boosts = read_boosts(recipe / "boosts.txt")
print(boosts.common)
boosted = compare.run(
    speech,
    models.wfst_searches(wfstdec.WfstOptions(**wide), {"beam": [10.0]})
    + models.trie_searches(
        wfstdec.TrieOptions(**wide), {("beam", "beam_size"): [(10, 128)]}
    ),
    boosts={"names": boosts},
    phrases=boosts.common,
    repeats=1,
)
print(compare.table(boosted))

# %% [markdown]
# ## The scale of the language model
#
# It was 0.8 above. `compare.tune` (`wfstdec tune` on the command line) finds the scale
# and the word insertion cost with the fewest errors. Here it uses the utterances of the
# figures above. On your data, tune on a development set of an hour and test on another.

# %%
tuning = compare.tune(
    searches[0].prepare,
    speech,
    {"lm_scale": (0.6, 1.0), "word_insertion": (-1.0, 1.0)},
    max_trials=27,
    say=lambda trial: None,
)
print(f"best of {len(tuning.trials)}: {tuning.best}")
print(*tuning.borders, sep="\n")

# %% [markdown]
# ## Which one, when?
#
# Use the **graph** if it can be built ahead and used often. The work of language model
# and lexicon is done, and words with the same continuations share states, so it is
# faster at the same WER. It takes any grammar, and graphs of other toolkits.
#
# Use the **trie** if the lexicon or the language model changes often, if the graph
# would not fit into memory, if back-off must be exact, if the probability of a text is
# to be summed over its alignments, or without a lexicon.
#
# The README has figures for hours of speech, other language models and other decoders.
# These 40 utterances only show how to get yours.
