"""Recipes: folders of all that a graph is made of, and the one that is shipped.

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
"""The shipped recipe, from the root of a checkout or of the installed files."""
SEPARATOR = "<wb>"
"""The token between words in recipes."""
OPTIONS = WfstOptions(beam=13.0, max_active=7000, lm_scale=0.8)
"""How the demo searches the shipped recipe's graph."""


@checked_types
def find_recipe(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a recipe; None looks for the shipped one.

    That is in the checkout that the package runs from, or else in the installation.
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
    """Tokens, lexicon, language model and separator, for `build_graph` and decoders."""
    names = {"tokens": "tokens.txt", "lexicon": "lexicon.txt.gz", "lm": "lm.arpa.gz"}
    files = {part: recipe / name for part, name in names.items()}
    return {**files, "separator": SEPARATOR}
