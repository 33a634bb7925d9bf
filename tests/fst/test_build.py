"""Whole graphs: a toy by hand, every case against the oracle, traps, errors."""

import logging
import re
import subprocess
import sys

import numpy as np
import pytest
from fst_tools import least_cost

import wfstdec
from wfstdec import read_arpa, token_table
from wfstdec.errors import (
    ArpaError,
    FormatError,
    GrammarError,
    GraphError,
    LexiconError,
    OptionError,
    TokenTableError,
    WfstdecError,
)
from wfstdec.fst import grammar
from wfstdec.fst.openfst import read_fst, write_fst
from wfstdec.fst.topology import TOPOLOGIES

LN10 = np.log(10)
TOKENS = "<blank>\n|\ne\nh\nl\no\ny\ns\n"
LEXICON = "hello h e l l o\nyes y e s\nyes y e h\nlow l o\n"
ARPA = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-99 <s> -0.5
-1 </s>
-1 hello -0.25
-0.5 yes -0.125
-2 low

\\2-grams:
-0.25 <s> hello
-0.5 hello yes
-0.125 yes </s>

\\end\\
"""


@pytest.fixture
def files(tmp_path):
    """Paths by the names of `build_graph`'s arguments."""
    paths = {}
    for name, text in (("tokens", TOKENS), ("lexicon", LEXICON), ("lm", ARPA)):
        paths[name] = tmp_path / f"{name}.txt"
        paths[name].write_text(text, encoding="utf-8")
    return paths


@pytest.fixture
def build(files, tmp_path):
    """Builds a graph of a grammar: its text, or an object of another kind."""

    def make(grammar, **options):
        if isinstance(grammar, str):
            (tmp_path / "g.txt").write_text(grammar)
            grammar = tmp_path / "g.txt"
        arguments = {"tokens": files["tokens"], "lexicon": files["lexicon"]} | options
        return wfstdec.build_graph(**arguments, grammar=grammar)

    return make


def frames(graph, spelled):
    """Log-probs 0 for the given tokens, one a frame (`-` is the blank), -inf else."""
    names = ["<blank>" if token == "-" else token for token in spelled]
    x = np.full((len(spelled), len(graph.tokens)), -np.inf)
    x[np.arange(len(spelled)), [graph.tokens.index(name) for name in names]] = 0.0
    return x


def cost_of(graph, names):
    return least_cost(graph, frames(graph, names)) / LN10


def test_a_graph_by_hand(files):
    graph = wfstdec.build_graph(**files, separator="|")
    assert graph.words == ("<eps>", "hello", "yes", "low")
    assert graph.topology == "normal"
    assert graph.vocabulary.separators == (1,)
    assert graph.info.marks_repeats
    ways = graph.vocabulary.pronunciations
    assert ways.word.tolist() == [1, 2, 2, 3]
    assert ways.tokens[ways.splits[1] : ways.splits[2]].tolist() == [6, 2, 3]  # y e h
    assert cost_of(graph, "hel-lo|yes") == pytest.approx(0.25 + 0.5 + 0.125)
    assert cost_of(graph, "||-hheel-loo--|yeh|") == pytest.approx(0.875)
    assert cost_of(graph, "hello|yes") == np.inf
    assert cost_of(graph, "hel-loyes") == np.inf


def test_a_word_without_a_bigram_begins_a_sentence(files):
    """The trap of a topology without symbols at its start state."""
    for topology in TOPOLOGIES:
        graph = wfstdec.build_graph(**files, separator="|", topology=topology)
        assert cost_of(graph, "lo|") == pytest.approx(0.5 + 2 + 1), topology


def test_the_last_separator_may_be_left_out(files):
    """Nothing is between the last word and the back-off before `</s>`."""
    for topology in TOPOLOGIES:
        graph = wfstdec.build_graph(**files, separator="|", topology=topology)
        for names in ("hel-lo", "hel-lo|", "|hel-lo|-|"):
            expected = 0.25 + 0.25 + 1
            assert cost_of(graph, names) == pytest.approx(expected), (topology, names)


