import gzip
import os
import signal
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pyg_direct.files import StoredGraphError, convert_ogb, load, save
from pyg_direct.stores import from_data
from tests.files.bars import record_bars
from tests.files.peak import MIB, peak_bytes
from tests.stores.contract import assert_same_bits

NUM_NODES, NUM_EDGES = 40, 100
SPLIT = {"train": range(0, 20), "valid": range(25, 30), "test": range(30, 40)}


def arrays(label=np.int64):
    """Return what ``data.npz`` and ``node-label.npz`` hold."""
    dice = np.random.default_rng(42)
    y = dice.integers(0, 5, (NUM_NODES, 1)).astype(label)
    if y.dtype.kind == "f":
        y[20:25] = np.nan
    return {
        "edge_index": dice.integers(0, NUM_NODES, (2, NUM_EDGES)),
        "node_feat": dice.standard_normal((NUM_NODES, 3)).astype(np.float32),
        "node_year": dice.integers(1990, 2020, (NUM_NODES, 1)),
        "edge_feat": dice.standard_normal((NUM_EDGES, 2)).astype(np.float32),
        "num_nodes_list": np.array([NUM_NODES]),
        "num_edges_list": np.array([NUM_EDGES]),
        "node_label": y,
    }


def _write_csv(path, table):
    form = "%d" if np.asarray(table).dtype.kind in "iu" else "%.9g"
    with gzip.open(path, "wt") as file:
        np.savetxt(file, table, fmt=form, delimiter=",")


def _write_split(folder, name="time"):
    (folder / "split" / name).mkdir(parents=True)
    for part, ids in SPLIT.items():
        _write_csv(folder / "split" / name / f"{part}.csv.gz", np.array(ids))


def write_npz(folder, given=None, write=np.savez_compressed):
    (folder / "raw").mkdir(parents=True)
    given = dict(given or arrays())
    write(folder / "raw/node-label.npz", node_label=given.pop("node_label"))
    write(folder / "raw/data.npz", **given)
    _write_split(folder)


def write_csv(folder, given=None):
    (folder / "raw").mkdir(parents=True)
    given = dict(given or arrays())
    files = {
        "edge": given["edge_index"].T,
        "node-feat": given["node_feat"],
        "node_year": given["node_year"],
        "edge-feat": given["edge_feat"],
        "num-node-list": given["num_nodes_list"],
        "num-edge-list": given["num_edges_list"],
        "node-label": given["node_label"],
    }
    for name, table in files.items():
        _write_csv(folder / "raw" / f"{name}.csv.gz", table)
    _write_split(folder)


def reference(given, inverse=False):
    """Return what ``PygNodePropPredDataset`` makes of it, with masks."""
    copies = 2 if inverse else 1
    edge_index = given["edge_index"].repeat(copies, axis=1)
    if inverse:
        edge_index[:, 1::2] = given["edge_index"][::-1]
    y = torch.from_numpy(given["node_label"])
    data = Data(
        x=torch.from_numpy(given["node_feat"]),
        y=y.float() if y.isnan().any() else y.long(),
        node_year=torch.from_numpy(given["node_year"]),
        edge_attr=torch.from_numpy(given["edge_feat"].repeat(copies, axis=0)),
        edge_index=torch.from_numpy(edge_index),
    )
    for name, part in {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}.items():
        data[name] = torch.zeros(NUM_NODES, dtype=torch.bool)
        data[name][list(SPLIT[part])] = True
    return data


def assert_holds(folder, data):
    (features, edges), (wanted, wanted_edges) = (
        load(folder, "cpu", verify=True),
        from_data(data, "cpu"),
    )
    names = {group: sorted(each) for group, each in wanted.groups().items()}
    assert {group: sorted(each) for group, each in features.groups().items()} == names
    for group, each in names.items():
        for name in each:
            assert_same_bits(features[group, name, :], wanted[group, name, :])
    left, right = edges.topology(), wanted_edges.topology()
    assert (left.size, left.layout) == (right.size, right.layout)
    assert all(getattr(left, n).equal(getattr(right, n)) for n in ("colptr", "row", "perm"))


@pytest.fixture(params=["whole", "pieces"])
def _pieces(request, monkeypatch):
    if request.param == "pieces":
        monkeypatch.setattr("pyg_direct.files.npz.READ_BYTES", 64)
        monkeypatch.setattr("pyg_direct.files.csv_gz.READ_BYTES", 64)


def _columns_first(file, **given):
    np.savez_compressed(file, **{name: np.asfortranarray(each) for name, each in given.items()})


