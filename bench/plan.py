"""What throughput, TTFT and TPOT a model will give on a GPU, without either.

    stretto plan --gpu h200 --model llama-3-8b --prompt 1000 --output 200
    stretto plan --gpu h100 --model ./config.json --rate 5 --rate 10 --rate 20 --plot plan.png

The real scheduler serves the traffic in virtual time, on the model of a GPU that `--device sim` uses. Times
are those of scheduler and device: HTTP, tokenizing and detokenizing come on top.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stretto.bench.options import described
from stretto.bench.report import Report, report_options
from stretto.roles.actor import SetupError
from stretto.roles.executor.sim.gpus import GPUS
from stretto.roles.executor.sim.models import SHAPES

EFFICIENCY = 0.75
"""What FlashAttention-3 reaches of an H100's peak (Shah et al., https://arxiv.org/abs/2407.08608); plain
copies and large matrix products reach a little more, small ones less."""
HOST_US = 500
"""Half for a plan, half for a result. `stretto bench simulated` in turn, 256 sequences, two cores that others
used as well: 780 between two steps, of which the scheduler works 40 and the executor 130; the rest are
wake-ups, which free cores shorten. One step ahead of the device all of it is hidden."""

_Positive = click.IntRange(min=1)
_OPTIONS = (
    click.option("--gpu", type=click.Choice(list(GPUS)), default="h200", show_default=True),
    click.option("--model", default="llama-3-8b", show_default=True, metavar="NAME",
                 help=f"A config.json, or one of {', '.join(SHAPES)}."),
    click.option("--rate", "rates", type=click.FloatRange(min=0, min_open=True), multiple=True,
                 metavar="PER_SECOND", help="Requests a second; may be repeated. Default: shares of what the "
                 "GPU can do."),
    click.option("--prompt", type=_Positive, default=1000, show_default=True, help="Tokens of a prompt."),
    click.option("--output", type=_Positive, default=200, show_default=True, help="Tokens of an answer."),
    click.option("--spread", type=click.FloatRange(0, 1), default=0.0, show_default=True,
                 help="Lengths vary by up to this share."),
    click.option("--requests", type=_Positive, default=500, show_default=True, help="How many are played."),
    click.option("--max-seqs", type=click.IntRange(1, 4096), default=256, show_default=True,
                 help="Sequences that run at once."),
    click.option("--max-batched-tokens", type=_Positive, default=2048, show_default=True,
                 help="Tokens per step."),
    click.option("--page-size", type=click.IntRange(1, 1024), default=16, show_default=True,
                 help="Tokens per KV page."),
    click.option("--overlap/--no-overlap", default=True, show_default=True,
                 help="Plan one step ahead of the device."),
    click.option("--efficiency", type=click.FloatRange(0, 1, min_open=True), default=EFFICIENCY,
                 show_default=True, help="Share of the GPU's peaks that kernels reach."),
    click.option("--host-us", type=click.FloatRange(min=0), default=HOST_US, show_default=True,
                 help="Microseconds of the host per step."),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed, the same traffic."),
)  # fmt: skip


def _options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("plan", help=described(__doc__), short_help="What a model will give on a GPU, without either.")
@_options
@report_options
def plan_command(json_file: Path | None, plot_file: Path | None, **asked: Any) -> None:
    """Forecast and report."""
    from stretto.bench import outlook, planning

    report = Report("plan", json_file, plot_file, timed=False)
    try:
        server, traffic = planning.server_of(asked), planning.traffic_of(asked)
        click.echo(outlook.heading(server, asked))
        forecasts = list(planning.forecasts(server, traffic, asked["rates"]))
    except SetupError as error:
        raise click.ClickException(str(error)) from None
    click.echo(outlook.text(forecasts))
    report.publish({"settings": asked, **outlook.figures(forecasts)}, outlook.chart(forecasts, asked))
