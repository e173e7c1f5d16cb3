"""The CPU's threads: how many, and how they wait."""

from __future__ import annotations

import os

SPINS = "10000"
"""How often an idle thread of the pool looks for work before it sleeps, some 0.2 ms.

Measured on two cores, batch of 8, milliseconds for 40 linear layers with a small kernel after each: never
spinning (OMP_WAIT_POLICY=passive) 7.9, since each of the 80 wake-ups costs 46 us; 1000 spins 4.2; 10000
spins 4.6; the runtime's default, some 7 ms of spinning, 4.2. 10000 bridges the interpreter's work between
two kernels and still leaves the cores to the other roles between steps.
"""


def configure(count: int = 0) -> None:
    """Set up the compute pool for `count` threads; 0 means one per core this process may use.

    Call it in the process that computes, before torch is first imported there: the OpenMP runtime reads its
    environment once, when it is loaded. A spin count that the user has set stays.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    import torch

    torch.set_num_threads(count or len(os.sched_getaffinity(0)))
