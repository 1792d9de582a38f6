"""Every operation that the README lists, and that others are right or refused."""

import copy
import io
import pickle

import pytest
import torch
import torch.multiprocessing
from torch.nn import functional

from pyg_direct.tensors import UnifiedTensor, unified

HAS_GPU = torch.cuda.is_available()
RESULT_DEVICE = "cuda" if HAS_GPU else "cpu"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def index_device(request):
    return request.param


@pytest.fixture
def x():
    return torch.rand(37, 6)


INDICES = {
    "ids": torch.tensor([3, 36, 3]),
    "int32": torch.tensor([3, 36], dtype=torch.int32),
    "from the end": torch.tensor([-1, 0, -37]),
    "two dimensions": torch.tensor([[3, 4, 5], [1, 1, 1]]),
    "mask": torch.arange(37) % 3 == 0,
    "none": torch.tensor([], dtype=torch.int64),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.complex64])
def test_getitem_gathers(x, index_device, index, dtype):
    x = (x * 10).to(dtype)
    rows = unified(x)[index.to(index_device)]

    assert type(rows) is torch.Tensor
    assert rows.device.type == RESULT_DEVICE
    assert rows.cpu().equal(x[index])


@pytest.mark.parametrize("wrong", [37, -38])
def test_getitem_refuses_wrong_ids(x, index_device, wrong):
    with pytest.raises(IndexError, match="outside the unified tensor, which has 37 rows"):
        unified(x)[torch.tensor([1, wrong], device=index_device)]


def test_index_select_gathers(x, index_device):
    index = torch.tensor([3, 36, 3], device=index_device)

    for rows in (
        torch.index_select(unified(x), 0, index),
        unified(x).index_select(0, index),
        torch.index_select(unified(x), dim=0, index=index),
    ):
        assert rows.device.type == RESULT_DEVICE
        assert rows.cpu().equal(x[[3, 36, 3]])


def test_embedding_gathers(x, index_device):
    index = torch.tensor([[3, 36], [3, 0]], device=index_device)

    assert functional.embedding(index, unified(x)).cpu().equal(x[index.cpu()])
    for options in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}):
        with pytest.raises(ValueError, match="expected neither for a unified weight"):
            functional.embedding(index, unified(x), **options)


BASIC_INDICES = [3, -1, slice(2, 9), slice(None, None, 3), None, ..., (slice(None), 2), (4, 1)]


@pytest.mark.parametrize("index", BASIC_INDICES, ids=str)
def test_basic_indices_are_views(x, index):
    view = unified(x)[index]

    assert view.is_unified
    assert view.cpu().equal(x[index])
    assert view.data_ptr() == x[index].data_ptr()


VIEWS = {
    "view": lambda t: t.view(74, 3),
    "dtype": lambda t: t.view(torch.int32),
    "reshape": lambda t: t.reshape(-1),
    "t": lambda t: t.t(),
    "T": lambda t: t.T,
    "transpose": lambda t: t.transpose(0, 1),
    "permute": lambda t: t.permute(1, 0),
    "narrow": lambda t: t.narrow(0, 3, 4),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "flatten": lambda t: t.flatten(),
    "unbind": lambda t: t.unbind(1)[2],
    "split": lambda t: t.split(10)[1],
    "chunk": lambda t: torch.chunk(t, 3)[1],
    "expand": lambda t: t[:1].expand(5, 6),
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS.keys())
def test_views_are_unified_and_gather(x, make, index_device):
    view = make(unified(x))

    assert isinstance(view, UnifiedTensor)
    assert view.cpu().equal(make(x))
    index = torch.tensor([2, 0, 2], device=index_device)
    assert view[index].cpu().equal(make(x)[index.cpu()])


ON_GPU = {
    "add": lambda t: t + 1,
    "sum": lambda t: t.sum(0),
    "matmul": lambda t: t.t() @ t,
    "cat": lambda t: torch.cat([t, t]),
    "clone": lambda t: t.clone(),
    "half": lambda t: t.half(),
    "relu": lambda t: functional.relu(t - 0.5),
    "compare": lambda t: t > 0.5,
    "zeros_like": torch.zeros_like,
    "columns": lambda t: t[:, torch.tensor([1, 3])],
    "rows and column": lambda t: t[torch.tensor([1, 3]), 2],
    "mask": lambda t: t[t > 0.5],
    "list": lambda t: t[[1, 3]],
    "scalar": lambda t: t * torch.tensor(2.0),
}


