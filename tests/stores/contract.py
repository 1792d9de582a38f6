"""What every feature store must do, whichever device its rows appear on and wherever they stand."""

import numpy as np
import pytest
import torch
from torch_geometric.data import TensorAttr

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip

INDICES = {
    "int64": torch.tensor([5, 0, 36, 5]),
    "int32": torch.tensor([5, 0, 36, 5], dtype=torch.int32),
    "empty": torch.tensor([], dtype=torch.int64),
    "mask": torch.arange(37) % 3 == 0,
    "list": [3, 3, 1],
    "empty list": [],
    "range": range(4, 30, 5),
    "numpy": np.array([7, 2, 2]),
    "numpy int32": np.array([7, 2], dtype=np.int32),
    "numpy mask": np.arange(37) % 2 == 0,
    "slice": slice(3, 9),
    "slice with step": slice(1, None, 4),
    "slice from the end": slice(-5, -1),
    "slice backwards": slice(None, None, -3),
    "int": 4,
    "numpy int": np.int64(4),
}


def random_rows(dtype, *shape):
    """Random bits, as the dtype; NaNs and all, so compare bits."""
    generator = torch.Generator().manual_seed(42)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    bits = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=generator)
    return bits.view(dtype).view(shape)


def assert_same_bits(rows, expected):
    assert rows.dtype == expected.dtype
    assert rows.shape == expected.shape
    assert (
        rows.cpu()
        .contiguous()
        .view(-1)
        .view(torch.uint8)
        .equal(expected.cpu().contiguous().view(-1).view(torch.uint8))
    )


