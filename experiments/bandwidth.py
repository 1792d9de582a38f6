"""How fast scattered rows come from host memory, against a plain copy of as many bytes.

GB/s are 10^9 payload bytes a second, counted from shapes; ``of_memcpy`` is the share of what one
``cudaMemcpy`` of 1 GiB from pinned memory reaches in the same run (on the CPU: a copy in memory).
Ids are uniform at random and not sorted, and every repeat of every method has ids of its own, so
that no cache holds the rows already; a sort is part of the time of a method that sorts.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch
from torch import Tensor

from experiments.bandwidth_picture import draw_bandwidth
from experiments.device import choose_device
from experiments.gather_methods import GatherMethods
from pyg_direct.memory import MappedArray
from pyg_direct.tables import Request

WORD_BYTES = 4
PIECE_BYTES = 2**28
NUM_CHECKED = 1000


def run(
    *,
    row_bytes: list[int],
    table_gib: list[float],
    num_ids: list[int],
    methods: list[str] | None = None,
    max_sms: list[int | None],
    base_offset_bytes: int = 0,
    max_payload_gib: float = 1.0,
    repeats: int = 5,
    fresh_ids: bool = True,
    picture: bool = True,
    device: str | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measure every combination and return a row for each.

    Parameters
    ----------
    row_bytes, table_gib, num_ids : list
        Sizes; rows are multiples of 4 bytes, and a payload stays below ``max_payload_gib``.
    methods : list of str, optional
        See ``experiments.gather_methods``; all that the machine can run by default.
    max_sms : list of int or None
        Limits for our own method; None for no limit.
    base_offset_bytes : int
        Where the table starts behind a page, a multiple of 4.
    max_payload_gib : float
        Combinations above are left out.
    repeats : int
        Timed runs of each; the median counts.
    fresh_ids : bool
        Whether every repeat of every method has ids of its own; the same ids again find
        translations and, on the CPU, rows in the caches.
    picture : bool
        Draw ``bandwidth.png`` into the folder of the job.
    device : str or None
        See ``choose_device``.
    seed : int
        Of the ids.

    Raises
    ------
    ValueError
        If a size has no meaning, or a method is not known on this machine.
    """
    _check_sizes(row_bytes, table_gib, num_ids, base_offset_bytes, repeats)
    place = choose_device(device)
    memory = _fill(int(max(table_gib) * 2**30) + base_offset_bytes)[base_offset_bytes:]
    ceiling = memcpy_gb_per_s(memory, place, repeats)
    rows = []
    for gib, size, limit in product(table_gib, row_bytes, max_sms):
        num_rows = int(gib * 2**30) // size
        table = memory[: num_rows * size].view(torch.int32).view(num_rows, -1)
        ways = GatherMethods(table, place, max_sms=limit)
        chosen = _choose_methods(methods, ways.names(), first=limit == max_sms[0])
        for count in num_ids:
            if count * size > max_payload_gib * 2**30:
                continue
            generator = torch.Generator(place).manual_seed(seed)
            draw = partial(torch.randint, num_rows, (count,), generator=generator, device=place)
            if fresh_ids:
                draws = [[draw() for _ in range(repeats + 1)] for _ in chosen]
            else:
                draws = [[draw()] * (repeats + 1)] * len(chosen)
            for row in _measure(ways, chosen, draws):
                row |= {"table_gib": gib, "max_sms": limit, "memcpy_gb_per_s": ceiling}
                row["of_memcpy"] = row["gb_per_s"] / ceiling
                rows.append(row)
                print(_line(row), flush=True)
    if picture:
        draw_bandwidth(rows)
    return rows


def memcpy_gb_per_s(memory: Tensor, device: torch.device, repeats: int) -> float:
    """Return the rate of one plain copy of at most 1 GiB from host memory, in GB/s.

    Parameters
    ----------
    memory : uint8 tensor
        On the CPU; pinned for the copy if the device is a GPU.
    device : torch.device
        Where the copy goes.
    repeats : int
        Timed copies; the median counts.
    """
    source = memory[: min(memory.numel(), 2**30)]
    if device.type == "cuda":
        source = source.pin_memory()
    target = torch.empty_like(source, device=device)
    times = timed([lambda: target.copy_(source, non_blocking=True)] * (repeats + 1), device)
    return source.nbytes / median(times) / 1e9


