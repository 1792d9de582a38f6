import torch

from experiments.datasets import stochastic_blocks


def test_stochastic_blocks_repeats_itself(small_graph):
    first, second = small_graph(), small_graph()

    assert all(torch.equal(first[name], second[name]) for name in first.keys())  # noqa: SIM118


def test_stochastic_blocks_seed_changes_the_graph(small_graph):
    assert not torch.equal(small_graph().x, small_graph(seed=1).x)


def test_stochastic_blocks_is_undirected_and_without_loops(small_graph):
    data = small_graph()

    assert data.is_undirected()
    assert not data.has_self_loops()


def test_stochastic_blocks_joins_nodes_of_a_class(small_graph):
    data = small_graph(num_nodes=4_000, same_class=0.8)

    source, target = data.edge_index
    share = (data.y[source] == data.y[target]).float().mean()

    # A quarter of the other edges meets the same of four classes by chance.
    assert abs(float(share) - (0.8 + 0.2 / 4)) < 0.02


def test_stochastic_blocks_features_alone_tell_little(composed):
    options = {key: value for key, value in composed().dataset.items() if key[0] != "_"}
    data = stochastic_blocks(**options)

    centres = torch.stack([data.x[data.y == label].mean(0) for label in data.y.unique()])
    is_right = torch.cdist(data.x, centres).argmin(dim=1) == data.y
    assert is_right.float().mean() < 0.5


def test_stochastic_blocks_masks_split_the_nodes(small_graph):
    data = small_graph()

    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])

    assert torch.equal(masks.sum(dim=0), torch.ones(400, dtype=torch.int64))
    assert masks.sum(dim=1).tolist() == [240, 80, 80]
