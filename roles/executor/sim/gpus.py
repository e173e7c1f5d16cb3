"""The GPUs that can be simulated, with what their makers say of them.

| GPU  | form     | source                                                                            |
|------|----------|-----------------------------------------------------------------------------------|
| a100 | SXM 80GB | NVIDIA A100 datasheet: 80 GB, 2,039 GB/s, 312 TFLOPS BF16                         |
| h100 | SXM5     | NVIDIA H100 datasheet: 80 GB, 3.35 TB/s, 1,979 TFLOPS BF16 with sparsity, half without |
| h200 | SXM      | NVIDIA H200 datasheet: 141 GB, 4.8 TB/s, 1,979 TFLOPS BF16 with sparsity          |
| b200 | HGX      | NVIDIA HGX B200 datasheet: 180 GB, 7.7 TB/s, 4.5 PFLOPS BF16 with sparsity        |
| l40s | PCIe     | NVIDIA L40S datasheet: 48 GB, 864 GB/s, 362 TFLOPS BF16                           |

These are peaks. A step at peak is the shortest that could be, so a host that keeps up with it keeps up with
the real one.
"""

from __future__ import annotations

from typing import NamedTuple


class GPU(NamedTuple):
    """One device; memory in bytes, rates per second, dense 16-bit tensor operations."""

    memory: float
    bandwidth: float
    flops: float
    fp8: bool = True
    """Whether it computes with numbers of eight bits: compute capability 8.9 or newer."""


GPUS = {
    "a100": GPU(80e9, 2.039e12, 312e12, fp8=False),
    "h100": GPU(80e9, 3.35e12, 989.5e12),
    "h200": GPU(141e9, 4.8e12, 989.5e12),
    "b200": GPU(180e9, 7.7e12, 2250e12),
    "l40s": GPU(48e9, 0.864e12, 362e12),
}

LAUNCH_SECONDS = 0.5e-6
"""What the device loses between two kernels of a CUDA graph: 3.4 us for a kernel of 2.9 us, as measured in
"Getting Started with CUDA Graphs", https://developer.nvidia.com/blog/cuda-graphs/."""

LINKS = {"a100": 25e9, "h100": 50e9, "h200": 50e9, "b200": 50e9, "l40s": 25e9}
"""Bytes per second between the GPU and pinned host memory: PCIe 4.0 x16 has 32 GB/s a direction, 5.0 has 64;
some four fifths of it are reached."""

POOL_SHARE = 0.85
"""Of the memory that the weights leave; the rest is for activations."""
