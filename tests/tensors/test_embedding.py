import copy

import pytest
import torch

from pyg_direct.tensors import DirectEmbedding, SparseAdagrad, SparseAdam

UPDATES = {
    "adagrad": (
        SparseAdagrad(lr=0.1, lr_decay=0.01, initial_accumulator_value=0.2),
        lambda weights: torch.optim.Adagrad(
            weights, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.2
        ),
    ),
    "adam": (
        SparseAdam(lr=0.1, betas=(0.8, 0.99)),
        lambda weights: torch.optim.SparseAdam(weights, lr=0.1, betas=(0.8, 0.99)),
    ),
}


def loss_of(rows, target):
    return (rows - target.to(rows.device)).square().sum()


# torch's own Adagrad warns so of the sparse tensors that it makes.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize(("update", "optimizer"), UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("budget_bytes", [0, 2000, 10**6])
def test_equals_torch(device, update, optimizer, budget_bytes):
    weight = torch.rand(50, 8)
    plain = torch.nn.Embedding(50, 8, sparse=True, _weight=weight.clone())
    reference = optimizer(plain.parameters())
    embedding = DirectEmbedding(50, 8, update=update, device=device, weight=weight)
    embedding.set_budget(budget_bytes, torch.arange(50))

    for _ in range(8):
        losses = []
        # One batch is looked up twice, and ids repeat within it.
        index, target = torch.randint(0, 50, (2, 13)), torch.rand(13, 8)
        for look_up in (plain, embedding):
            loss = sum(loss_of(look_up(ids), target) for ids in index)
            loss.backward()
            losses.append(loss.item())
        reference.step()
        reference.zero_grad()
        embedding.step()
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)

    # A different order of additions, and no more.
    torch.testing.assert_close(embedding.weight, plain.weight.detach(), rtol=1e-4, atol=1e-5)
    assert embedding.weight.data_ptr() == weight.data_ptr()


def test_any_shape_of_ids(device):
    embedding = DirectEmbedding(10, 4, device=device)

    rows = embedding(torch.tensor([[3, 1], [3, 3]]))

    assert rows.shape == (2, 2, 4)
    assert rows[0, 0].equal(rows[1, 1])
    assert rows.device.type == device.type
    assert rows.detach().cpu()[0, 1].equal(embedding.weight[1])
    with pytest.raises(IndexError, match="id 10 is outside the embedding"):
        embedding(torch.tensor([10]))


def test_rows_without_a_gradient_stay(device):
    embedding = DirectEmbedding(10, 4, device=device)
    before = embedding.weight.clone()

    embedding.step()
    embedding(torch.tensor([1]))
    embedding.step()
    embedding.eval()(torch.tensor([2]))
    with torch.no_grad():
        embedding.train()(torch.tensor([2]))
    embedding.step()
    embedding(torch.tensor([3])).sum().backward()
    embedding.zero_grad()
    embedding.step()

    assert embedding.num_steps == 0
    assert embedding.weight.equal(before)


def test_state_dict(device):
    embeddings = [DirectEmbedding(10, 4, update=SparseAdam(), device=device) for _ in range(2)]
    embeddings[0](torch.tensor([1, 5])).sum().backward()
    embeddings[0].step()

    embeddings[1].load_state_dict(copy.deepcopy(embeddings[0].state_dict()))

    for embedding in embeddings:
        embedding(torch.tensor([5])).square().sum().backward()
        embedding.step()
    assert embeddings[0].weight.equal(embeddings[1].weight)
    assert embeddings[1].num_steps == 2
    with pytest.raises(ValueError, match="state has 3 tables, expected 2"):
        DirectEmbedding(10, 4, device=device).set_extra_state(embeddings[0].get_extra_state())


@pytest.mark.parametrize(
    "weight", [torch.rand(3, 2), torch.zeros(3, 4, dtype=torch.int64)], ids=str
)
def test_rejects_a_wrong_weight(weight):
    with pytest.raises(ValueError, match="weight is .*expected floating-point numbers of shape"):
        DirectEmbedding(3, 4, weight=weight)


def test_has_no_parameters_and_is_no_buffer(device):
    embedding = DirectEmbedding(10, 4, device=device)

    assert [*embedding.parameters()] == [*embedding.buffers()] == []
    assert embedding.to(torch.float64).weight.dtype == torch.float32
