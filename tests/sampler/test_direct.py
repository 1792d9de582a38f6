import pickle

import numba
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.relation import Relation
from pyg_direct.sampler.workplace import Workplace
from pyg_direct.stores import from_data
from tests.sampler.graphs import MODES, assert_same, make_data, make_hetero, on_gpu

SEEDS = torch.tensor([3, 0, 39, 3, 11])
TIME = torch.tensor([5, 19, 0, 12, -1])

# PyG warns of edge types that have no opposite.
NO_OPPOSITE = pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")


def _inputs(options, seeds=SEEDS, input_type=None):
    time = TIME[: len(seeds)] if "time_attr" in options else None
    return NodeSamplerInput(torch.arange(len(seeds)), seeds, time, input_type)


def _check_edges(out, edge_index, node_of_row, node_of_col):
    found = torch.stack([node_of_row[out[0]], node_of_col[out[1]]])
    assert torch.equal(found, edge_index[:, out[2]])


@pytest.mark.parametrize("num_neighbors", [[3, 2], [-1, 0, 2], [], [50]], ids=str)
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_edges_are_those_of_the_graph(options, num_neighbors):
    data = make_data()
    sampler = DirectNeighborSampler(data, num_neighbors, seed=1, device="cpu", **options)

    out = sampler.sample_from_nodes(_inputs(options))

    found = torch.stack([out.node[out.row], out.node[out.col]])
    wanted = data.edge_index[:, out.edge]
    if options.get("subgraph_type") == "bidirectional":
        assert ((found == wanted) | (found == wanted.flip(0))).all()
    else:
        assert torch.equal(found, wanted)
    assert torch.equal(out.node[: len(SEEDS)], SEEDS)
    if out.num_sampled_nodes is not None:
        assert sum(out.num_sampled_nodes) == len(out.node)
        assert sum(out.num_sampled_edges) == len(out.row)
        assert len(out.num_sampled_nodes) == len(out.num_sampled_edges) + 1
        assert all(type(size) is int for size in out.num_sampled_nodes + out.num_sampled_edges)


@NO_OPPOSITE
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
@pytest.mark.parametrize("source", ["data", "stores"])
def test_hetero_edges_are_those_of_the_graph(options, source):
    data = make_hetero()
    options = dict(options)
    graph = data if source == "data" else from_data(data, device="cpu")
    sampler = DirectNeighborSampler(graph, [3, 2], seed=1, device="cpu", **options)

    out = sampler.sample_from_nodes(_inputs(options, torch.tensor([3, 0, 3]), "a"))

    assert list(out.node) == data.node_types
    assert list(out.row) == list(out.col) == data.edge_types
    for kind, edge in out.edge.items():
        if edge is not None:
            found = torch.stack(
                [out.node[kind[0]][out.row[kind]], out.node[kind[2]][out.col[kind]]]
            )
            assert torch.equal(found, data[kind].edge_index[:, edge])


@NO_OPPOSITE
@pytest.mark.parametrize("hetero", [False, True], ids=["homogeneous", "heterogeneous"])
@pytest.mark.parametrize("num_neighbors", [[3, 2], [2, -1]], ids=str)
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_cpu_and_cuda_agree(options, num_neighbors, hetero):
    data = make_hetero() if hetero else make_data()
    inputs = _inputs(options, torch.tensor([3, 0, 3]), "a" if hetero else None)
    on_cpu = DirectNeighborSampler(data, num_neighbors, seed=5, device="cpu", **options)
    on_cuda = on_gpu(data, num_neighbors, seed=5, **options)

    for batch in (0, 7):
        left = on_cpu.sample_from_nodes(inputs, batch=batch)
        right = on_cuda.sample_from_nodes(inputs, batch=batch)

        assert_same(left, right)


@pytest.mark.gpu
@pytest.mark.parametrize("topology", ["mapped", "colptr", "device"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_every_placement_gives_the_same(topology, dtype):
    data = make_data(400, 3000)
    stores = from_data(data, device="cpu")
    object.__setattr__(stores[1].topology(), "row", stores[1].topology().row.to(dtype))
    inputs = NodeSamplerInput(None, torch.arange(100))
    expected = DirectNeighborSampler(stores, [5, 3], seed=5, device="cpu")
    sampler = DirectNeighborSampler(stores, [5, 3], seed=5, device="cuda", topology=topology)

    for batch in range(5):
        out = sampler.sample_from_nodes(inputs, batch=batch)
        assert out.node.is_cuda
        assert_same(expected.sample_from_nodes(inputs, batch=batch), out)


def test_new_nodes_come_in_order_of_id():
    sampler = DirectNeighborSampler(make_data(), [5, 5], seed=1, device="cpu")

    out = sampler.sample_from_nodes(_inputs({}))

    for hop in out.node.split(out.num_sampled_nodes)[1:]:
        assert torch.equal(hop, hop.unique())


def test_repeated_seed_draws_for_each_copy_and_sends_from_the_first():
    edge_index = torch.tensor([[*range(1, 30), 0], [0] * 29 + [30]])
    data = Data(edge_index=edge_index, num_nodes=31)
    sampler = DirectNeighborSampler(data, [4], seed=1, device="cpu")

    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0, 0, 30])))

    drawn = [out.node[out.row[out.col == copy]] for copy in (0, 1)]
    assert [len(each) for each in drawn] == [4, 4]
    assert drawn[0].tolist() != drawn[1].tolist()
    assert out.row[out.col == 2].tolist() == [0]