def test_words_outside_the_model_are_dropped_and_reported(files, caplog):
    files["lexicon"].write_text(LEXICON + "hey h e y\nholy h o l y\n")
    graph = wfstdec.build_graph(**files)
    assert "2 of 5 lexicon words are not in the language model" in caplog.text
    assert "'hey', 'holy'" in caplog.text
    assert graph.words == ("<eps>", "hello", "yes", "low")
    assert cost_of(graph, "hey") == np.inf


def test_words_outside_the_model_are_kept_at_the_unk_cost(files, caplog):
    files["lexicon"].write_text(LEXICON + "hey h e y\n")
    graph = wfstdec.build_graph(**files, unk_cost=3 * LN10)
    assert graph.words[-1] == "hey"
    assert cost_of(graph, "hey") == pytest.approx(0.5 + 3 + 1)
    assert "dropped" not in caplog.text


def test_every_stage_is_logged(files, caplog):
    with caplog.at_level(logging.INFO, "wfstdec.build"):
        graph = wfstdec.build_graph(**files, separator="|")
    stages = [r.getMessage().split(":")[0] for r in caplog.records]
    assert stages == ["read", "G", "det(L o G)", "min(det(L o G))", "T o LG", "pack"]
    size = f"{graph.num_states} states, {graph.num_arcs} arcs"
    assert f"pack: {size}, 0." in caplog.text
    assert re.search(r"s, peak memory \d+\.\d\d GB", caplog.text)