def _foreign_bytes(file, **given):
    np.savez(file, **{n: each.astype(each.dtype.newbyteorder(">")) for n, each in given.items()})


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize(
    "label", [np.int64, np.float32, np.float64], ids=lambda each: each.__name__
)
@pytest.mark.parametrize(
    "write",
    [np.savez, np.savez_compressed, _columns_first, _foreign_bytes],
    ids=["stored", "deflated", "columns first", "big-endian"],
)
def test_npz_files_become_what_pyg_reads(tmp_path, write, label):
    write_npz(tmp_path / "some", arrays(label), write)

    convert_ogb(tmp_path / "some", tmp_path / "graph")

    assert_holds(tmp_path / "graph", reference(arrays(label)))


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("label", [np.int64, np.float32], ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    ("name", "inverse"),
    [("ogbn_arxiv", False), ("arxiv", False), ("ogbn_products_pyg", True), ("ogbn-proteins", True)],
)
def test_csv_files_become_what_pyg_reads(tmp_path, name, inverse, label):
    write_csv(tmp_path / name, arrays(label))

    convert_ogb(tmp_path / name, tmp_path / "graph")

    assert_holds(tmp_path / "graph", reference(arrays(label), inverse))


@pytest.mark.parametrize("write", [write_npz, write_csv], ids=["npz", "csv"])
@pytest.mark.parametrize("inverse", [False, True])
def test_add_inverse_edge_is_what_one_says(tmp_path, write, inverse):
    write(tmp_path / "mine")

    convert_ogb(tmp_path / "mine", tmp_path / "graph", add_inverse_edge=inverse)

    assert_holds(tmp_path / "graph", reference(arrays(), inverse))


def test_features_of_more_dimensions_and_other_types(tmp_path):
    given = arrays()
    given["node_feat"] = given["node_feat"].astype(np.float16)
    given["node_cube"] = np.arange(NUM_NODES * 6).reshape(NUM_NODES, 2, 3)
    write_npz(tmp_path / "rows", given)
    write_npz(tmp_path / "columns", given, _columns_first)

    for name in ("rows", "columns"):
        convert_ogb(tmp_path / name, tmp_path / "graph")
        features, _ = load(tmp_path / "graph", "cpu")
        assert features[None, "x", :].equal(torch.from_numpy(given["node_feat"]))
        assert features[None, "node_cube", :].equal(torch.from_numpy(given["node_cube"]))


def test_proteins_have_species_and_no_features(tmp_path):
    write_csv(tmp_path / "proteins")
    (tmp_path / "proteins/raw/node-feat.csv.gz").unlink()
    (tmp_path / "proteins/raw/node_year.csv.gz").rename(tmp_path / "proteins/raw/species.csv.gz")

    convert_ogb(tmp_path / "proteins", tmp_path / "graph")

    features, edges = load(tmp_path / "graph", "cpu")
    assert "x" not in features.groups()[None]
    assert features[None, "node_species", :].equal(torch.from_numpy(arrays()["node_year"]))
    assert edges.topology().num_edges == 2 * NUM_EDGES


def test_fractions_are_kept(tmp_path):
    given = arrays()
    given["node_label"] = given["node_label"] + 0.25
    write_npz(tmp_path / "some", given)

    convert_ogb(tmp_path / "some", tmp_path / "graph")

    y = load(tmp_path / "graph", "cpu")[0][None, "y", :]
    assert y.equal(torch.from_numpy(given["node_label"]).float())


@pytest.mark.parametrize("kind", [torch.tensor, np.array], ids=["tensors", "NumPy"])
def test_split_dict_is_read_first(tmp_path, kind):
    write_npz(tmp_path / "some")
    split = {part: kind(ids) for part, ids in SPLIT.items()}
    for each in (tmp_path / "some/split/time").iterdir():
        each.unlink()
    torch.save(split, tmp_path / "some/split/time/split_dict.pt")

    convert_ogb(tmp_path / "some", tmp_path / "graph")

    assert_holds(tmp_path / "graph", reference(arrays()))


def test_arrays_that_numpy_1_pickled_are_read(tmp_path, monkeypatch):
    write_npz(tmp_path / "some")
    old = sys.modules["numpy._core.multiarray"]
    monkeypatch.setitem(sys.modules, "numpy.core.multiarray", old)
    monkeypatch.setattr(old._reconstruct, "__module__", "numpy.core.multiarray", raising=False)
    path = tmp_path / "some/split/time/split_dict.pt"
    torch.save({part: np.array(ids) for part, ids in SPLIT.items()}, path)

    convert_ogb(tmp_path / "some", tmp_path / "graph")

    assert b"numpy.core.multiarray" in path.read_bytes()


