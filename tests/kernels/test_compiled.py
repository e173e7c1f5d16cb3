import os
import subprocess
import sys
from pathlib import Path

import pytest

from stretto.kernels import resources
from stretto.kernels.generation import CAPABILITIES

SHARED = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
"""Bytes a block may have: CUDA C++ programming guide, technical specifications per compute capability."""


def test_what_every_kernel_takes_is_in_the_table():
    """In a process of its own: this one interprets Triton."""
    cache = Path(__file__).parents[2] / ".cache" / "triton"
    command = [sys.executable, "-m", "stretto.kernels.compiled", "--check"]
    environment = {"TRITON_CACHE_DIR": str(cache)} | os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_fits_the_gpu(capability):
    rows = resources.load()[1][capability]
    used = {key: resources.Resources(*row) for key, row in rows.items()}
    assert {key for key, row in used.items() if row.shared > SHARED[capability]} == set()
    assert {key for key, row in used.items() if row.registers * row.warps * 32 > 65536} == set()


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("size", ["64", "128"])
def test_attention_spills_no_registers(capability, size):
    rows = resources.load()[1][capability]
    attention = {key: row for key, row in rows.items() if key.startswith("paged_attention") and size in key}
    kernels = {key.split(": ")[1] for key in attention}
    assert kernels == {"decode_kernel", "merge_kernel", "extend_kernel"}
    assert {key for key, row in attention.items() if resources.Resources(*row).spilled} == set()
