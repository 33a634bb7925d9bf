"""Recipes: folders with the inputs of a graph, and the shipped one.

    recipe = find_recipe()                             # the shipped one
    decoder = WfstDecoder(**inputs_of(recipe), options=OPTIONS)

A recipe has `tokens.txt`, `lexicon.txt.gz` and `lm.arpa.gz`; the shipped one also has
`logprobs.npz` and `refs.txt` of 40 utterances, and `boosts.txt` for some names in them.
"""

import os
import sysconfig
from pathlib import Path
from typing import Any

from wfstdec.errors import FormatError
from wfstdec.lazy import checked_types
from wfstdec.wfst.options import WfstOptions

RECIPE = Path("graphs") / "librispeech_demo"
"""The shipped recipe, relative to a checkout or to the installed files."""
SEPARATOR = "<wb>"  # Token between words in recipes
OPTIONS = WfstOptions(beam=13.0, max_active=7000, lm_scale=0.8)
"""Options of the demo on the shipped recipe's graph."""


@checked_types
def find_recipe(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of a recipe; None is the shipped one.

    The shipped recipe is in the checkout of the package, or else in the installation.
    """
    installed = Path(sysconfig.get_path("data")) / "share" / "wfstdec" / RECIPE
    checkout = Path(__file__).parents[1] / RECIPE
    places = [Path(folder)] if folder else [checkout, installed]
    for place in places:
        if (place / "tokens.txt").is_file():
            return place
    listed = " or ".join(repr(str(place)) for place in places)
    raise FormatError(f"no tokens.txt in {listed}, expected the folder of a recipe")


@checked_types
def inputs_of(recipe: Path) -> dict[str, Any]:
    """Return the inputs of `build_graph` and decoders in a recipe."""
    names = {"tokens": "tokens.txt", "lexicon": "lexicon.txt.gz", "lm": "lm.arpa.gz"}
    files = {part: recipe / name for part, name in names.items()}
    return {**files, "separator": SEPARATOR}
