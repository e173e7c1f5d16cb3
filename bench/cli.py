"""The `stretto bench` commands; each module is imported when its command is run, and not before."""

from __future__ import annotations

from importlib import import_module

import click

BENCHES = {
    "throughput": "Offline: many prompts at once through LLM.",
    "latency": "One request at a time: TTFT, TPOT, ITL, E2E.",
    "serve": "Load on a running server, or on one of its own, over HTTP or WebSocket.",
    "startup": "Seconds to ready, CPU of an idle server, memory of each role.",
    "overlap": "Device idle share, one step ahead and in turn.",
    "simulated": "The same on a simulated GPU, and what deferred stops cost.",
    "scheduler": "Microseconds of the scheduler per decode step.",
    "overhead": "CPU, switches and system calls of each role per decode step.",
    "cache": "How full the KV pool is, what is reused, who is overtaken, what the prefix tree costs.",
    "ring": "Round trip between two processes, beside ZeroMQ and pipes.",
    "kernels": "CPU kernels beside their torch references.",
    "perplexity": "What each --quantization costs: perplexity, agreement with the stored weights.",
    "detokenizer": "Microseconds of the detokenizer per token.",
    "profiling": "What recording a profile costs.",
    "pressure": "A quarter of the KV memory that is wanted: the same answers, and how much slower.",
    "tiers": "Conversations and restarts with KV in host memory and on disk.",
    "against": "Two servers under the same load over HTTP, in turn.",
    "chaos": "Streams while roles are killed and frozen: nothing lost, and how long the pauses are.",
    "flood": "Thousands of connections and requests at once: memory, /health, and who is served after.",
    "soak": "Mixed requests, cancels and errors for an hour: memory flat, nothing kept.",
    "peers": "Stretto in turn with other engines, on the same prompts.",
}
"""Commands and the lines that describe them. A command is the `main` of the module of its name."""


class Benches(click.Group):
    """A group whose commands are looked up in `BENCHES`."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(BENCHES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in BENCHES:
            return None
        command: click.Command = import_module(f"stretto.bench.{name}").main
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(BENCHES.items()))


@click.group("bench", cls=Benches, short_help="Measure speed, memory and repair.")
def bench_command() -> None:
    """Measure. Every figure that the project claims comes from one of these."""
