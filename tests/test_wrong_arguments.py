"""Wrong arguments of public functions: each works, or is an error of the package."""

import ast
import io  # noqa: F401 (in WRONG)
import warnings
from pathlib import Path  # noqa: F401 (in WRONG)

import numpy as np  # noqa: F401 (in WRONG)
import pytest
from cli_files import TOKENS, logprobs_of, write_files

import wfstdec
from wfstdec.errors import WfstdecError

WRONG = """
None; 7; -3; 0.5; float("nan"); True; "no such thing"; ""; b"ab"; []; [None]
[["a"], [1.0]]; ["a", "a b"]; {"a": 1, 2: None}; {1, "a"}; (1, "a"); object(); len; dict
np.float32(2); np.array(3); np.arange(3); np.array([None, "a"], object)
io.BytesIO(b"a"); (x for x in ("a", None)); Path("no", "file"); Path(); table
"""
CALLS = """
wfstdec.spelling_lexicon(words=["ab"], tokens=TOKENS, separator=1,
    sentencepiece_model=no_model, skip=True)
wfstdec.build_lm(arpa="lm.arpa", words=("<eps>", "ab"), tokens=None, lexicon=None,
    separator="auto")
wfstdec.NgramLM.from_arpa(arpa="lm.arpa", labels=("<eps>", "ab"), unk_cost=1.0,
    nemo_tokens=False)
wfstdec.build_graph(tokens=TOKENS, lexicon="lexicon.txt", lm="lm.arpa", blank=0,
    grammar=None, topology="normal", unk_cost=1.0, engine="kaldifst", separator="<wb>",
    separator_optional=False, open_vocabulary=None)
wfstdec.WfstDecoder(graph=graph, options=None, frame_shift_s=0.02, threads=1,
    backend="cpu", g2p=None, exact_boosts=False)
wfstdec.TrieDecoder(tokens=TOKENS, lexicon={"ab": ["a b"]}, lm="lm.arpa", unk_cost=1.0,
    words=("<eps>", "ab"), separator="<wb>", separator_optional=False, options=None,
    open_vocabulary=wfstdec.OpenVocabulary(1.0, 0.5), backend="cpu", blank=0, threads=1,
    g2p=None, exact_boosts=False, frame_shift_s=0.02)
wfstdec.GreedyDecoder(tokens=TOKENS, separator="<wb>", lm=None, options=None, blank=0,
    frame_shift_s=0.02, threads=1, backend="cpu")
wfstdec.ForcedAligner(tokens=TOKENS, lexicon={"ab": ["a b"]}, separator="<wb>", blank=0,
    separator_optional=False, silence=None, options=None, frame_shift_s=0.02)
wfstdec.rescore_texts(lists=lists, log_probs=lambda texts: [0.0] * len(texts),
    lm_scale=1.0, graph_weight=0.5, acoustic_scale=1.0)
decoder.decode(logprobs=ROWS, lengths=None, boosts={"ab": 1.0}, confidence=True,
    posterior_scale=1.0)
batch.align_file(aligner=aligner, logprobs="x.npz", ref="ref.txt", output="o.txt",
    format="text")
batch.decode_file(decoder=decoder, logprobs="x.npz", output="o.txt", boosts=None,
    format="text", nbest=1)
batch.rescore_file(lattices="lattices.npz", output="o.txt", lm="lm.arpa", unk_cost=1.0,
    lm_scale=1.0, word_insertion=0.0, format="text")
doctor.examine(tokens="tokens.txt", logprobs="x.npz", lexicon=None, lm=None, blank=0,
    ref="ref.txt", separator="<wb>", frame_shift_s=0.02)
wfstdec.token_table(names=TOKENS, blank=0); wfstdec.read_arpa(source="lm.arpa")
wfstdec.read_tokens(path="tokens.txt", blank=0); wfstdec.load_lm(path="lm")
wfstdec.TokenTable(names=("-", "a"), blank=0); wfstdec.KenlmModel(path="lm.arpa")
wfstdec.read_lexicon(path="lexicon.txt", tokens=table, separator=1, has_probs=False)
wfstdec.load_graph(path="graph.npz"); wfstdec.load_model(model=no_model)
wfstdec.from_openfst(path="graph.fst", tokens=table, words=graph.words, blank=0)
wfstdec.to_openfst(graph=graph, path="out.fst", form="text")
wfstdec.Formatter(itn="en", punctuation=None, case=True, display=["iPhone"])
wfstdec.G2p(source={"x": "a b"}, phones=None)
wfstdec.BoostEntry(text="x", pronunciations=["a b"], bonus=1.0)
wfstdec.PhraseOptions(c0=1.0, beta=1.0, uniform=False)
wfstdec.Normalizer(ignore_case=True, normalize=True, characters=False)
wfstdec.Endpointer(frame_shift_s=0.02, rules=(wfstdec.EndpointRule(),))
wfstdec.EndpointRule(silence_s=1.0, max_final_cost=2.0, needs_speech=True, length_s=1.0)
wfstdec.OpenVocabulary(word_cost=1.0, token_cost=1.0)
wfstdec.SegmentReader(posterior_scale=1.0); wfstdec.lattice_hypotheses(lattice=lat, n=2)
wfstdec.Transcriber(model=no_model, decoder=decoder, cuts=None, audio=None, workers=1)
wfstdec.TransducerDecoder(model=no_model, lm=None)
wfstdec.AttentionDecoder(model=no_model, lm=None)
greedy.decode(logprobs={"a": ROWS}, lengths=[4])
decoder.decode_nbest(logprobs=ROWS, lengths=None, boosts={"ab"})
decoder.decode_lattice(logprobs=ROWS, lengths=None, boosts=None, lattice_beam=2.0)
decoder.compile_boosts(boosts=[{"text": "ab", "bonus": 1.0}])
decoder.phrase_compiler(options=None, unit="word", boundary=None)
decoder.phrase_compiler().compile(phrases=["ab c"]); decoder.sessions(lattices=False)
decoder.is_rare(word="ab", commonest=1)
decoder.sessions().open(boosts=None, session="s", offset_s=0.0)
opened.advance(chunks={"s": ROWS}); opened.partials(sessions=["s"])
opened.close(session="s")
aligner.align(logprobs=ROWS, text="ab c"); aligner.check_words(words=["ab"])
batch.BoostLists(words={"ab": 1.0}, phrases=None, compiler=None)
wfstdec.io.open_logprobs(path="x.npz"); wfstdec.io.read_boosts(path="ref.txt")
wfstdec.io.read_phrases(path="ref.txt"); wfstdec.io.read_text(path="ref.txt")
wfstdec.io.write_text(path="o.txt", transcripts={"a": ["ab"]})
wfstdec.io.result_writer(format="text", nbest=1, subtitles=None, formatter=None)
wfstdec.io.write_lattice_fst(lattice=lat, path="l.fst")
lattice.minimum_bayes_risk(lattice=lat, scale=1.0, n=2)
lattice.nbest_paths(lattice=lat, n=2, max_steps=100)
lattice.rescored(lattice=lat, lm=lm, lm_scale=1.0, lattice_beam=2.0, history_beam=5.0)
lattice.save_lattices(path="l.npz", lattices={"a": lat})
lattice.word_confidences(lattice=lat, scale=1.0)
metrics.count_errors(reference=["a"], hypothesis=["b"])
metrics.score_texts(references={"a": ["ab"]}, hypotheses={"a": ["ab"]})
metrics.wer_gain(errors=np.arange(2), others=np.arange(2), words=np.arange(2) + 1)
recipes.find_recipe(folder=None)
transcription.find_recordings(places=[])
compare.read_speech(logprobs="x.npz", references="ref.txt", limit=2, frame_shift_s=0.02)
compare.parse_grid(texts=["beam=1,2"], known=["beam"])
compare.score_confidences(references={"a": ["ab"]},
    hypotheses={"a": [("c", 0.5), ("ab", 1)]})
"""
PARSED = [statement.value for statement in ast.parse(CALLS).body]
ROWS = logprobs_of("a b | c")


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """What CALLS name, in a folder with their files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(write_files(tmp_path_factory.mktemp("arguments")))
        tokens = {"tokens": TOKENS, "separator": "<wb>"}
        graph = wfstdec.build_graph(**tokens, lexicon="lexicon.txt", lm="lm.arpa")
        decoder = wfstdec.WfstDecoder(graph, wfstdec.WfstOptions(nbest=2), "cpu")
        lm = wfstdec.build_lm("lm.arpa", words=graph.words)
        lm.save("lm")
        graph.save("graph.npz")
        wfstdec.to_openfst(graph, "graph.fst")
        [lat] = decoder.decode_lattice(ROWS)
        wfstdec.lattice.save_lattices("lattices.npz", {"a": lat})
        lists, table = decoder.decode_nbest(ROWS), graph.tokens
        opened, no_model = decoder.sessions(), None
        opened.open(session="s")
        greedy = wfstdec.GreedyDecoder(**tokens)
        aligner = wfstdec.ForcedAligner(**tokens, lexicon="lexicon.txt")
        modules = "batch compare doctor lattice metrics recipes transcription"
        parts = {name: getattr(wfstdec, name) for name in modules.split()}
        yield {**globals(), **locals(), **parts}


@pytest.mark.parametrize("call", PARSED, ids=[ast.unparse(c.func) for c in PARSED])
def test_wrong_arguments_are_errors_of_the_package(call, objects):
    name = ast.unparse(call.func)
    if name in ("wfstdec.TransducerDecoder", "wfstdec.AttentionDecoder"):
        pytest.importorskip("torch")
    function = eval(name, objects)
    right = {one.arg: ast.unparse(one.value) for one in call.keywords}
    raw: list[str] = []
    if "no_model" not in right.values():
        function(**{one: eval(text, objects) for one, text in right.items()})
    for name in right.keys() - {"log_probs"}:  # which the caller calls too
        for wrong in WRONG.strip().replace("\n", ";").split(";"):
            given = {**right, name: wrong.strip()}
            values = {one: eval(text, objects) for one, text in given.items()}
            try:
                with warnings.catch_warnings(action="ignore"):
                    function(**values)
            except WfstdecError:
                pass
            except Exception as error:
                raw.append(f"{name}={wrong}: {type(error).__name__}: {error}")
    assert not raw