def test_batches_depend_on_seed_and_number_alone():
    data = make_data()
    inputs = _inputs({})
    first, second = (DirectNeighborSampler(data, [3, 2], seed=1, device="cpu") for _ in range(2))
    other = DirectNeighborSampler(data, [3, 2], seed=2, device="cpu")

    counted = [first.sample_from_nodes(inputs) for _ in range(3)]

    for batch in (2, 0, 1):
        assert_same(counted[batch], second.sample_from_nodes(inputs, batch=batch))
    edges = [out.edge.tolist() for out in counted]
    assert edges[0] != edges[1] != edges[2]
    assert other.sample_from_nodes(inputs, batch=0).edge.tolist() != edges[0]


def test_batches_do_not_depend_on_the_number_of_threads():
    sampler = DirectNeighborSampler(make_data(400, 4000), [5, 4, 3], seed=1, device="cpu")
    inputs = NodeSamplerInput(None, torch.arange(100))
    num_threads = numba.get_num_threads()

    many = sampler.sample_from_nodes(inputs, batch=0)
    numba.set_num_threads(1)
    try:
        one = sampler.sample_from_nodes(inputs, batch=0)
    finally:
        numba.set_num_threads(num_threads)

    assert_same(one, many)


def test_seed_none_follows_torch_manual_seed():
    seeds = []
    for _ in range(2):
        torch.manual_seed(3)
        seeds.append(DirectNeighborSampler(make_data(), [2], device="cpu").seed)

    assert seeds[0] == seeds[1]


@pytest.mark.parametrize("options", [{}, {"disjoint": True}], ids=["shared", "disjoint"])
def test_hetero_fanouts_by_edge_type(options):
    data = make_hetero()
    fanouts = {kind: [0, 0] for kind in data.edge_types} | {("b__c", "rev_to__b", "a"): [2, 1]}
    sampler = DirectNeighborSampler(data, fanouts, device="cpu", **options)

    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(5), None, "a"))

    assert out.num_sampled_edges["a", "a", "a"] == [0, 0]
    assert out.num_sampled_edges["a", "to__b", "b__c"] == [0, 0]
    assert out.num_sampled_nodes["b__c"][1] > 0
    assert out.num_sampled_nodes["b__c"][2] == 0
    assert out.num_sampled_nodes["lonely"] == [0, 0, 0]


def test_one_node_without_edges():
    data = Data(edge_index=torch.empty((2, 0), dtype=torch.int64), num_nodes=1)
    for sampler in (DirectNeighborSampler(data, [2, 2], device="cpu"), on_gpu(data, [2, 2])):
        out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0])))

        assert out.node.tolist() == [0]
        assert out.num_sampled_nodes == [1, 0, 0]
        assert out.row.numel() == out.edge.numel() == 0


def test_no_seeds():
    for sampler in (
        DirectNeighborSampler(make_data(), [2], device="cpu"),
        on_gpu(make_data(), [2]),
    ):
        out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.empty(0, dtype=torch.int64)))

        assert out.node.numel() == 0
        assert out.num_sampled_nodes == [0, 0]


def test_return_e_id_false_leaves_edge_out():
    sampler = DirectNeighborSampler(make_data(), [2], device="cpu", return_e_id=False)

    assert sampler.sample_from_nodes(_inputs({})).edge is None


def test_pickled_sampler_gives_the_same_batches():
    sampler = DirectNeighborSampler(make_data(), [3, 2], seed=4, device="cpu")
    sampler.sample_from_nodes(_inputs({}))

    copy = pickle.loads(pickle.dumps(sampler))

    assert_same(copy.sample_from_nodes(_inputs({})), sampler.sample_from_nodes(_inputs({})))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"temporal_strategy": "first"}, ValueError, "temporal_strategy is 'first'"),
        ({"sample_direction": "up"}, ValueError, "sample_direction is 'up'"),
        ({"topology": "disk"}, ValueError, "topology is 'disk'"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"device": "meta"}, ValueError, "device is meta"),
        ({"time_attr": "nothing"}, ValueError, "neither nodes nor edges"),
        ({"time_attr": "x"}, TypeError, "expected integers"),
        ({"weight_attr": "nothing"}, ValueError, "no edge type has"),
        ({"weight_attr": "edge_time", "time_attr": "time", "temporal_strategy": "last"},
         ValueError, "nothing to draw"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options(options, error, match):
    with pytest.raises(error, match=match):
        DirectNeighborSampler(make_data(), [2], **{"device": "cpu", **options})


def test_wrong_data():
    with pytest.raises(TypeError, match="data is a dict"):
        DirectNeighborSampler({}, [2])


def test_negative_weights():
    data = make_data()
    data.weight[3] = -1

    with pytest.raises(ValueError, match="negative or not finite"):
        DirectNeighborSampler(data, [2], weight_attr="weight", device="cpu")


@pytest.mark.parametrize("seed", [-1, 40])
def test_seed_that_is_no_node(seed):
    sampler = DirectNeighborSampler(make_data(), [2], device="cpu")

    with pytest.raises(IndexError, match=rf"seed {seed} .* \[0, 40\)"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0, seed])))
    assert sampler.sample_from_nodes(_inputs({})).node.numel() > 0


