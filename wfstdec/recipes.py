"""Recipes: folders of all that a graph is made of, and the one that is shipped.

    recipe = find_recipe()                             # the shipped one
    graph = build_or_load(recipe, "normal")            # built once, then kept there
    decoder = WfstDecoder(graph, OPTIONS)

A recipe has `tokens.txt`, `lexicon.txt.gz` and `lm.arpa.gz`; the shipped one also has
`logprobs.npz` and `refs.txt` of 40 utterances, and `boosts.txt` for some names in them.
"""

import hashlib
import logging
import os
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wfstdec.errors import FormatError
from wfstdec.fst.tlg import build_graph
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.wfst.options import WfstOptions

RECIPE = Path("graphs") / "librispeech_demo"
"""The shipped recipe, from the root of a checkout or of the installed files."""
SEPARATOR = "<wb>"
"""The token between words in recipes."""
OPTIONS = WfstOptions(beam=13.0, max_active=7000, lm_scale=0.8)
"""How the demo searches the shipped recipe's graph."""

_PACKAGE = Path(__file__).parent
_log = logging.getLogger("wfstdec.build")


def find_recipe(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a recipe; None looks for the shipped one.

    That is in the checkout that the package runs from, or else in the installation.
    """
    installed = Path(sysconfig.get_path("data")) / "share" / "wfstdec" / RECIPE
    places = [Path(folder)] if folder else [_PACKAGE.parent / RECIPE, installed]
    for place in places:
        if (place / "tokens.txt").is_file():
            return place
    listed = " or ".join(repr(str(place)) for place in places)
    raise FormatError(f"no tokens.txt in {listed}, expected the folder of a recipe")


def build_or_load(
    recipe: Path, topology: str = "normal", *, progress: bool = False
) -> PackedGraph:
    """The graph of a recipe: as kept in its folder if it is of the same making.

    It is built again when the recipe or anything in this package has changed; where
    the folder cannot be written to, it is not kept, and the log says so.
    """
    names = {"tokens": "tokens.txt", "lexicon": "lexicon.txt.gz", "lm": "lm.arpa.gz"}
    inputs: dict[str, Any] = {part: recipe / name for part, name in names.items()}
    path = recipe / f"graph_{topology}_{_digest(inputs.values())}.npz"
    if path.exists():
        _log.info("built before: %s", path.name)
        return load_graph(path)
    how: Any = {"topology": topology, "separator": SEPARATOR, "progress": progress}
    graph = build_graph(**inputs, **how)
    try:
        for outdated in recipe.glob(f"graph_{topology}_*.npz"):
            outdated.unlink()
        graph.save(path)
    except (FormatError, OSError) as error:  # only root may change an installation
        _log.warning("the graph is not kept: %s", error)
    return graph


def _digest(inputs: Iterable[Path]) -> str:
    """Hash the inputs and all our sources, with their places in the package."""
    digest = hashlib.blake2b(digest_size=6)
    for path in inputs:
        digest.update(path.read_bytes())
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