@pytest.mark.parametrize("run", ON_GPU.values(), ids=ON_GPU.keys())
def test_without_plain_operands_on_the_cpu_the_gpu_runs(x, run):
    out = run(unified(x))

    assert type(out) is torch.Tensor
    assert out.device.type == RESULT_DEVICE
    # A GPU adds in another order.
    torch.testing.assert_close(out.cpu(), run(x), rtol=1e-4, atol=1e-5)


def test_with_a_plain_operand_the_cpu_runs(x):
    out = unified(x) + torch.ones(37, 6)

    assert (out.device.type, type(out)) == ("cpu", torch.Tensor)
    assert out.equal(x + 1)
    assert torch.stack([unified(x), x]).equal(torch.stack([x, x]))


@pytest.mark.gpu
def test_with_a_cuda_operand_the_gpu_runs(x):
    ones = torch.ones(37, 6, device="cuda")

    assert (unified(x) + ones).equal(x.cuda() + 1)
    assert functional.linear(ones, unified(x)).device.type == "cuda"
    assert ones.copy_(unified(x)).equal(x.cuda())
    with pytest.raises(RuntimeError):
        torch.cat([unified(x), ones, torch.ones(1, 6)])


ASSIGNMENTS = {
    "rows": (torch.tensor([3, 1]), torch.full((2, 6), 7.0)),
    "from the end": (torch.tensor([-1]), torch.full((1, 6), 7.0)),
    "number": (torch.tensor([3, 1]), 7.0),
    "one row": (torch.tensor([3, 1]), torch.arange(6.0)),
    "mask": (torch.arange(37) % 2 == 0, 7.0),
    "slice": (slice(3, 5), torch.full((2, 6), 7.0)),
    "item": ((3, 2), 7.0),
    "columns": ((slice(None), torch.tensor([1])), 7.0),
}


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("index", "value"), ASSIGNMENTS.values(), ids=ASSIGNMENTS.keys())
def test_assignment_writes_the_memory(x, where, index, value):
    expected, y = x.clone(), unified(x)
    expected[index] = value

    y[index.to(where) if isinstance(index, torch.Tensor) else index] = (
        value.to(where) if isinstance(value, torch.Tensor) else value
    )

    assert x.equal(expected)
    assert y[torch.arange(37)].cpu().equal(expected)


def test_in_place_operations_write_the_memory(x):
    expected, y = x.clone(), unified(x)

    assert y.add_(1) is y
    y *= 2
    torch.add(expected, 1, out=y)
    y.index_add_(0, torch.tensor([3]), torch.ones(1, 6))
    functional.relu(y, inplace=True)

    expected += 1
    expected[3] += 1
    assert isinstance(y, UnifiedTensor)
    assert x.equal(expected)


def test_conversions(x):
    y = unified(x)

    assert type(y.cpu()) is type(y.to("cpu")) is torch.Tensor
    assert y.cpu().data_ptr() == x.data_ptr()
    assert y.to(torch.float64).equal(x.double())
    assert y.numpy().sum() == x.numpy().sum()
    assert y.tolist() == x.tolist()
    assert (y.shape, y.dtype, y.device.type, len(y), y.is_cuda) == (
        (37, 6), torch.float32, "cpu", 37, False,
    )  # fmt: skip
    assert "UnifiedTensor" in repr(y)
    assert float(y[0, 0]) == float(x[0, 0])
    assert unified(y) is y


@pytest.mark.gpu
def test_copies_to_device_memory(x):
    for copied in (unified(x).cuda(), unified(x).to("cuda")):
        assert (copied.device.type, type(copied)) == ("cuda", torch.Tensor)
        assert copied.cpu().equal(x)
    assert unified(x.cuda()).cpu().equal(x)


def test_unified_rejects():
    with pytest.raises(TypeError, match="tensor is a list, expected a dense"):
        unified([1.0])
    with pytest.raises(TypeError, match="torch.sparse_coo"):
        unified(torch.eye(3).to_sparse())


