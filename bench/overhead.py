"""What a decode step costs beside its kernels: CPU time, switches and system calls of every role.

    stretto bench overhead [--rounds N] [--sequences N ...] [--json FILE]

Sequences decode in a server of their own, streamed and not, in turn; each is watched in the middle of its
output, when nothing starts or ends. All figures come from the kernel's books (`/proc/PID/task`), so they hold
on a busy machine, where seconds do not: microseconds that each role was on a processor, how often it fell
asleep by itself, how often it called `read` or `write`. Medians over rounds.

Of the executor, `executor` is its own thread and `compute` all others: the stream and the kernels' pool.
"""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from stretto.bench.launch import Launch, launch
from stretto.bench.options import Positive, described
from stretto.bench.plot import Chart
from stretto.bench.recording import body
from stretto.bench.report import Report, progress, report_options, table

SEQUENCES = (1, 8, 32)
ROLES = ("gateway", "tokenizer", "scheduler", "executor", "compute", "detokenizer")
SECONDS = 1.5
"""How long a load is watched."""
TOKENS = 2000
"""Asked for by each request; it is cut off before."""


class Books(NamedTuple):
    """What a group of threads has used since it began."""

    cpu_us: float
    sleeps: int
    """Voluntary context switches."""
    calls: int
    """`read` and `write`; of the whole process, as the kernel counts them no finer."""

    def since(self, before: Books) -> Books:
        return Books(self.cpu_us - before.cpu_us, self.sleeps - before.sleeps, self.calls - before.calls)


def books(processes: dict[str, int], proc: Path = Path("/proc")) -> dict[str, Books]:
    """By role, from the process of each role."""
    found = {role: _books(proc / str(pid), str(pid)) for role, pid in processes.items()}
    if "executor" in found:
        main, others = _threads(proc / str(processes["executor"]), str(processes["executor"]))
        found["executor"] = Books(*main, found["executor"].calls)
        found["compute"] = Books(*others, 0)
    return found


def _books(process: Path, main: str) -> Books:
    first, others = _threads(process, main)
    calls = _numbers(process / "io")
    return Books(first[0] + others[0], first[1] + others[1], calls["syscr"] + calls["syscw"])


def _threads(process: Path, main: str) -> tuple[tuple[float, int], tuple[float, int]]:
    """(microseconds, sleeps) of the main thread and of all others together."""
    sums: dict[bool, tuple[float, int]] = {True: (0.0, 0), False: (0.0, 0)}
    for thread in (process / "task").iterdir():
        used, slept = sums[thread.name == main]
        nanoseconds = int((thread / "schedstat").read_text().split()[0])
        switches = _numbers(thread / "status")["voluntary_ctxt_switches"]
        sums[thread.name == main] = used + nanoseconds / 1e3, slept + switches
    return sums[True], sums[False]


def _numbers(file: Path) -> dict[str, int]:
    """Of "name: number" lines."""
    pairs = (line.split(":", 1) for line in file.read_text().splitlines())
    return {name: int(value) for name, value in pairs if value.strip().isdecimal()}


@contextmanager
def load(url: str, sequences: int, stream: bool) -> Iterator[None]:
    """So many requests under way; their clients read nothing, and leave at the end."""
    address = urlsplit(url)
    connections = []
    try:
        for number in range(sequences):
            content = json.dumps(body(number, TOKENS) | {"stream": stream}).encode()
            connections.append(socket.create_connection((address.hostname, address.port)))
            connections[-1].sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(content), content)
            )
        yield
    finally:
        for connection in connections:
            connection.close()


def until(server: Launch, reached: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Look at the metrics now and then until they are as wanted; these."""
    while not reached(metrics := server.metrics()):
        time.sleep(0.05)
    return metrics


def watch(server: Launch, sequences: int, stream: bool) -> dict[str, Any]:
    """Figures of one load, per step."""
    processes = {title.split()[0]: process.pid for title, process in server.family().items()}
    processes = {role: pid for role, pid in processes.items() if role in ROLES}
    until(
        server, lambda metrics: metrics["stretto_requests_live"] == 0 == metrics["stretto_requests_running"]
    )
    with load(server.url, sequences, stream):
        decoding = until(server, lambda metrics: metrics["stretto_requests_running"] == sequences)
        wanted = decoding["stretto_generated_tokens_total"] + 4 * sequences
        before = until(server, lambda metrics: metrics["stretto_generated_tokens_total"] >= wanted)
        begun = books(processes)
        time.sleep(SECONDS)
        used = {role: now.since(begun[role]) for role, now in books(processes).items()}
        after = server.metrics()
    steps = after["stretto_steps_total"] - before["stretto_steps_total"]
    return {
        "sequences": sequences,
        "stream": stream,
        "steps": steps,
        "roles": {
            role: {
                "cpu_us_per_step": mine.cpu_us / steps,
                "cpu_us_per_token": mine.cpu_us / steps / sequences,
                "sleeps_per_step": mine.sleeps / steps,
                "calls_per_step": mine.calls / steps,
            }
            for role, mine in used.items()
        },
    }


def middle(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of several rounds of one load: the median of each."""
    roles = {
        role: {
            name: round(statistics.median(one["roles"][role][name] for one in found), 2) for name in figures
        }
        for role, figures in found[0]["roles"].items()
    }
    return found[0] | {"steps": statistics.median(one["steps"] for one in found), "roles": roles}


def measure(sequences: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Rows of all loads, in turn."""
    loads = [(count, stream) for count in sequences for stream in (True, False)]
    found: dict[tuple[int, bool], list[dict[str, Any]]] = {load: [] for load in loads}
    with launch() as server:
        for turn in progress([load for _ in range(rounds) for load in loads], unit="load"):
            found[turn].append(watch(server, *turn))
    return [middle(rows) for rows in found.values()]


def shown(rows: list[dict[str, Any]]) -> str:
    """A line for each role of each load."""
    return table(
        ("load", "role", "us/step", "us/token", "sleeps/step", "reads+writes/step"),
        [
            (
                f"{row['sequences']}{' streamed' if row['stream'] else ''}",
                role,
                *(f"{figures[name]:.{places}f}" for name, places in _COLUMNS.items()),
            )
            for row in rows
            for role, figures in sorted(row["roles"].items(), key=lambda item: ROLES.index(item[0]))
        ],
    )


_COLUMNS = {"cpu_us_per_step": 0, "cpu_us_per_token": 1, "sleeps_per_step": 2, "calls_per_step": 1}


@click.command("overhead", help=described(__doc__))
@click.option("--rounds", type=Positive, default=3, show_default=True)
@click.option("--sequences", type=Positive, multiple=True, default=SEQUENCES, show_default=True)
@report_options
def main(rounds: int, sequences: tuple[int, ...], json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report."""
    report = Report("overhead", json_file, plot_file, timed=False)
    rows = measure(sequences, rounds)
    click.echo(shown(rows))
    streamed = [row for row in rows if row["stream"]]
    bars = {
        role: [row["roles"][role]["cpu_us_per_step"] for row in streamed]
        for role in ROLES
        if role != "compute"
    }
    names = [str(row["sequences"]) for row in streamed]
    report.publish(
        {"rounds": rounds, "rows": rows},
        Chart("Beside the kernels", "bars", names, bars, y_label="microseconds per step"),
    )


if __name__ == "__main__":
    main()
