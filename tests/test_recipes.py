"""The shipped recipe is found, and decoders take what it has."""

from wfstdec import WfstDecoder, build_graph, recipes


def test_the_shipped_recipe_is_found():
    names = {path.name for path in recipes.find_recipe().iterdir()}
    assert {"logprobs.npz", "refs.txt", "boosts.txt", "README.md"} <= names


def test_its_inputs_are_those_of_graphs_and_decoders():
    inputs = recipes.inputs_of(recipes.find_recipe())
    decoder = WfstDecoder(**inputs, options=recipes.OPTIONS)
    graph = build_graph(**inputs, minimize=False)
    assert decoder.graph.fingerprint == graph.fingerprint