def test_saved_as_a_plain_tensor(x):
    file = io.BytesIO()

    torch.save({"x": unified(x)}, file)

    file.seek(0)
    loaded = torch.load(file, weights_only=True)["x"]
    assert type(loaded) is torch.Tensor
    assert loaded.equal(x)
    assert type(pickle.loads(pickle.dumps(unified(x)))) is torch.Tensor


def test_deepcopy_is_unified(x):
    y = unified(x).requires_grad_()

    copied = copy.deepcopy(y)

    assert copied.is_unified
    assert copied.requires_grad
    assert copied.data_ptr() != y.data_ptr()
    assert copied.detach().cpu().equal(x)


def _send_back(queue, answers):
    received = queue.get()
    answers.put((type(received).__name__, received.cpu().sum().item()))
    received[0] = 9.0
    answers.put("written")


@pytest.mark.parametrize("is_shared", [False, True])
def test_another_process_gets_it_unified(x, is_shared):
    context = torch.multiprocessing.get_context("fork")
    total = x.sum().item()
    y = unified(x.share_memory_() if is_shared else x)
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=_send_back, args=(queue, answers))
    process.start()

    queue.put(y)

    assert answers.get(timeout=60) == ("UnifiedTensor", pytest.approx(total))
    answers.get(timeout=60)
    process.join(timeout=60)
    assert (x[0, 0] == 9.0) == is_shared


def test_share_memory(x):
    y = unified(x.clone())

    assert y.share_memory_() is y
    assert y.is_shared()
    assert y[torch.tensor([3])].cpu().equal(x[[3]])
    if HAS_GPU:
        read = unified(x)
        read[torch.tensor([3])]
        with pytest.raises(RuntimeError, match="call share_memory_\\(\\) before unified"):
            read.share_memory_()


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_gradients_of_an_embedding(x, index_device, is_sparse, padding_idx):
    index = torch.tensor([3, 36, 3, 0])
    y, plain = unified(x.clone()).requires_grad_(), x.clone().requires_grad_()
    options = {"sparse": is_sparse, "padding_idx": padding_idx}

    functional.embedding(index.to(index_device), y, **options).square().sum().backward()

    functional.embedding(index, plain, **options).square().sum().backward()
    assert y.grad.is_sparse == is_sparse
    torch.testing.assert_close(y.grad.to_dense(), plain.grad.to_dense())


RUNS = {
    "getitem": lambda t: t[torch.tensor([3, 36, 3])],
    "index_select": lambda t: t.index_select(0, torch.tensor([3, 3])),
    "columns": lambda t: t[:, torch.tensor([1, 3])],
    "view, then rows": lambda t: t.view(74, 3)[torch.tensor([70, 1])],
    "matmul": lambda t: t.t() @ t,
    "sum": lambda t: t.sum(),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
def test_gradients(x, run):
    y, plain = unified(x.clone()).requires_grad_(), x.clone().requires_grad_()

    run(y).square().sum().backward()

    run(plain).square().sum().backward()
    torch.testing.assert_close(y.grad, plain.grad, rtol=1e-4, atol=1e-5)


def test_as_a_parameter_under_an_optimizer(x):
    weights = [torch.nn.Parameter(unified(x.clone())), torch.nn.Parameter(x.clone())]
    optimizers = [torch.optim.SGD([weight], lr=0.1, momentum=0.9) for weight in weights]

    for _ in range(3):
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.zero_grad()
            weight[torch.tensor([3, 5])].square().sum().backward()
            optimizer.step()

    assert weights[0].is_unified
    torch.testing.assert_close(weights[0].detach().cpu(), weights[1].detach())


def test_in_a_graph(x):
    from torch_geometric.data import Data

    from pyg_direct.stores import from_data

    data = Data(x=unified(x), edge_index=torch.tensor([[0, 1], [1, 2]]))

    feature_store, _ = from_data(data)

    assert data.num_nodes == 37
    assert feature_store[None, "x", torch.tensor([3])].cpu().equal(x[[3]])


@pytest.mark.gpu
def test_memory_outlives_the_tensor():
    rows = unified(torch.full((100_000, 33), 3.0))[torch.arange(50_000)]
    total = unified(torch.full((100_000, 33), 3.0)).sum()

    assert (rows == 3).all()
    assert total.item() == pytest.approx(9.9e6)
