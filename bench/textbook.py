"""What one step ahead gains and costs, in virtual time: figures that can be worked out on paper."""

from __future__ import annotations

import numpy as np

from stretto.bench.virtual import Host, VirtualDevice, VirtualServer
from stretto.roles import messages as m
from stretto.roles.executor.sim.cost import fixed
from stretto.roles.executor.sim.script import Script
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits

STEP, PLAN, DIGEST, STEPS = 10, 4, 3, 6
"""The timeline: units of time, and how many steps there are."""
END = 2
REQUESTS, SLOTS = 64, 8


class Case:
    """A core, a device and a host of the timeline's speeds. length: where outputs end by themselves."""

    def __init__(self, overlap: bool, length: int = 0) -> None:
        limits = Limits(
            pages=4096,
            page_size=16,
            max_seqs=SLOTS,
            max_batched_tokens=256,
            max_model_len=1024,
            overlap=overlap,
        )
        self.core = Core(limits)
        self.device = VirtualDevice(fixed(STEP), Script(1024, (END,), length), SLOTS, limits.page_size)
        self.server = VirtualServer(self.core, self.device, Host(PLAN, DIGEST))

    def play(self, requests: int, max_tokens: int) -> None:
        """Serve so many requests, all there from the start."""
        prompts = [np.arange(uid, uid + 8, dtype=np.int32).tobytes() for uid in range(requests)]
        self.server.play(
            m.Request(uid, 0.0, prompt, max_tokens, (END,), m.Sampling(), m.Output(0, True))
            for uid, prompt in enumerate(prompts)
        )


def busy_share(overlap: bool) -> float:
    """Share of the time in which the device computes: in turn 10 / 17, one step ahead 60 / 67."""
    case = Case(overlap)
    case.play(1, STEPS)
    return case.device.busy / case.server.now


def wasted_share(tokens: int, by_end: bool) -> float:
    """Wasted tokens over kept ones, where outputs of so many tokens end by end-of-sequence, or by length."""
    case = Case(overlap=True, length=tokens if by_end else 0)
    case.play(REQUESTS, 2 * tokens if by_end else tokens)
    counts = case.core.take_counts()
    return counts.wasted_tokens / counts.generated_tokens