def test_split_is_named_where_there_are_two(tmp_path):
    write_npz(tmp_path / "some")
    _write_split(tmp_path / "some", "random")

    with pytest.raises(ValueError, match=r"split is None, and .* holds \['random', 'time'\]"):
        convert_ogb(tmp_path / "some", tmp_path / "graph")
    with pytest.raises(FileNotFoundError, match=r"expected the split 'area'"):
        convert_ogb(tmp_path / "some", tmp_path / "graph", split="area")
    convert_ogb(tmp_path / "some", tmp_path / "graph", split="time")

    assert_holds(tmp_path / "graph", reference(arrays()))


def _npz(change):
    def damage(folder):
        given = arrays()
        change(given)
        label = given.pop("node_label", None)
        np.savez(folder / "raw/data.npz", **given)
        np.savez(folder / "raw/node-label.npz", **({} if label is None else {"node_label": label}))

    return damage


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _altered(folder):
    """Change the last numbers of an array; the checksum of the zip entry tells, at its end."""
    given = arrays() | {"node_feat": np.ones((NUM_NODES, 999), np.float32)}
    given.pop("node_label")
    np.savez(folder / "raw/data.npz", **given)
    row = given["node_feat"][0].tobytes()
    before, _, after = (folder / "raw/data.npz").read_bytes().rpartition(row)
    (folder / "raw/data.npz").write_bytes(before + bytes(len(row)) + after)


NPZ_DAMAGES = {
    "no raw": (lambda f: (f / "raw").rename(f / "other"), "holds neither data.npz nor edge.csv.gz"),
    "no labels": (lambda f: (f / "raw/node-label.npz").unlink(), "node-label.npz is missing"),
    "no split": (lambda f: (f / "split").rename(f / "other"), "expected the split of the dataset"),
    "no table": (lambda f: (f / "split/time/valid.csv.gz").unlink(), "valid.csv.gz is missing"),
    "cut": (lambda f: os.truncate(f / "raw/data.npz", 900), "data.npz cannot be read"),
    "no zip": (lambda f: (f / "raw/data.npz").write_text("<html>"), "not a zip file"),
    "altered": (_altered, "'node_feat' of .* cannot be read: Bad CRC"),
    "objects": (_npz(lambda a: a.update(node_feat=np.array([{}], object))), "Python objects"),
    "no edges": (_npz(lambda a: a.pop("edge_index")), r"lacks \['edge_index'\]"),
    "no label": (_npz(lambda a: a.pop("node_label")), r"lacks \['node_label'\]"),
    "foreign array": (
        _npz(lambda a: a.update(adj=np.zeros(3))),
        r"holds \['adj'\], expected names",
    ),
    "two graphs": (
        _npz(lambda a: a.update(num_nodes_list=np.array([20, 20]))),
        "expected one number",
    ),
    "few rows": (_npz(lambda a: a.update(node_feat=a["node_feat"][1:])), "expected 40 rows"),
    "few edges": (
        _npz(lambda a: a.update(edge_index=a["edge_index"][:, 1:])),
        r"expected integers of shape \(2, 100\)",
    ),
    "edges no ids": (_npz(lambda a: a.update(edge_index=a["edge_index"] / 2)), "expected integers"),
    "ids too large": (_npz(lambda a: a.update(edge_index=a["edge_index"] + 9)), "the node id 4"),
    "ids too small": (_npz(lambda a: a.update(edge_index=a["edge_index"] - 9)), "the node id -9"),
    "text": (_npz(lambda a: a.update(node_name=np.full(NUM_NODES, "me"))), "that torch has"),
    "wrong split": (
        lambda f: _write_csv(f / "split/time/test.csv.gz", np.array([40])),
        "test.csv.gz holds the node id 40",
    ),
    "code in a split": (
        lambda f: torch.save({"train": os.system}, f / "split/time/split_dict.pt"),
        "split_dict.pt cannot be read",
    ),
    "half a split": (
        lambda f: torch.save({"train": torch.tensor([0])}, f / "split/time/split_dict.pt"),
        "split_dict.pt cannot be read",
    ),
    "heterogeneous": (
        lambda f: (f / "raw/edge_index_dict.npz").touch(),
        "holds a heterogeneous graph",
    ),
}


