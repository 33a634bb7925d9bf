"""A Python library as people expect it: copies, reprs, plain types."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from arpa_texts import arpa_of
from cli_files import TOKENS, logprobs_of, write_files
from processes import python

import wfstdec
from wfstdec.errors import FormatError, OptionError, SessionError, TokenTableError
from wfstdec.lattice import word_confidences
from wfstdec.search.hypothesis import CONFIDENCES

KINDS = ("wfst", "trie", "tokens", "greedy", "reference")
SAID = "a b | c"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def decoders(files):
    tokens, lm = files / "tokens.txt", files / "lm.arpa"
    words = {"lexicon": files / "lexicon.txt", "separator": "<wb>", "lm": lm}
    words["unk_cost"] = 5.0
    graph = wfstdec.build_graph(tokens=tokens, **words)
    bare = {"tokens": tokens, "separator": "<wb>"}
    return {
        "wfst": wfstdec.WfstDecoder(graph, wfstdec.WfstOptions(lm_scale=0.5)),
        "trie": wfstdec.TrieDecoder(tokens=tokens, **words, threads=2),
        "tokens": wfstdec.TrieDecoder(**bare),
        "greedy": wfstdec.GreedyDecoder(**bare),
        "reference": wfstdec.WfstDecoder(graph, backend="reference"),
    }


def batch(tokens=SAID):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(12, len(TOKENS))).astype(np.float32)
    x = logprobs_of(tokens)
    return [x + noise[: len(x)], x[:5]]


def test_a_decoder_works_in_a_process_that_was_spawned(decoders, tmp_path):
    expected = [hyp.to_dict() for hyp in decoders["trie"].decode(batch())]
    with (tmp_path / "given").open("wb") as file:
        pickle.dump((decoders["trie"], batch()), file)
    code = (
        "import json, pickle, sys\n"
        "decoder, batch = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(json.dumps([hyp.to_dict() for hyp in decoder.decode(batch)]))\n"
    )
    run = python("-c", code, tmp_path / "given", check=True)
    assert json.loads(run.stdout) == expected


def test_graphs_and_language_models_can_be_pickled(decoders, files):
    graph = decoders["wfst"].graph
    for made in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert made.fingerprint == graph.fingerprint
        assert made.vocabulary.fingerprint == graph.vocabulary.fingerprint
    lm = wfstdec.NgramLM.from_arpa(files / "lm.arpa", graph.words)
    for made in (pickle.loads(pickle.dumps(lm)), copy.deepcopy(lm)):
        assert made.fingerprint == lm.fingerprint
        assert not any(array.flags.writeable for array in made.automaton)


def test_aligners_and_compilers_of_phrases_can_be_pickled(decoders, files):
    aligner = wfstdec.ForcedAligner(
        files / "tokens.txt", files / "lexicon.txt", separator="<wb>"
    )
    [logprobs, _] = batch()
    made = pickle.loads(pickle.dumps(aligner))
    assert made.align(logprobs, "ab c") == aligner.align(logprobs, "ab c")
    for kind in ("wfst", "tokens"):
        compiler = decoders[kind].phrase_compiler()
        made = pickle.loads(pickle.dumps(compiler)).compile(["ab c"])
        assert made.fingerprint == compiler.compile(["ab c"]).fingerprint


def test_reprs_are_short(decoders, files):
    decoder = decoders["wfst"]
    [hyp, _] = decoder.decode(batch())
    sessions = decoder.sessions()
    sessions.advance({sessions.open(session="call"): batch()[0]})
    tokens = wfstdec.read_tokens(files / "tokens.txt")
    graph, trie = decoder.graph, decoders["trie"]
    held = [
        *(*decoders.values(), graph, graph.vocabulary, graph.info, graph.oov_exits),
        *(tokens, trie.lm, trie.lexicon),
        *(hyp, decoder.decode_lattice(batch())[0], sessions, sessions.partial("call")),
        *(
            decoder.compile_boosts(["b", wfstdec.BoostEntry("cab", ["c a b"])]),
            decoder.phrase_compiler(),
        ),
        *(decoder.phrase_compiler().compile(["ab c"]), wfstdec.G2p("spelling")),
    ]
    for thing in held:
        shown = repr(thing)
        # A graph that is there as rows of LG shows itself as the public class.
        public = next(c for c in type(thing).__mro__ if not c.__name__.startswith("_"))
        assert public.__name__ in shown and len(shown) < 400, shown
        assert " at 0x" not in shown and "array(" not in shown
    assert repr(sessions) == "Sessions(1 open: 'call')"
    assert repr(hyp).startswith(f"Hypothesis({hyp.text!r}, {len(hyp.words)} words, ")
    assert "WfstOptions(lm_scale=0.5)" in repr(decoder)


def test_hypotheses_become_dicts(decoders):
    [hyp, _] = decoders["wfst"].decode(batch(), confidence=True)
    made = json.loads(json.dumps(hyp.to_dict()))
    assert made == hyp.to_dict()
    assert made["text"] == hyp.text and made["total_cost"] == hyp.total_cost
    assert [word["word"] for word in made["words"]] == hyp.text.split()
    for word, held in zip(made["words"], hyp.words, strict=True):
        assert word["start_s"] == held.start_s and word["end_s"] == held.end_s
        assert word["confidence"] == pytest.approx(held.confidence, abs=1e-6)
    [plain, _] = decoders["wfst"].decode(batch())
    assert "confidence" not in plain.to_dict()["words"][0]


def test_seconds_are_rounded(decoders):
    """Frame 3 of 0.2 s is at 0.6 s, not at 0.6000000000000001."""
    slow = wfstdec.WfstDecoder(decoders["wfst"].graph, frame_shift_s=0.2)
    [hyp] = slow.decode(np.concatenate([batch()[0]] * 8))
    timed = *hyp.words, *hyp.tokens
    times = [t for one in timed for t in (one.start_s, one.end_s)]
    frames = [t for one in timed for t in (one.start_frame, one.end_frame)]
    assert times == [round(frame * 0.2, 6) for frame in frames]
    assert times != [frame * 0.2 for frame in frames]


def test_notebooks_show_tables(decoders):
    [hyp, _] = decoders["wfst"].decode(batch(), confidence=True)
    table = hyp._repr_html_()
    assert table.count("<tr>") == 1 + len(hyp.words)
    assert "<th>confidence</th>" in table
    word = hyp.words[-1]
    assert f"<td>{word.text}</td><td>{word.start_s:.2f}</td>" in table
    assert f"<td>{word.confidence:.2f}</td>" in table
    graph = decoders["wfst"].graph
    table = graph._repr_html_()
    for name, value in graph.describe().items():
        assert f"<td>{name}</td>" in table
        assert value.split(",")[0].replace("'", "&#x27;").split("<")[0] in table
    assert "&lt;wb&gt;" in table and "<wb>" not in table


LISTED = ["<pad>", "|", "a", "b"]


class Tokenizer:
    """Tokenizer like those of Transformers."""

    pad_token = "<pad>"

    def get_vocab(self):
        return {name: i for i, name in reversed(list(enumerate(LISTED)))}


class Pieces:
    """Imitation of a SentencePieceProcessor."""

    def get_piece_size(self):
        return 3

    def id_to_piece(self, i):
        return ["<unk>", "\u2581a", "b"][i]


def test_token_tables_of_lists_dicts_tokenizers_and_json(tmp_path):
    expected = wfstdec.token_table(LISTED)
    assert expected.names == tuple(LISTED) and expected.blank == 0
    assert wfstdec.token_table({"|": 1, "b": 3, "a": 2, "<pad>": 0}) == expected
    assert wfstdec.token_table(Tokenizer()) == expected
    (tmp_path / "list.json").write_text(json.dumps(LISTED))
    assert wfstdec.read_tokens(tmp_path / "list.json") == expected
    for tokens in (LISTED, Tokenizer(), tmp_path / "list.json", expected):
        assert wfstdec.GreedyDecoder(tokens=tokens).tokens == expected
    pieces = wfstdec.token_table(Pieces(), 3)
    assert pieces.names == ("<unk>", "\u2581a", "b", "<blank>") and pieces.blank == 3
    theirs = wfstdec.token_table([" ", "a", ""])  # as pyctcdecode has them
    assert theirs.names == (" ", "a", "<blank>") and theirs.blank == 2
    with pytest.raises(TokenTableError, match="no id 1"):
        wfstdec.token_table({"<pad>": 0, "a": 2})
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(TokenTableError, match="or a list of tokens"):
        wfstdec.read_tokens(tmp_path / "other.json")


@pytest.mark.parametrize("blank", [-1, "-1", 3, "b"])
def test_the_last_token_is_the_blank(blank):
    assert wfstdec.token_table(LISTED, blank).blank == 3
    with pytest.raises(TokenTableError, match="or -1 for the last"):
        wfstdec.token_table(LISTED, -2)


def test_the_separator_of_hugging_face(caplog):
    """`|`, where none is given; one message for a table; None turns it off."""
    unseen = [*LISTED, "unseen"]
    for _ in range(2):
        assert wfstdec.GreedyDecoder(tokens=unseen).separator == 1
    assert caplog.text.count("'|' is the token between words") == 1
    assert wfstdec.GreedyDecoder(tokens=unseen, separator=None).separator is None
    assert wfstdec.GreedyDecoder(tokens=unseen, separator="a").separator == 2
    others = ["<blank>", *LISTED[1:]]
    assert wfstdec.GreedyDecoder(tokens=others).separator is None


def test_the_separator_of_hugging_face_in_graphs_and_tries(tmp_path):
    (tmp_path / "lexicon.txt").write_text("ab a b |\nb b\n")
    (tmp_path / "lm.arpa").write_text(arpa_of("-1 <s>; -1 </s>; -0.5 ab; -0.5 b"))
    words = {"lexicon": tmp_path / "lexicon.txt", "lm": tmp_path / "lm.arpa"}
    for off in (True, False):
        chosen = {"separator": None} if off else {}
        if off:  # then it is a token of a word
            words["lexicon"] = wfstdec.read_lexicon(
                tmp_path / "lexicon.txt", wfstdec.token_table(LISTED)
            )
        graph = wfstdec.build_graph(tokens=LISTED, **words, **chosen)
        trie = wfstdec.TrieDecoder(tokens=LISTED, **words, **chosen)
        expected = () if off else (1,)
        assert graph.vocabulary.separators == trie.vocabulary.separators == expected
        words["lexicon"] = tmp_path / "lexicon.txt"
    lexicon = wfstdec.read_lexicon(
        tmp_path / "lexicon.txt", wfstdec.token_table(LISTED)
    )
    assert wfstdec.TrieDecoder(tokens=LISTED, lexicon=lexicon).separator is None
    silent = wfstdec.build_graph(tokens=LISTED, **words, silence="|")
    assert not silent.vocabulary.separated


@pytest.mark.parametrize("kind", KINDS)
def test_one_array_is_one_utterance(kind, decoders):
    decoder, [x, _] = decoders[kind], batch()
    assert decoder.decode(x) == decoder.decode([x]) == decoder.decode(x[None])


@pytest.mark.parametrize("kind", ["wfst", "trie", "reference"])
def test_confidences_by_an_argument(kind, decoders):
    """Confidences are those of the words of the lattice; all else is as without."""
    decoder = decoders[kind]
    if kind == "reference":
        decoder = decoder.with_options(beam=8.0)
    plain, sure = decoder.decode(batch()), decoder.decode(batch(), confidence=True)
    lattices = decoder.decode_lattice(batch())
    for one, other, lattice in zip(plain, sure, lattices, strict=True):
        assert all(0 <= word.confidence <= 1 for word in other.words)
        nothing = dict.fromkeys(CONFIDENCES)
        without = [word._replace(**nothing) for word in other.words]
        assert list(one.words) == without and one.total_cost == other.total_cost
        found = word_confidences(lattice).confidences
        assert [word.confidence for word in other.words] == list(found)
    [unsure, _] = decoder.decode(batch(), confidence=True, posterior_scale=0.1)
    assert unsure.words[0].confidence < sure[0].words[0].confidence


def test_confidences_that_nothing_tells(decoders):
    with pytest.raises(OptionError, match="GreedyDecoder records no lattices"):
        decoders["greedy"].decode(batch(), confidence=True)
    with pytest.raises(OptionError, match="posterior_scale=-1"):
        decoders["wfst"].decode(batch(), confidence=True, posterior_scale=-1)


@pytest.mark.parametrize("kind", ["wfst", "trie"])
def test_sessions_begin_at_an_offset(kind, decoders):
    sessions = decoders[kind].sessions()
    [x, _] = batch()
    plain, late = sessions.open(), sessions.open(offset_s=100.1)
    sessions.advance({plain: x, late: x})
    first, second = sessions.partial(plain), sessions.partial(late)
    assert [round(word.start_s + 100.1, 6) for word in first.words] == [
        word.start_s for word in second.words
    ]
    one, other = sessions.close(plain), sessions.close(late)
    assert one.text == other.text and one.total_cost == other.total_cost
    for timed, later in ((one.words, other.words), (one.tokens, other.tokens)):
        assert [round(item.start_s + 100.1, 6) for item in timed] == [
            item.start_s for item in later
        ]
        assert [item.start_frame for item in timed] == [
            item.start_frame for item in later
        ]
    with pytest.raises(OptionError, match="offset_s=nan, expected seconds"):
        sessions.open(offset_s=float("nan"))


def test_n_best_lists_of_sessions_begin_at_an_offset(decoders):
    sessions = decoders["wfst"].sessions(lattices=True)
    late = sessions.open(offset_s=5.0)
    sessions.advance({late: batch()[0]})
    found = sessions.close_nbest(late)
    assert found and found.is_exact
    assert all(word.start_s >= 5.0 for hyp in found for word in hyp.words)


def test_the_error_of_a_closed_session_speaks_of_a_session(decoders):
    sessions = decoders["wfst"].sessions()
    sessions.open(session="other")
    sessions.close(sessions.open(session="call"))
    with pytest.raises(SessionError) as caught:
        sessions.partial("call")
    text = str(caught.value)
    assert text.startswith("session 'call': is not open") and "'other'" in text
    assert "utterance" not in text
    with pytest.raises(SessionError, match="session 'other': is open already"):
        sessions.open(session="other")


def test_types_are_told():
    """PEP 561: type checkers of users read ours."""
    assert (Path(wfstdec.__file__).parent / "py.typed").is_file()


def test_a_decoder_takes_the_file_of_a_graph(decoders, tmp_path):
    decoder = decoders["wfst"]
    decoder.graph.save(tmp_path / "graph.npz")
    for path in (tmp_path / "graph.npz", str(tmp_path / "graph.npz")):
        again = wfstdec.WfstDecoder(path, decoder.options)
        assert again.graph.fingerprint == decoder.graph.fingerprint
    with pytest.raises(FormatError, match="nowhere.npz"):
        wfstdec.WfstDecoder(tmp_path / "nowhere.npz")
