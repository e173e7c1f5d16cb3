"""What the scheduler costs per decode step: `python -m stretto.bench.scheduler [--json]`.

Microseconds of the core's plan + advance + take for one steady decode step, by number of sequences: every
sequence gets a token in every step, and a page every `PAGE_SIZE` steps, in turn; nothing starts or ends. The
device is pretended and its time not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits

SEQUENCES = (1, 32, 256, 1024)
PROMPT_TOKENS = 512
PAGE_SIZE = 16
WARM_STEPS = 200
CLOCK = m.Clock(0.0, 0.0, 0.0, 0.0)


def decode_microseconds(sequences: int, steps: int) -> list[float]:
    """Microseconds of each of `steps` steady decode steps."""
    core = _steady_core(sequences, steps)
    took = []
    for step in range(WARM_STEPS + steps):
        result = m.Result(step + 2, np.zeros(sequences, np.int32).tobytes(), CLOCK)
        start = time.perf_counter()
        core.advance(result)
        core.next_plan()
        core.take()
        took.append(1e6 * (time.perf_counter() - start))
    return took[WARM_STEPS:]


def _steady_core(sequences: int, steps: int) -> Core:
    """A core that has prefilled everything in step 1 and has step 2, all decodes, in flight."""
    longest = PROMPT_TOKENS + WARM_STEPS + steps + 8
    core = Core(
        Limits(
            pages=sequences * (longest // PAGE_SIZE + 2),
            page_size=PAGE_SIZE,
            max_seqs=sequences,
            max_batched_tokens=sequences * PROMPT_TOKENS,
            max_model_len=longest,
        )
    )
    rng = np.random.default_rng(0)
    for uid in range(sequences):
        prompt = rng.integers(1, 50_000, PROMPT_TOKENS - uid % PAGE_SIZE, dtype=np.int32).tobytes()
        core.submit([m.Request(uid, 0.0, prompt, None, (50_001,), m.Sampling(), m.Output(0, True))])
    core.next_plan()
    core.next_plan()
    core.advance(m.Result(1, np.zeros(sequences, np.int32).tobytes(), CLOCK))
    core.next_plan()
    core.take()
    return core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="steps measured per row")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = []
    for sequences in SEQUENCES:
        took = decode_microseconds(sequences, options.steps)
        p50, p99 = np.percentile(took, (50, 99))
        rows.append({"sequences": sequences, "mean": statistics.fmean(took), "p50": p50, "p99": p99})
    if options.json:
        print(json.dumps({"machine": platform.processor() or platform.machine(), "microseconds": rows}))
        return
    print("microseconds per decode step (plan + advance + take)")
    print(f"{'sequences':>9} {'mean':>8} {'p50':>8} {'p99':>8}")
    for row in rows:
        print(f"{row['sequences']:>9} {row['mean']:>8.1f} {row['p50']:>8.1f} {row['p99']:>8.1f}")


if __name__ == "__main__":
    main()