class FeatureStoreContract:
    """Inherit, and give ``store`` (an empty store) and ``place`` (a tensor as it is put)."""

    @pytest.fixture
    def place(self):
        return lambda tensor: tensor

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (100,), (2, 3)], ids=str)
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_get_tensor_returns_the_rows(self, store, place, dtype, shape):
        x = random_rows(dtype, 37, *shape)
        index = torch.tensor([36, 0, 5, 5, 17])
        store.put_tensor(place(x), "paper", "x", None)

        rows = store.get_tensor("paper", "x", index)

        assert rows.device == store.device
        assert_same_bits(rows, x.view(torch.uint8)[index].view(dtype) if shape else x[index])

    @pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
    def test_get_tensor_takes_every_index(self, store, place, index):
        x = random_rows(torch.float32, 37, 3)
        store["paper", "x", None] = place(x)

        rows = store["paper", "x", index]

        expected = x.numpy()[index.numpy() if isinstance(index, torch.Tensor) else index]
        assert rows.device == store.device
        np.testing.assert_array_equal(rows.cpu().numpy(), expected)

    def test_get_tensor_of_everything_is_a_view(self, store, place):
        x = place(random_rows(torch.float32, 37, 3))
        store.put_tensor(x, None, "x", None)

        view = store.view(group_name=None)
        for whole in (store[None, "x", None], store[None, "x", :], view.x[:]):
            assert whole.device == store.device
            assert_same_bits(whole, torch.as_tensor(x))

    def test_get_tensor_converts_to_the_type_of_the_index(self, store, place):
        x = random_rows(torch.float32, 37, 3)
        store.put_tensor(place(x), "paper", "x", None)

        rows = store.get_tensor("paper", "x", np.array([3, 1]), convert_type=True)

        np.testing.assert_array_equal(rows, x.numpy()[[3, 1]])

    @pytest.mark.parametrize("wrong", [-1, 37, 2**40])
    @pytest.mark.parametrize("as_index", [int, lambda i: [i], lambda i: torch.tensor([0, i])])
    def test_get_tensor_refuses_an_id_outside(self, store, place, wrong, as_index):
        x = random_rows(torch.float32, 37, 3)
        store.put_tensor(place(x), "paper", "x", None)

        with pytest.raises(IndexError, match=rf"{wrong}.*37 rows"):
            store["paper", "x", as_index(wrong)]

        assert_same_bits(store["paper", "x", [1]], x[1:2])

    def test_get_tensor_names_tensor_id_and_size(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        with pytest.raises(IndexError, match="id 9 is outside tensor 'x' of 'paper', which has 5"):
            store["paper", "x", torch.tensor([9])]

    def test_get_tensor_refuses_a_mask_of_another_length(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        with pytest.raises(IndexError, match=r"mask has shape \(4,\), expected \(5,\)"):
            store["paper", "x", torch.ones(4, dtype=torch.bool)]

    @pytest.mark.parametrize("index", [torch.tensor([0.5]), "x", 1.5])
    def test_get_tensor_refuses_other_types(self, store, place, index):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        with pytest.raises(TypeError, match="index"):
            store["paper", "x", index]

    def test_get_tensor_of_a_missing_tensor_names_what_is_stored(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        with pytest.raises(KeyError, match="no tensor .*y.* in group .*paper.*; stored: .*x"):
            store["paper", "y", None]

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)], ids=str)
    def test_empty_tensors(self, store, place, shape):
        store.put_tensor(place(torch.empty(shape)), "paper", "x", None)

        rows = store["paper", "x", torch.arange(shape[0])]

        assert rows.shape == shape
        assert store.get_tensor_size("paper", "x") == shape
        assert store["paper", "x", None].shape == shape

    def test_strided_tensors_are_copied(self, store, place):
        x = random_rows(torch.float32, 6, 37).t()
        store.put_tensor(place(x), "paper", "x", None)

        assert_same_bits(store["paper", "x", [4, 2]], x[[4, 2]])

    def test_put_tensor_by_index_puts_rows_where_ids_say(self, store, place):
        x = random_rows(torch.float32, 4, 3)
        store.put_tensor(place(x), "paper", "x", torch.tensor([2, 0, 3, 1]))

        assert_same_bits(store["paper", "x", torch.tensor([3, 0, 1, 2])], x[[2, 1, 3, 0]])

    def test_put_tensor_refuses_half_a_tensor(self, store, place):
        with pytest.raises(ValueError, match="put the whole tensor first"):
            store.put_tensor(place(torch.zeros(2, 3)), "paper", "x", torch.tensor([2, 7]))

    def test_put_tensor_refuses_a_number(self, store, place):
        with pytest.raises(ValueError, match="single number"):
            store.put_tensor(place(torch.tensor(1.0)), "paper", "x", None)

    @pytest.mark.parametrize(
        "index", [[3, 1], torch.tensor([3, 1]), np.array([3, 1]), slice(1, 3)], ids=str
    )
    def test_update_tensor_replaces_rows(self, store, place, index):
        x = random_rows(torch.float32, 37, 3)
        store.put_tensor(place(x.clone()), "paper", "x", None)
        rows = torch.rand(2, 3)

        store.update_tensor(rows, "paper", "x", index)

        expected = x.clone()
        expected[index] = rows
        assert_same_bits(store["paper", "x", torch.arange(37)], expected)

    def test_update_tensor_keeps_the_last_of_equal_ids(self, store, place):
        x = random_rows(torch.float32, 37, 3)
        store.put_tensor(place(x), "paper", "x", None)
        rows = torch.rand(5, 3)

        store.update_tensor(rows, "paper", "x", torch.tensor([3, 1, 3, 3, 1]))

        assert_same_bits(store["paper", "x", [3, 1]], rows[[3, 4]])

    def test_update_tensor_replaces_everything(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)
        x = torch.rand(7, 3)

        store.update_tensor(place(x), "paper", "x", None)

        assert store.get_tensor_size("paper", "x") == (7, 3)
        assert_same_bits(store["paper", "x", [6]], x[6:])

    def test_update_tensor_refuses_what_does_not_fit(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        with pytest.raises(ValueError, match=r"rows is \(\(1, 3\).*expected \(\(1, 2\)"):
            store.update_tensor(torch.zeros(1, 3), "paper", "x", [0])
        with pytest.raises(KeyError, match="no tensor .*y"):
            store.update_tensor(torch.zeros(1, 3), "paper", "y", [0])
        with pytest.raises(IndexError, match="id 5"):
            store.update_tensor(torch.zeros(1, 2), "paper", "x", [5])

    def test_remove_tensor(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        del store["paper", "x", None]

        assert store.get_tensor_size("paper", "x") is None
        assert store.get_all_tensor_attrs() == []
        assert not store.remove_tensor("paper", "x", None)

    def test_get_all_tensor_attrs_are_fresh(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)
        store.put_tensor(place(torch.zeros(5)), ("paper", "to", "paper"), "weight", None)
        (attr, _) = store.get_all_tensor_attrs()
        attr.index = torch.tensor([1])

        assert store.get_all_tensor_attrs() == [
            TensorAttr("paper", "x"),
            TensorAttr(("paper", "to", "paper"), "weight"),
        ]

    def test_get_all_tensor_attrs_hides_edges_of_a_homogeneous_graph(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), None, "x", None)
        store.put_tensor(place(torch.ones(9, 2)), (None, None), "edge_attr", None)

        assert store.get_all_tensor_attrs() == [TensorAttr(None, "x")]
        assert_same_bits(store[(None, None), "edge_attr", [8]], torch.ones(1, 2))

    def test_multi_get_tensor(self, store, place):
        x, y = random_rows(torch.float32, 37, 3), torch.arange(37)
        store["paper", "x", None], store["paper", "y", None] = place(x), place(y)
        index = torch.tensor([4, 4, 0])

        rows = store.multi_get_tensor(
            [TensorAttr("paper", "x", index), TensorAttr("paper", "y", index)]
        )

        assert_same_bits(rows[0], x[index])
        assert_same_bits(rows[1], y[index])

    def test_partial_attributes_are_refused(self, store):
        with pytest.raises(ValueError, match="not fully specified"):
            store.get_tensor("paper", "x")

    def test_close_is_harmless_twice(self, store, place):
        store.put_tensor(place(torch.zeros(5, 2)), "paper", "x", None)

        store.close()
        store.close()

        with pytest.raises(KeyError, match="stored: \\[\\]"):
            store["paper", "x", None]
