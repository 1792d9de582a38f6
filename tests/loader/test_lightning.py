"""PyG's Lightning data modules over our stores, and Lightning's trainer over our loaders.

The data modules are tested without Lightning too, of which they use an empty base class.
"""

import importlib

import pytest
import torch
from torch_geometric.data.lightning import LightningLinkData, LightningNodeData, datamodule
from torch_geometric.nn import GraphSAGE

from pyg_direct import DirectNeighborSampler, NeighborLoader, from_data
from tests.loader.graphs import make_data, make_hetero_data

WRITES = ("author", "writes", "paper")


@pytest.fixture
def options(monkeypatch, device):
    monkeypatch.setattr(datamodule, "_pl_is_available", True)
    # Rows that appear on a GPU are fetched by the main process; without one torch warns of pinning.
    # Torch's workers that persist end with a collection, which closes pipes that are in use.
    pins_memory = device.type == "cuda"
    return {"filter_per_worker": False, "pin_memory": pins_memory, "persistent_workers": False}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_node_data(device, options, num_workers):
    data = make_data()
    stores = from_data(data, device)
    sampler = DirectNeighborSampler(stores, [4, 3], device="cpu")
    module = LightningNodeData(
        stores, input_train_nodes=torch.arange(20), input_val_nodes=data.train_mask,
        node_sampler=sampler, batch_size=5, num_workers=num_workers,
        eval_loader_kwargs={"num_neighbors": [-1], "batch_size": 20}, **options,
    )  # fmt: skip

    batches = list(module.train_dataloader())

    assert sum(batch.batch_size for batch in batches) == 20
    for batch in batches:
        assert batch.x.cpu().equal(data.x[batch.n_id.cpu()])
        assert batch.n_id[: batch.batch_size].equal(batch.input_id)
        edges = batch.n_id[batch.edge_index]
        assert edges.cpu().equal(data.edge_index[:, batch.e_id.cpu()])
    (batch,) = module.val_dataloader()
    assert batch.batch_size == 20
    assert len(batch.num_sampled_edges) == 1
    assert sampler.num_neighbors == [4, 3]


def test_link_data(device, options):
    data = make_hetero_data()
    data["author"].x = torch.randn(30, 2)
    stores = from_data(data, device)
    module = LightningLinkData(
        stores, input_train_edges=(WRITES, data[WRITES].edge_index), batch_size=50,
        link_sampler=DirectNeighborSampler(stores, [4, 3], device="cpu"), **options,
    )  # fmt: skip

    batches = list(module.train_dataloader())

    assert len(batches) == 3
    for batch in batches:
        batch = batch.cpu()
        row, col = batch[WRITES].edge_label_index
        found = torch.stack([batch["author"].n_id[row], batch["paper"].n_id[col]])
        assert found.equal(data[WRITES].edge_index[:, batch[WRITES].input_id])
        assert batch["paper"].x.cpu().equal(data["paper"].x[batch["paper"].n_id])


def _lightning():
    """Return the one of Lightning's two packages that PyG takes."""
    try:
        return importlib.import_module("lightning.pytorch")
    except ImportError:
        return pytest.importorskip("pytorch_lightning")


def _train(loader=None, **options):
    """Return the losses of training by Lightning, with a loader or one that the module makes."""
    lightning = _lightning()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = GraphSAGE(5, 8, num_layers=2, out_channels=60)
            self.losses = []

        def training_step(self, batch, _):
            out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class ModuleWithLoader(Module):
        def train_dataloader(self):
            stores = from_data(make_data(), self.device)
            return NeighborLoader(stores, [4, 3], batch_size=7, shuffle=True, depth=2)

    module = ModuleWithLoader() if loader is None else Module()
    trainer = lightning.Trainer(
        max_epochs=2, devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    trainer.fit(module, loader)
    return module.losses


@pytest.mark.filterwarnings("ignore")
class TestTrainer:
    @pytest.mark.parametrize("depth", [0, 2])
    def test_trains_with_a_loader_of_ours(self, device, depth):
        loader = NeighborLoader(from_data(make_data(), device), [4, 3], batch_size=7, depth=depth)

        assert len(_train(loader, accelerator=device.type)) == 18

    def test_replaces_the_order_of_a_loader_that_a_module_makes(self):
        assert len(_train(accelerator="cpu", overfit_batches=2)) == 4

    def test_refuses_to_replace_the_order_of_another_loader_and_says_the_way_out(self):
        loader = NeighborLoader(from_data(make_data(), "cpu"), [4, 3], batch_size=7, shuffle=True)

        with pytest.raises(Exception, match=r"instantiate your `NeighborLoader` inside a `\*_data"):
            _train(loader, accelerator="cpu", overfit_batches=2)

    def test_trains_with_a_node_data_module(self, device):
        _lightning()
        stores = from_data(make_data(), device)
        module = LightningNodeData(
            stores, input_train_nodes=torch.arange(20), batch_size=5, filter_per_worker=False,
            node_sampler=DirectNeighborSampler(stores, [4, 3], device="cpu"),
        )  # fmt: skip

        assert len(_train(module, accelerator=device.type)) == 8
