"""Sessions of hours keep little; what changes no result: `tests/conformance`."""

import naive_search_cases
import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice
from text_graphs import text_graph

from wfstdec import TrieDecoder, TrieOptions, WfstDecoder
from wfstdec.trie.cpu import arrays as trie_records
from wfstdec.wfst.gpu.backend import DeviceBackend

pytestmark = pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning")


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_silence_adds_nothing_to_a_session(backend):
    """Two histories stay side by side through it: both are kept, and no more."""
    graph = text_graph("0 1 a A 0\n0 2 b B 0.1\n1 1 _ - 0\n2 2 _ - 0\n1 0\n2 0")
    decoder = WfstDecoder(graph, backend="cpu")
    if backend == "emulated":
        decoder._backend = DeviceBackend(graph, EmulatedDevice(32), first_capacity=32)
    sessions = decoder.sessions()
    session, kept = sessions.open(), set()
    search = sessions._sessions[session].search
    sessions.advance({session: np.log(np.array([[0.2, 0.4, 0.4]], np.float32))})
    silence = np.log(np.array([[0.9, 0.05, 0.05]] * 50, np.float32))
    for _ in range(40):
        sessions.advance({session: silence})
        partial = sessions.partial(session)
        assert (partial.text, partial.num_settled) == ("A", 0)
        assert sessions.partial(session) is partial
        if backend == "cpu":
            nodes = int(search.state.value.progress["nodes"][0]) - 1
            history = search.state.value.history
        else:
            nodes = int(search.utterances[0]["trace_count"])
            history = search._history.paths
        kept.add((nodes, int(history.progress["events"][0])))
    assert partial.silent_frames == 2000
    assert kept == {(2, 2)}
    assert sessions.close(session).text == "A"


def test_silence_adds_nothing_to_a_session_of_the_trie():
    case = naive_search_cases.random_case(np.random.default_rng(0))
    arguments = naive_search_cases.decoder_arguments(case)
    decoder = TrieDecoder(**arguments, options=TrieOptions(**case.options))
    sessions = decoder.sessions()
    session = sessions.open()
    search = sessions._sessions[session].search
    sessions.advance({session: case.logprobs})
    silence = np.full((50, decoder.num_tokens), -9.0, np.float32)
    silence[:, decoder.tokens.blank] = -0.01
    kept = []
    for _ in range(40):
        sessions.advance({session: silence})
        sessions.partial(session)
        kept.append(int(search.state.counts[trie_records.TRACE]))
    assert kept[-1] <= kept[0]
