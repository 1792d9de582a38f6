"""What a result must say about the machine and the software it was measured with."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

UNKNOWN = "unknown"


def describe_environment(command: str) -> dict[str, str]:
    """Return the header of a result: name of each fact and its text.

    Parameters
    ----------
    command : str
        What was typed to get the result.

    Returns
    -------
    dict of str
        A fact that this machine does not tell reads ``unknown``, or ``none`` for a missing GPU.
    """
    return {
        "command": command,
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} logical CPUs, {platform.system()}",
        **_describe_gpu(),
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "torch_geometric", "numba", "numba-cuda")},
    }


def _describe_gpu() -> dict[str, str]:
    if not torch.cuda.is_available():
        return {"gpu": "none", "link": "none", "gpu_links": "none", "driver": "none"}
    fields = "driver_version,pcie.link.gen.current,pcie.link.width.current"
    answer = _output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    driver, generation, width = ([*answer.split(", "), UNKNOWN, UNKNOWN, UNKNOWN])[:3]
    return {
        "gpu": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}",
        "link": f"PCIe gen {generation} x{width}",
        "gpu_links": _gpu_links(),
        "driver": driver or UNKNOWN,
    }


def _gpu_links() -> str:
    """Return how the first GPU is linked to each other one, as ``nvidia-smi topo`` says it."""
    others = torch.cuda.device_count() - 1
    if not others:
        return "none"
    table = _output_of("nvidia-smi", "topo", "-m", whole=True)
    first = next((line for line in table.splitlines() if line.startswith("GPU0")), "")
    return " ".join(first.split()[2 : 2 + others]) or UNKNOWN


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or UNKNOWN


def _commit() -> str:
    commit = _output_of("git", "rev-parse", "HEAD")
    if not commit:
        # A copy of the tree without its history may be told whose copy it is.
        return os.environ.get("PYG_DIRECT_COMMIT", UNKNOWN)
    changed = _output_of("git", "status", "--porcelain", "--untracked-files=no")
    return f"{commit} with uncommitted changes" if changed else commit


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _output_of(*command: str, whole: bool = False) -> str:
    """Return the first line that a command prints, or all; empty if it fails."""
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode:
        return ""
    return done.stdout if whole else done.stdout.partition("\n")[0].strip()
