import pytest
from torch_geometric.sampler import NumNeighbors

from pyg_direct.sampler.fanout import read_fanouts

LEFT, RIGHT = ("a", "to", "b"), ("b", "rev_to", "a")


def test_read_fanouts_list_holds_for_all():
    assert read_fanouts([3, 2], [LEFT, RIGHT]) == {LEFT: [3, 2], RIGHT: [3, 2]}


@pytest.mark.parametrize("key", [LEFT, "a__to__b"], ids=["tuple", "name"])
def test_read_fanouts_dict(key):
    assert read_fanouts({key: [3], RIGHT: [-1]}, [LEFT, RIGHT]) == {LEFT: [3], RIGHT: [-1]}


def test_read_fanouts_default_of_num_neighbors():
    given = NumNeighbors({LEFT: [3]}, default=[1])

    assert read_fanouts(given, [LEFT, RIGHT]) == {LEFT: [3], RIGHT: [1]}


def test_read_fanouts_tells_names_apart_that_join_alike():
    first, second = ("a", "b__c", "d"), ("a__b", "c", "d")

    assert read_fanouts({first: [1], second: [2]}, [first, second]) == {first: [1], second: [2]}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({LEFT: [1]}, "Missing number of neighbors"),
        ({LEFT: [1], RIGHT: [1], ("x", "y", "z"): [1]}, "Not all edge types"),
        ({LEFT: [1], RIGHT: [1, 2]}, "Number of hops must be the same"),
        ([-2], "from -1 on"),
        ([1.5], "from -1 on"),
    ],
    ids=["missing", "unknown", "hops", "negative", "fraction"],
)
def test_read_fanouts_rejects(given, match):
    with pytest.raises(ValueError, match=match):
        read_fanouts(given, [LEFT, RIGHT])