def timed(works: list[Callable[[], Any]], device: torch.device) -> list[float]:
    """Run the first of ``works`` to warm up, and time the others; seconds, from events on a GPU."""
    works[0]()
    times = []
    for work in works[1:]:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) / 1e3)
        else:
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
    return times


def host_us(ways: GatherMethods, index: Tensor, calls: int = 200) -> float:
    """Return the median time that the host spends in one gather of ours, in microseconds."""
    times = []
    for call in range(calls):
        if call % 50 == 0 and ways.device.type == "cuda":
            torch.cuda.synchronize(ways.device)
        begin = time.perf_counter()
        rows = ways.table.gather(Request(index, is_trusted=True))
        times.append(time.perf_counter() - begin)
        del rows
    return median(times) * 1e6


def _measure(
    ways: GatherMethods, methods: list[str], draws: list[list[Tensor]]
) -> Iterator[dict[str, Any]]:
    """Measure each method on ids of its own, the first of which warm up."""
    for name, indices in zip(methods, draws, strict=True):
        index = indices[0]
        payload = index.numel() * ways.table.row_bytes
        gathers = [ways.prepare(name, each) for each in indices]
        _check_rows(name, ways.rows, index, gathers[0]())
        times = timed(gathers, ways.device)
        is_ours = name == "pyg_direct"
        on_gpu = ways.device.type == "cuda"
        yield {
            "method": name,
            "row_bytes": ways.table.row_bytes,
            "num_ids": index.numel(),
            "gb_per_s": payload / median(times) / 1e9,
            "median_ms": median(times) * 1e3,
            "min_ms": min(times) * 1e3,
            "max_ms": max(times) * 1e3,
            "way": ways.table.plan(index.numel()).way if is_ours and on_gpu else None,
            "host_us": host_us(ways, index) if is_ours and index.numel() <= 1000 else None,
        }
        del gathers


def _check_rows(name: str, rows: Tensor, index: Tensor, out: Tensor) -> None:
    ids = index[:NUM_CHECKED].cpu()
    if name == "index_select_sorted":
        ids = index.sort().values[:NUM_CHECKED].cpu()
    if not out[:NUM_CHECKED].cpu().equal(rows[ids]):
        raise RuntimeError(f"{name} returned rows that the ids do not name; its times mean nothing")


def _choose_methods(wanted: list[str] | None, known: list[str], *, first: bool) -> list[str]:
    unknown = sorted(set(wanted or []) - set(known))
    if unknown:
        raise ValueError(
            f"methods {unknown} are not known on this machine; expected some of {known}"
        )
    # A limit of multiprocessors means something to our own method alone.
    return [name for name in wanted or known if first or name == "pyg_direct"]


def _fill(num_bytes: int) -> Tensor:
    """Return mapped memory whose words differ, as bytes."""
    memory = MappedArray.empty((num_bytes // WORD_BYTES,), torch.int32).cpu_view()
    pattern = torch.arange(PIECE_BYTES // WORD_BYTES, dtype=torch.int32)
    for number, piece in enumerate(memory.split(PIECE_BYTES // WORD_BYTES)):
        torch.add(pattern[: piece.numel()], number * 7919, out=piece)
    return memory.view(torch.uint8)


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['table_gib']:>5} GiB {row['row_bytes']:>5} B x {row['num_ids']:>8} "
        f"{row['method']:<20} {row['gb_per_s']:6.1f} GB/s  {row['of_memcpy']:.3f} of memcpy"
        + (f"  max_sms {row['max_sms']}" if row["max_sms"] else "")
        + (f"  host {row['host_us']:.0f} us" if row["host_us"] else "")
    )


def _check_sizes(
    row_bytes: list[int], table_gib: list[float], num_ids: list[int], offset: int, repeats: int
) -> None:
    for name, sizes in {"row_bytes": row_bytes, "base_offset_bytes": [offset]}.items():
        wrong = [size for size in sizes if size % WORD_BYTES or size < 0]
        if wrong:
            raise ValueError(f"{name} holds {wrong}, expected multiples of {WORD_BYTES}")
    smallest = {"row_bytes": row_bytes, "table_gib": table_gib, "num_ids": num_ids}
    for name, values in (smallest | {"repeats": [repeats]}).items():
        if not values or min(values) <= 0:
            raise ValueError(f"{name} is {values}, expected numbers more than 0")
    if max(row_bytes) > min(table_gib) * 2**30:
        raise ValueError(
            f"row_bytes {max(row_bytes)} is more than table_gib {min(table_gib)} holds"
        )
