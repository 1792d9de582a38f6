import torch

from pyg_direct.fullbatch.counter_random import drop_in_place, mix64_in_place, stream_key


def test_mix64_in_place_equals_splitmix64():
    def splitmix64(x):
        mask = (1 << 64) - 1
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    numbers = [0, 1, 42, -1, -(2**63), 2**63 - 1]

    mixed = mix64_in_place(torch.tensor(numbers))

    assert [x % 2**64 for x in mixed.tolist()] == [splitmix64(x % 2**64) for x in numbers]


def test_drop_in_place_keeps_mean_and_share(device):
    rows = torch.ones(2000, 33, device=device)

    drop_in_place(rows, torch.arange(2000, device=device), probability=0.3, key=stream_key(42, 0))

    kept = (rows != 0).float().mean().item()
    # 66,000 draws: five standard deviations are 0.009.
    assert abs(kept - 0.7) < 0.009
    torch.testing.assert_close(rows.max().item(), 1 / 0.7)


def test_drop_in_place_depends_on_vertex_and_key_alone():
    whole, part = torch.ones(50, 7), torch.ones(20, 7)
    other = torch.ones(50, 7)
    node = torch.randperm(50)

    drop_in_place(whole, node, probability=0.5, key=stream_key(1, 2))
    drop_in_place(part, node[10:30], probability=0.5, key=stream_key(1, 2))
    drop_in_place(other, node, probability=0.5, key=stream_key(1, 3))

    assert torch.equal(whole[10:30], part)
    assert not torch.equal(whole, other)


def test_stream_key_tells_orders_apart():
    keys = {stream_key(*counters) for counters in [(0, 1), (1, 0), (0, 0), (1, 1), (0,), (1,)]}

    assert len(keys) == 6
