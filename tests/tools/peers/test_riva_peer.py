"""The adapter of riva-asrlib-decoder, on a stand-in with its API: no GPU."""

import math
import types

import numpy as np
import pytest
import riva_stand_in
from text_graphs import text_graph

import wfstdec
from tools.peers import riva
from wfstdec import token_table
from wfstdec.compare import PeerInputs
from wfstdec.errors import BackendError, OptionError

SETTING = {"beam": 17.0, "max_active": 3000, "lattice_beam": 4.0, "batch": 2}
GRAPH = """
    0 1 a A 1
    0 1 a B 2
    0 1 b C 3
    1 1 _ - 0.5
    1 0.25
"""


@pytest.fixture
def module(monkeypatch):
    """The stand-in, which a test may change; NumPy takes the place of CuPy."""
    made = riva_stand_in.module()
    device = types.SimpleNamespace(synchronize=lambda: None)
    cuda = types.SimpleNamespace(Device=lambda: device)
    cupy = types.SimpleNamespace(asarray=np.asarray, cuda=cuda)
    monkeypatch.setattr(
        riva, "import_peer", lambda name, _: cupy if name == "cupy" else made
    )
    return made


def make(text, lm_scale=0.5, **more):
    graph = text_graph(text)
    return riva.RivaPeer(PeerInputs(graph.tokens, graph, lm_scale=lm_scale), **more)


def test_its_configuration(module):
    module.BatchedMappedDecoderCuda = lambda config, *files: config
    config = make(GRAPH, frame_shift_s=0.04).decoder(SETTING)._decoder
    online = config.online_opts
    decoder = online.decoder_opts
    found = decoder.default_beam, decoder.max_active, decoder.lattice_beam
    assert found == (17.0, 3000, 4.0)
    assert (online.max_batch_size, online.num_channels) == (2, 4)
    assert online.frame_shift_seconds == 0.04


def test_utterances_of_unlike_length_in_a_batch(module):
    rng = np.random.default_rng(4)
    peer = make(GRAPH)
    x = [np.log(rng.dirichlet(np.ones(3), n)).astype(np.float32) for n in (3, 1, 5)]
    found = peer.decoder(SETTING | {"batch": 3}).decode(*riva.pad(x))
    options = wfstdec.WfstOptions(beam=17.0, lm_scale=0.5)
    ours = wfstdec.WfstDecoder(text_graph(GRAPH), options, "cpu").decode(x)
    assert [" ".join(one.words) for one in found] == [one.text for one in ours]
    assert peer.name == "riva-asrlib-decoder"


def test_what_it_needs(monkeypatch, module):
    with pytest.raises(OptionError, match="without a graph"):
        riva.RivaPeer(PeerInputs(token_table(["<blank>", "a"])))
    monkeypatch.undo()
    with pytest.raises(BackendError, match="pip install riva-asrlib-decoder==0.4.4"):
        make(GRAPH)


def test_what_a_path_of_theirs_costs():
    graph = text_graph(GRAPH)
    x = np.log(np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1]], np.float32))
    result = riva.RivaResult(("B",), (1, 0), 0.0)
    others = [
        result._replace(alignment=(2, 0), words=("C",)),
        result._replace(alignment=(1,)),
        riva.NOTHING,
    ]
    found = riva.path_costs(graph, [x] * 4, [result, *others], lm_scale=0.5)
    acoustic = -math.log(0.5 * 0.7), -math.log(0.3 * 0.7)
    costs = [one.total_cost for one in found]
    assert costs[0] == pytest.approx(acoustic[0] + 0.5 * (1 + 0.5 + 0.25))
    assert costs[1] == pytest.approx(acoustic[1] + 0.5 * (3 + 0.5 + 0.25))
    assert costs[2:] == [math.inf] * 2
    assert [one.reached_final for one in found] == [True, True, False, False]
    assert [one.text for one in found] == ["B", "C", "B", ""]


def test_an_empty_list_of_theirs_is_nothing_found(module):
    class Empty(riva_stand_in.Decoder):
        def decode_nbest(self, padded, lengths):
            return [[] for _ in lengths]

    module.BatchedMappedDecoderCuda = Empty
    decoder = make("0 0 a A 0\n0 0").decoder(SETTING)
    batch = riva.pad([np.zeros((3, 3)), np.zeros((2, 3))])
    assert decoder.decode(*batch) == [riva.NOTHING] * 2
