"""What the scheduler costs per decode step: `stretto bench scheduler`.

Microseconds of the core's plan + advance + take for one steady decode step, by number of sequences: every
sequence gets a token in every step, and a page every `PAGE_SIZE` steps, in turn; nothing starts or ends. The
device is pretended and its time not counted.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import click
import numpy as np

from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options
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


@click.command("scheduler", help=described(__doc__))
@click.option("--steps", type=Positive, default=2000, show_default=True, help="Steps measured per row.")
@report_options
def main(steps: int, json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report."""
    report = Report("scheduler", json_file, plot_file)
    rows = []
    for sequences in progress(SEQUENCES, unit="row"):
        took = decode_microseconds(sequences, steps)
        p50, p99 = np.percentile(took, (50, 99))
        rows.append({"sequences": sequences, "mean": statistics.fmean(took), "p50": p50, "p99": p99})
    print("microseconds per decode step (plan + advance + take)")
    print(f"{'sequences':>9} {'mean':>8} {'p50':>8} {'p99':>8}")
    for row in rows:
        print(f"{row['sequences']:>9} {row['mean']:>8.1f} {row['p50']:>8.1f} {row['p99']:>8.1f}")
    lines = {name: [row[name] for row in rows] for name in ("p50", "p99")}
    chart = Chart("Scheduler", "lines", SEQUENCES, lines, "sequences", "us per decode step", True, True)
    report.publish({"steps": steps, "microseconds": rows}, chart)


if __name__ == "__main__":
    main()
