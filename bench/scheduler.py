"""What the scheduler costs per decode step: `stretto bench scheduler`.

Microseconds of the core's plan + advance + take for one steady decode step, by number of sequences: every
sequence gets a token in every step, and a page every `PAGE_SIZE` steps, in turn; nothing starts or ends. The
device is pretended and its time not counted.

With `--vllm PYTHON`, the interpreter of an environment that has vLLM 0.32 (`stretto bench peers --help` says
how to make one), vLLM's scheduler does the same beside ours, row by row: schedule + update_from_output.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options
from stretto.roles import messages as m
from stretto.roles.config import Config
from stretto.roles.resolve import resolve
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits

SEQUENCES = (1, 32, 256, 1024)
PROMPT_TOKENS = 512
PAGE_SIZE = 16
WARM_STEPS = 200
VLLM_SCRIPT = Path(__file__).with_name("vllm_scheduler.py")
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


def vllm_microseconds(python: Path, model_dir: str, sequences: int, steps: int) -> list[float]:
    """The same for vLLM's scheduler."""
    work = map(str, (sequences, steps, WARM_STEPS, PROMPT_TOKENS, PAGE_SIZE))
    command = [str(python), "-I", str(VLLM_SCRIPT), model_dir, *work]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    took: list[float] = json.loads(answer.stdout)
    return took


def row_of(sequences: int, steps: int, vllm: Path | None, model_dir: str) -> dict[str, Any]:
    """One row of the table."""
    took = decode_microseconds(sequences, steps)
    p50, p99 = np.percentile(took, (50, 99)).tolist()
    row = {"sequences": sequences, "mean": statistics.fmean(took), "p50": p50, "p99": p99}
    if vllm is not None:
        other = statistics.median(vllm_microseconds(vllm, model_dir, sequences, max(200, steps // 10)))
        row |= {"vllm_p50": other, "ratio": p50 / other}
    return row


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print("microseconds per decode step (plan + advance + take; vLLM: schedule + update_from_output)")
    print("".join(f"{name:>10}" for name in rows[0]))
    for row in rows:
        print(
            "".join(
                f"{row[name]:>10.{0 if name == 'sequences' else 3 if name == 'ratio' else 1}f}"
                for name in row
            )
        )


@click.command("scheduler", help=described(__doc__))
@click.option("--steps", type=Positive, default=2000, show_default=True, help="Steps measured per row.")
@click.option(
    "--vllm",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Interpreter of an environment with vLLM, whose scheduler is measured too.",
)
@report_options
def main(steps: int, vllm: Path | None, json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report."""
    report = Report("scheduler", json_file, plot_file)
    model_dir = resolve(Config(), lambda line: click.echo(line, err=True)).model_dir if vllm else ""
    rows = [row_of(sequences, steps, vllm, model_dir) for sequences in progress(SEQUENCES, unit="row")]
    show(rows)
    lines = {name: [row[name] for row in rows] for name in rows[0] if name in ("p50", "p99", "vllm_p50")}
    chart = Chart("Scheduler", "lines", SEQUENCES, lines, "sequences", "us per decode step", True, True)
    report.publish({"steps": steps, "microseconds": rows}, chart)


if __name__ == "__main__":
    main()