def test_wrong_input_type():
    sampler = DirectNeighborSampler(make_hetero(), [2], device="cpu")

    with pytest.raises(ValueError, match="input_type is 'c'"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0]), None, "c"))


def test_seed_without_time():
    sampler = DirectNeighborSampler(make_data(), [2], time_attr="edge_time", device="cpu")

    with pytest.raises(ValueError, match="have no time"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0])))


@pytest.mark.parametrize(
    "neg_sampling",
    [None, NegativeSampling("binary", 0.5), NegativeSampling("triplet", 2)],
    ids=["none", "binary", "triplet"],
)
@pytest.mark.parametrize("disjoint", [False, True], ids=["shared", "disjoint"])
@pytest.mark.parametrize("kind", [None, ("a", "a", "a"), ("a", "to__b", "b__c")], ids=str)
def test_sample_from_edges(kind, disjoint, neg_sampling):
    data = make_data() if kind is None else make_hetero()
    edge_index = data.edge_index if kind is None else data[kind].edge_index
    links = edge_index[:, :6]
    options = {"seed": 2, "disjoint": disjoint}
    inputs = EdgeSamplerInput(torch.arange(6), links[0], links[1], input_type=kind)
    cpu = DirectNeighborSampler(data, [2, 2], device="cpu", **options)

    out = cpu.sample_from_edges(inputs, neg_sampling, batch=3)

    assert_same(
        out, on_gpu(data, [2, 2], **options).sample_from_edges(inputs, neg_sampling, batch=3)
    )
    nodes = out.node if isinstance(out.node, dict) else {None: out.node}
    source, destination = (nodes[kind and kind[end]] for end in (0, 2))
    if neg_sampling is None or neg_sampling.is_binary():
        found = out.metadata[1][:, :6]
        assert torch.equal(torch.stack([source[found[0]], destination[found[1]]]), links)
        assert out.metadata[1].shape[1] == (6 if neg_sampling is None else 9)
    else:
        assert torch.equal(source[out.metadata[1]], links[0])
        assert torch.equal(destination[out.metadata[2]], links[1])
        assert out.metadata[3].shape == (6, 2)
    if disjoint:
        batches = out.batch if isinstance(out.batch, dict) else {None: out.batch}
        ends = [batches[kind and kind[end]] for end in (0, 2)]
        index = out.metadata[1] if neg_sampling is None or neg_sampling.is_binary() else None
        if index is not None:
            expected = torch.arange(index.shape[1]) % 6
            assert torch.equal(ends[0][index[0]], expected)
            assert torch.equal(ends[1][index[1]], expected)


def test_links_with_time_need_disjoint_trees():
    sampler = DirectNeighborSampler(make_data(), [2], device="cpu")
    links = torch.tensor([0, 1])

    with pytest.raises(ValueError, match="links have a time"):
        sampler.sample_from_edges(EdgeSamplerInput(None, links, links, time=links))


def test_hetero_data_without_edges_of_a_type_keeps_all_types():
    data = HeteroData()
    data["a"].num_nodes = 3
    data["b"].num_nodes = 2
    data["a", "b"].edge_index = torch.empty((2, 0), dtype=torch.int64)
    sampler = DirectNeighborSampler(data, [2], device="cpu")

    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1]), None, "b"))

    assert out.node["a"].numel() == 0
    assert list(out.row) == data.edge_types


@pytest.mark.gpu
def test_more_edges_than_32_bits_count():
    num_edges = 2**31 + 1000
    colptr = torch.tensor([0, num_edges - 5, num_edges])
    row = torch.zeros(num_edges, dtype=torch.int32, device="cuda")
    row[-5:] = 1
    on_device = Relation(
        edge_type=None, frontier_type=None, neighbor_type=None, colptr=colptr.cuda(), row=row
    )
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    sampler = DirectNeighborSampler(data, [10], device="cuda")
    workplace = Workplace(sampler._graph, sampler.device, "device")
    workplace._relations = [on_device]
    sampler._workplace = workplace

    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1, 0])))

    assert out.edge[:5].tolist() == list(range(num_edges - 5, num_edges))
    assert out.edge[5:].unique().numel() == 10
    assert int(out.edge[5:].max()) > 2**24
    assert (out.node[out.row[:5]] == 1).all()
