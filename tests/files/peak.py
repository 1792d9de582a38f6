"""How much memory a few lines need beyond what a process holds before them."""

import subprocess
import sys

import pytest

MIB = 1 << 20
SCRIPT = """
import re, torch, pyg_direct
from pathlib import Path
from torch_geometric.data import Data
def status(key):
    return int(re.search(key + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
{before}
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
start = status("VmRSS")
{measured}
print(status("VmHWM") - start)
"""


def peak_bytes(before, measured):
    """Return the peak of resident memory during ``measured``, above that after ``before``."""
    if not sys.platform.startswith("linux"):
        pytest.skip("reads the peak of Linux")
    script = SCRIPT.format(before=before, measured=measured)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
