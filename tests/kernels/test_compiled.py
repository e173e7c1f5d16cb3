import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from stretto.kernels import resources
from stretto.kernels.generation import CAPABILITIES

SHARED = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
"""Bytes a block may have: CUDA C++ programming guide, technical specifications per compute capability."""


def test_every_kernel_compiles_to_what_the_table_says():
    """In a process of its own: this one interprets Triton. Another Triton than the table's only compiles."""
    cache = Path(__file__).parents[2] / ".cache" / "triton"
    command = [sys.executable, "-m", "stretto.kernels.compiled", "--check"]
    environment = {"TRITON_CACHE_DIR": str(cache)} | os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
    if resources.load()[0] != triton.__version__:
        pytest.skip("all cases compile, but the table is of another version of Triton, and is not compared")


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
    assert kernels == {"decode_kernel", "merge_kernel", "extend_kernel", "join_kernel"}
    assert {key for key, row in attention.items() if resources.Resources(*row).spilled} == set()


ANY_BATCH = """
import torch
from stretto.kernels.compiled import compiling
from stretto.kernels.paged_attention.triton import paged_attention

def call(sequences, pages, offset):
    integers = lambda n: torch.zeros(n + offset, dtype=torch.int32)[offset:]
    q, cache = torch.empty(2 * sequences, 8, 64), torch.empty(9, 16, 8, 64)
    tables = integers(sequences * pages).view(sequences, pages)
    starts, lengths = integers(sequences + 1), integers(sequences)
    paged_attention(torch.empty_like(q), q, cache, cache, tables, starts, lengths, scale=1.0)

kinds = set()
with compiling(90, lambda name, row: kinds.add((name, *row)), whole=False):
    for sequences, pages, offset in [(1, 64, 0), (2, 64, 1), (16, 129, 0), (17, 257, 3)]:
        call(sequences, pages, offset)
print(len(kinds))
"""


def test_attention_is_compiled_once_for_all_batches():
    """Or the first batch of another size or alignment would wait for a compiler."""
    done = subprocess.run([sys.executable, "-c", ANY_BATCH], capture_output=True, text=True)
    assert done.stdout.strip() == "4", done.stderr