def test_a_language_model_needs_no_fst_library(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaldifst", None)
    graph = wfstdec.build_graph(**files)
    assert cost_of(graph, "hel-loyes") == pytest.approx(0.875)


def test_objects_do_as_well_as_files(files):
    tokens = token_table(TOKENS.split())
    lexicon = wfstdec.text.lexicon.read_lexicon(files["lexicon"], tokens)
    objects = {"tokens": tokens, "lexicon": lexicon, "lm": read_arpa(files["lm"])}
    graph = wfstdec.build_graph(**objects, separator="|", blank="<blank>")
    other = wfstdec.build_graph(**files, separator="|")
    assert graph.fingerprint == other.fingerprint


def test_the_decoder_needs_no_fst_library():
    """A machine with numpy, numba and a packed graph can decode."""
    code = (
        "import sys; sys.modules['kaldifst'] = sys.modules['pynini'] = None\n"
        "import wfstdec; wfstdec.WfstDecoder, wfstdec.load_graph\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


COMMANDS = """\
0 1 hello
1 2 yes 0.5
1 2 low
2 2 yes 1
2 0.25
"""


def test_a_grammar_in_text(build):
    graph = build(COMMANDS, separator="|")
    assert graph.words == ("<eps>", "hello", "yes", "low")
    cost = LN10 * cost_of(graph, "hel-lo|yes")
    assert cost == pytest.approx(0.75)
    assert LN10 * cost_of(graph, "hel-lo|lo|yes|yeh") == pytest.approx(2.25)
    assert cost_of(graph, "hel-lo") == np.inf
    assert cost_of(graph, "yes") == np.inf


def test_epsilons_of_a_grammar_are_backoffs_or_go(build):
    """An epsilon alone at a state stays, as `#0`; several are removed; costs stay."""
    backoff = "0 1 hello 0.5\n0 2 <eps> 1\n1 2 <eps> 0.25\n2 2 yes 2\n2 2 low 3\n2 0\n"
    several = backoff + "0 1 <eps> 4\n"
    for text in (backoff, several):
        graph = build(text)
        assert LN10 * cost_of(graph, "hel-lo") == pytest.approx(0.75)
        assert LN10 * cost_of(graph, "hel-loyes") == pytest.approx(2.75)
        assert LN10 * cost_of(graph, "yeslo") == pytest.approx(1 + 2 + 3)


EXTREMES = [-1, 4, 1000, 2**31 - 1, -(2**31), *np.float32([np.nan, -np.inf, -1e30])]


@pytest.mark.parametrize("form", ["const", "vector"])
def test_grammars_with_fields_out_of_range_are_refused(build, tmp_path, form):
    """Any field of a state or arc may have any value: a graph, or an error of ours."""
    text, path = tmp_path / "g.txt", tmp_path / "g.fst"
    text.write_text(COMMANDS)
    write_fst(path, read_fst(text), form)
    whole = np.fromfile(path, np.uint8)
    size = {"const": 3 * 20 + 4 * 16, "vector": 3 * 12 + 4 * 16}[form]
    refused = 0
    for at in range(len(whole) - size, len(whole), 4):
        for value in EXTREMES:
            changed = whole.copy()
            kind = "<f4" if isinstance(value, np.float32) else "<i4"
            changed[at : at + 4] = np.array([value], kind).view(np.uint8)
            changed.tofile(path)
            try:
                build(path)
            except WfstdecError:
                refused += 1
    assert refused > size


NUMBERS = ["nan", "-inf", "-Infinity", "1e30", "-1e400"]


@pytest.mark.parametrize("number", NUMBERS)
def test_costs_in_text_that_are_no_finite_numbers(build, number):
    for text in (COMMANDS.replace("0.5", number), COMMANDS.replace("0.25", number)):
        with pytest.raises(FormatError, match=rf"g.txt:\d: found .*{number}"):
            build(text)


def test_a_pynini_grammar_is_checked_too(build):
    pynini = pytest.importorskip("pynini")
    grammar = pynini.Fst()
    grammar.add_states(2)
    grammar.set_start(0).set_final(1)
    symbols = pynini.SymbolTable()
    symbols.add_symbol("<eps>")
    grammar.add_arc(0, pynini.Arc(1, symbols.add_symbol("yes"), -1e30, 1))
    grammar.set_input_symbols(symbols).set_output_symbols(symbols)
    with pytest.raises(GraphError, match="grammar: arc 0: cost -1.*, expected -1e"):
        build(grammar)


def test_two_ways_to_say_a_sentence_cost_the_less(build):
    text = "0 1 yes 2\n0 2 yes 1\n1 3 low 0\n2 3 low 3\n1 3 yes\n3\n"
    graph = build(text)
    assert LN10 * cost_of(graph, "yeslo") == pytest.approx(2)


@pytest.mark.peers
def test_a_pynini_grammar(build):
    pynini = pytest.importorskip("pynini")
    symbols = pynini.SymbolTable()
    symbols.add_symbol("<eps>")
    for word in ("hello", "yes", "low"):
        symbols.add_symbol(word)
    hello, yes, low = (
        pynini.accep(word, token_type=symbols) for word in ("hello", "yes", "low")
    )
    grammar = hello + (yes | low).plus
    with pytest.raises(GrammarError, match="no symbol table, expected one that names"):
        build(grammar)
    grammar.set_input_symbols(symbols)
    graph = build(grammar)
    assert cost_of(graph, "hel-loyeslo") == pytest.approx(0, abs=1e-6)
    assert cost_of(graph, "hel-lo") == np.inf


GRAMMAR_ERRORS = {
    "no acceptor": (
        "0 1 yes low 0\n1\n",
        "an arc turns 'yes' into 'low', expected an acceptor",
    ),
    "foreign words": (
        "0 1 nope\n1 2 yes\n2\n",
        "1 of 2 words of the grammar are not in the lexicon: 'nope'; add",
    ),
    "no sentence": ("0 1 yes\n", "the grammar accepts no sentence, expected"),
    "no way to the end": (
        "0 1 yes\n2 3 low\n3\n",
        "the grammar accepts no sentence, expected",
    ),
    "a negative cycle": (
        "0 1 <eps> -1\n1 0 <eps> 0.5\n1 1 yes\n1\n",
        "a cycle without words whose cost is negative",
    ),
    "costs that drift apart": (
        "0 1 yes\n0 2 yes\n1 1 low 1\n2 2 low 2\n1\n2\n",
        "determinizing the grammar needs more than 500 states",
    ),
}


@pytest.mark.parametrize(
    ("text", "message"), GRAMMAR_ERRORS.values(), ids=GRAMMAR_ERRORS
)
def test_grammars_that_cannot_serve(build, text, message, monkeypatch):
    monkeypatch.setattr(grammar, "_LEAST_STATE_LIMIT", 500)  # in no time
    with pytest.raises(GrammarError, match=message):
        build(text)


def test_a_cycle_of_epsilons_that_costs_nothing_is_removed(build):
    graph = build("0 1 <eps> 0\n1 0 <eps> 0\n1 1 yes 0.5\n1\n")
    assert LN10 * cost_of(graph, "yesyes") == pytest.approx(1)


def test_a_grammar_of_another_kind(build):
    with pytest.raises(GrammarError, match="grammar is a int, expected a path or"):
        build(3)


OPTION_ERRORS = {
    "topology": ({"topology": "x"}, OptionError, "topology 'x', expected one of"),
    "separator": (
        {"separator": "<wb>"},
        TokenTableError,
        "separator: token '<wb>', which the token table does not have",
    ),
    "both fillers": (
        {"separator": "|", "silence": "s"},
        OptionError,
        "both a separator and a silence",
    ),
    "the blank between words": (
        {"separator": "<blank>"},
        LexiconError,
        "separator is '<blank>', expected one of the V=8 tokens and not the blank",
    ),
    "a silence that is blank": (
        {"silence": "<blank>"},
        OptionError,
        "the blank '<blank>' as separator or silence, expected another token",
    ),
    "no separator to leave out": (
        {"separator_optional": True},
        OptionError,
        "separator_optional without a separator, expected one",
    ),
    "no finite cost": (
        {"unk_cost": float("nan")},
        OptionError,
        "unk_cost nan, expected a finite number of nats",
    ),
    "no probability": (
        {"silence": "|", "silence_prob": 0},
        OptionError,
        "silence probability 0, expected one above 0 and below 1",
    ),
    "two models": (
        {"grammar": "g.txt"},
        OptionError,
        "both lm and grammar are given, expected one of them",
    ),
    "no model": (
        {"lm": None},
        OptionError,
        "neither lm nor grammar is given, expected one of them",
    ),
    "blank": ({"blank": "nope"}, TokenTableError, "nope"),
}


@pytest.mark.parametrize(
    ("options", "kind", "message"), OPTION_ERRORS.values(), ids=OPTION_ERRORS
)
def test_wrong_options(files, options, kind, message):
    with pytest.raises(kind, match=message):
        wfstdec.build_graph(**(files | options))


def test_a_blank_that_the_table_does_not_have_as_its_own(files):
    tokens = token_table(TOKENS.split())
    with pytest.raises(OptionError, match="blank='h' with a token table whose blank"):
        wfstdec.build_graph(**(files | {"tokens": tokens}), blank="h")


def test_unk_cost_with_a_grammar(build):
    with pytest.raises(OptionError, match="unk_cost with a grammar of your own"):
        build(COMMANDS, unk_cost=5.0)


def test_no_word_in_common(files):
    files["lexicon"].write_text("HELLO h e l l o\nYES y e s\n")
    with pytest.raises(LexiconError, match="none of the 2 lexicon words is in the lan"):
        wfstdec.build_graph(**files)


def test_sentence_marks_in_the_lexicon(files):
    files["lexicon"].write_text(LEXICON + "</s> h\n")
    with pytest.raises(LexiconError, match="'</s>' is a word of the lexicon"):
        wfstdec.build_graph(**files)


def test_a_model_without_a_start(files):
    files["lm"].write_text(ARPA.replace("-99 <s> -0.5\n", "-99 other\n"))
    with pytest.raises(ArpaError):
        wfstdec.build_graph(**files)