def _text(name, text):
    return lambda f: (f / f"raw/{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


CSV_DAMAGES = {
    "no list": (
        lambda f: (f / "raw/num-node-list.csv.gz").unlink(),
        "num-node-list.csv.gz is missing",
    ),
    "no labels": (lambda f: (f / "raw/node-label.csv.gz").unlink(), "node-label.csv.gz is missing"),
    "cut": (lambda f: os.truncate(f / "raw/edge.csv.gz", 90), "edge.csv.gz cannot be read"),
    "no gzip": (lambda f: (f / "raw/edge.csv.gz").write_text("<html>"), "Not a gzipped file"),
    "altered": (lambda f: _flip(f / "raw/node-feat.csv.gz"), "node-feat.csv.gz"),
    "words": (_text("node-label", "cat\n" * NUM_NODES), "node-label.csv.gz cannot be read"),
    "gap": (_text("node-label", "1,2\n" + "1,\n" * 39), "node-label.csv.gz cannot be read"),
    "ragged": (_text("node-feat", "1,2\n" * 39 + "1\n"), "node-feat.csv.gz"),
    "few rows": (_text("node-label", "1\n" * 39), "has 39 rows, expected 40"),
    "many rows": (_text("node-label", "1\n" * 41), "has 41 rows or more, expected 40"),
    "empty": (_text("node-label", ""), "has 0 rows, expected 40"),
    "fractions": (_text("edge", "0.5,1\n" * NUM_EDGES), "expected integers"),
    "three ends": (_text("edge", "0,1,2\n" * NUM_EDGES), r"expected integers of shape \(100, 2\)"),
    "two graphs": (_text("num-edge-list", "50\n50\n"), "expected one number"),
    "heterogeneous": (_text("triplet-type-list", "a,to,b\n"), "holds a heterogeneous graph"),
}
DAMAGES = [
    pytest.param(write, *case, id=f"{write.__name__}-{name}")
    for write, cases in ((write_npz, NPZ_DAMAGES), (write_csv, CSV_DAMAGES))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("write", "damage", "message"), DAMAGES)
def test_convert_ogb_refuses(tmp_path, write, damage, message):
    write(tmp_path / "ogbn_arxiv")
    convert_ogb(tmp_path / "ogbn_arxiv", tmp_path / "graph")
    before = sorted((tmp_path / "graph").iterdir())

    damage(tmp_path / "ogbn_arxiv")

    with pytest.raises((StoredGraphError, FileNotFoundError), match=message):
        convert_ogb(tmp_path / "ogbn_arxiv", tmp_path / "graph")
    assert sorted((tmp_path / "graph").iterdir()) == before
    assert_holds(tmp_path / "graph", reference(arrays()))


def test_convert_ogb_wants_to_know_of_inverse_edges(tmp_path):
    write_csv(tmp_path / "mine")

    with pytest.raises(ValueError, match="add_inverse_edge is None, and the folder 'mine'"):
        convert_ogb(tmp_path / "mine", tmp_path / "graph")

    assert not (tmp_path / "graph").exists()


def test_convert_ogb_rejects_a_folder_of_something_else(tmp_path):
    write_npz(tmp_path / "some")

    with pytest.raises(ValueError, match="which pyg_direct did not write"):
        convert_ogb(tmp_path / "some", tmp_path / "some")


@pytest.mark.parametrize("write", [write_npz, write_csv], ids=["npz", "csv"])
@pytest.mark.parametrize("inverse", [False, True])
def test_progress_ends_where_it_said(tmp_path, monkeypatch, write, inverse):
    write(tmp_path / "mine")
    bars = record_bars(monkeypatch)

    convert_ogb(tmp_path / "mine", tmp_path / "graph", add_inverse_edge=inverse, progress=True)

    (bar,) = bars
    assert bar.n == bar.total > NUM_EDGES * 16


LARGE_ROWS, LARGE_COLUMNS = 1 << 17, 128
PEAK_WRITERS = {
    "stored": np.savez,
    "deflated": np.savez_compressed,
    "columns first": _columns_first,
}


@pytest.mark.parametrize("write", PEAK_WRITERS.values(), ids=PEAK_WRITERS.keys())
def test_features_are_never_whole_in_memory(tmp_path, write):
    given = arrays(np.float32)
    given["node_feat"] = np.ones((LARGE_ROWS, LARGE_COLUMNS), np.float32)
    given["node_label"] = np.full((LARGE_ROWS, 1), np.nan, np.float32)
    given["node_year"] = np.zeros((LARGE_ROWS, 1), np.int64)
    given["num_nodes_list"] = np.array([LARGE_ROWS])
    write_npz(tmp_path / "some", given, write)
    write_npz(tmp_path / "tiny")

    peak = peak_bytes(
        f"folder = Path({str(tmp_path)!r}); "
        "pyg_direct.convert_ogb(folder / 'tiny', folder / 'graph')",
        "pyg_direct.convert_ogb(folder / 'some', folder / 'graph')",
    )

    # 64 MiB of features in pieces of 4, of which zipfile holds a few.
    assert peak < 28 * MIB
    rows = load(tmp_path / "graph", "cpu")[0].table(None, "x").rows()
    assert rows.shape == (LARGE_ROWS, LARGE_COLUMNS)
    assert bool((rows == 1).all())


def test_tables_are_never_whole_in_memory(tmp_path):
    num_rows = 1 << 18
    given = arrays()
    given["node_feat"], given["node_year"], given["node_label"] = (
        np.zeros((1, columns), np.int64) for columns in (1, 1, 1)
    )
    write_csv(tmp_path / "arxiv", given)
    for name, line in {
        "node-feat": "0.5," * 63 + "1\n",
        "node-label": "1\n",
        "node_year": "2\n",
    }.items():
        _text(name, line * num_rows)(tmp_path / "arxiv")
    _text("num-node-list", f"{num_rows}\n")(tmp_path / "arxiv")
    write_csv(tmp_path / "products")

    peak = peak_bytes(
        f"folder = Path({str(tmp_path)!r}); "
        "pyg_direct.convert_ogb(folder / 'products', folder / 'graph')",
        "pyg_direct.convert_ogb(folder / 'arxiv', folder / 'graph')",
    )

    # Features are 64 MiB, and their text the same.
    assert peak < 28 * MIB
    assert load(tmp_path / "graph", "cpu")[0].table(None, "x").rows().shape == (num_rows, 64)


def _kill_at(number):
    """Kill the process when it has a file written for the ``number``th time."""
    calls, fsync = iter(range(10**6)), os.fsync

    def count(handle):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(handle)

    os.fsync = count


# Python warns of forks beside threads; the child only reads and writes files.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_kill_leaves_the_old_or_the_new(tmp_path):
    write_npz(tmp_path / "some")
    folder, old, new = tmp_path / "graph", Data(edge_index=torch.tensor([[0], [0]])), []
    old.num_nodes = 1
    number, status = 0, 1
    while status:
        save(old, folder)
        child = os.fork()
        if child == 0:
            _kill_at(number)
            try:
                convert_ogb(tmp_path / "some", folder)
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        new.append(load(folder, "cpu", verify=True)[1].topology().num_edges == NUM_EDGES)
        number += 1

    # Three arrays of edges, seven tensors, the manifest and the folder thrice.
    assert len(new) == 15
    assert new.index(True) == 13
    assert all(new[13:])
    assert_holds(folder, reference(arrays()))
    convert_ogb(tmp_path / "some", folder)
    assert len([*folder.iterdir()]) == 11


# The package itself warns at its import, and of nothing that matters here.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products", "ogbn-papers100M"])
def test_the_package_reads_the_same(tmp_path, monkeypatch, name):
    ogb = pytest.importorskip("ogb.nodeproppred", reason="needs the extra ogb")
    folder = tmp_path / name.replace("-", "_")
    given = arrays(np.float32 if "papers" in name else np.int64)
    write = write_npz if "papers" in name else write_csv
    write(folder, given)
    (folder / "RELEASE_v1.txt").touch()
    # Its version 1.3.6 saves what torch since 2.6 refuses to load.
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    if "products" in name:
        (folder / "split/time").rename(folder / "split/sales_ranking")

    dataset = ogb.PygNodePropPredDataset(name, root=str(tmp_path))
    convert_ogb(folder, tmp_path / "graph")

    data, wanted = dataset[0], reference(given, "products" in name)
    names = ["x", "y", "edge_attr"] + ["node_year"] * ("products" not in name)
    assert data.edge_index.equal(wanted.edge_index)
    assert all(torch.equal(data[n].nan_to_num(), wanted[n].nan_to_num()) for n in names)
    assert all(data[n].dtype == wanted[n].dtype for n in names)
    assert dataset.get_idx_split()["valid"].tolist() == list(SPLIT["valid"])
    assert_holds(tmp_path / "graph", wanted)
