"""The `stretto bench` commands; each module is imported when its command is run, and not before."""

from __future__ import annotations

import click

from stretto.roles.commands import Commands

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
_table = {name: (f"stretto.bench.{name}:main", line) for name, line in BENCHES.items()}


@click.group("bench", cls=Commands, table=_table, short_help="Measure speed, memory and repair.")
def bench_command() -> None:
    """Measure. Every figure that the project claims comes from one of these."""
