"""Streams of every kind while a random role is killed or frozen every few seconds; nothing may be lost.

    stretto bench chaos --streams 64 --minutes 10 [--every 5] [--json FILE]

Every answer is compared with that of a quiet run of the same request: text, tokens, log-probabilities, finish
reasons, usage. Exit code 1 where one differs or never ends, where a page stays in use, or where a process is
missing or too many at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx

from stretto.bench.havoc import VICTIMS, Blow, Havoc, processes
from stretto.bench.launch import Launch, launch
from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, report_options, table
from stretto.bench.settled import leftovers
from stretto.bench.trials import Outcome, Trial, ask, trials
from stretto.roles.client.aio import AsyncClient

HEARTBEAT_TIMEOUT = 3.0
"""A frozen role is found out after so many seconds, instead of the default's half a minute."""
MAX_SHOWN = 5


@click.command("chaos", help=described(__doc__))
@click.option("--streams", type=click.IntRange(1), default=64, show_default=True, help="At a time.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option("--every", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True,
              help="Seconds between blows, on average.")  # fmt: skip
@click.option("--tokens", type=click.IntRange(2), default=48, show_default=True, help="Per answer, at most.")
@click.option("--patience", type=click.FloatRange(1), default=180.0, show_default=True,
              help="Seconds after which a client counts as hung.")  # fmt: skip
@click.option("--victim", "victims", multiple=True, type=click.Choice(VICTIMS), help="Only this role.")
@click.option("--seed", type=int, default=0, show_default=True)
@report_options
def main(json_file: Path | None, plot_file: Path | None, **options: Any) -> None:
    """Run, report, judge."""
    report = Report("chaos", json_file, plot_file)
    with launch("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT)) as server:
        figures = asyncio.run(Chaos(server, **options).run())
    print(_tables(figures))
    pauses = figures["pause_s"]
    places = [name for name in pauses if pauses[name]["streams"]]
    series = {p: [pauses[name][p] for name in places] for p in ("p50", "p99")}
    chart = Chart("Pause of a stream after a blow", "bars", places, series, y_label="seconds")
    report.publish(figures, chart)
    sys.exit(1 if figures["faults"] else 0)


class Chaos:
    """One run against one server."""

    def __init__(
        self,
        server: Launch,
        streams: int,
        minutes: float,
        every: float,
        tokens: int,
        patience: float,
        victims: tuple[str, ...] = (),
        seed: int = 0,
    ) -> None:
        self._server, self._streams, self._seconds, self._patience = server, streams, 60 * minutes, patience
        self._havoc = Havoc(server.process.pid, every, victims or VICTIMS, seed)
        self._trials = trials(tokens)
        self._expected: list[dict[str, Any]] = []
        self._outcomes: list[Outcome] = []
        self._faults: list[str] = []

    async def run(self) -> dict[str, Any]:
        """Quiet run, chaos, quiet end; the figures, with `faults` empty if all went well."""
        url = self._server.url
        http = httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits())
        async with http as self._http, AsyncClient(url) as self._socket:
            await self._learn()
            until = time.monotonic() + self._seconds
            turns = itertools.cycle(range(len(self._trials)))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._havoc.run(self._seconds))
                for _ in range(self._streams):
                    group.create_task(self._play(turns, until))
        self._faults += await asyncio.to_thread(leftovers, self._server)
        self._faults += _miscast(self._server)
        return self._figures()

    async def _learn(self) -> None:
        """What the answers are when nobody dies."""
        quiet = await asyncio.gather(*(ask(trial, self._http, self._socket) for trial in self._trials))
        if errors := [outcome.error for outcome in quiet if outcome.error]:
            raise click.ClickException(f"the quiet run failed: {errors[0]}")
        self._expected = [outcome.answer for outcome in quiet]

    async def _play(self, turns: Iterator[int], until: float) -> None:
        while time.monotonic() < until:
            turn = next(turns)
            trial = self._trials[turn]
            try:
                outcome = await asyncio.wait_for(ask(trial, self._http, self._socket), self._patience)
            except TimeoutError:
                self._faults.append(f"hung: no end after {self._patience:g} s: {_named(trial)}")
                continue
            self._outcomes.append(outcome)
            if fault := difference(self._expected[turn], outcome):
                self._faults.append(f"{fault}: {_named(trial)}")

    def _figures(self) -> dict[str, Any]:
        blows = self._havoc.blows
        return {
            "streams": self._streams,
            "seconds": self._seconds,
            "answers": len(self._outcomes),
            "blows": dict(Counter(map(str, blows))),
            "pause_s": {
                f"{how} {role}": _spread(pauses(blows, self._outcomes, role, how))
                for how in ("kill", "freeze")
                for role in VICTIMS
            },
            "restarts": _restarts(self._server),
            "faults": self._faults,
        }


def difference(expected: dict[str, Any], outcome: Outcome) -> str:
    """What is wrong with an outcome, in words; empty where nothing is."""
    if outcome.error:
        return f"failed: {outcome.error}"
    if outcome.answer == expected:
        return ""
    for choice in expected.keys() | outcome.answer.keys():
        known, got = expected.get(choice), outcome.answer.get(choice)
        if known != got:
            return f"altered: choice {choice} is {got!r:.400}, not {known!r:.400}"
    raise AssertionError("two dictionaries that differ differ somewhere")


def pauses(blows: list[Blow], outcomes: list[Outcome], role: str, how: str) -> list[float]:
    """Seconds that streams waited at most for a piece, between a blow of this kind and the one after it."""
    found = []
    ends = [blow.at for blow in blows[1:]] + [float("inf")]
    for blow, end in zip(blows, ends, strict=True):
        if blow.how == how and blow.roles == (role,):
            found += [wait for o in outcomes if (wait := _longest_wait(o.beats, blow.at, end)) is not None]
    return found


def _longest_wait(beats: list[float], begin: float, end: float) -> float | None:
    """Of a stream that had begun by then and went on after it."""
    if not beats or beats[0] >= begin or beats[-1] <= begin:
        return None
    after = [begin, *(beat for beat in beats if begin < beat)]
    return max(b - a for a, b in itertools.pairwise(after) if a < end)


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {"streams": 0}
    return {"streams": len(values)} | {f"p{q}": round(_percentile(values, q), 3) for q in (50, 99)}


def _percentile(values: list[float], percent: int) -> float:
    """The nearest rank."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def _restarts(server: Launch) -> dict[str, int]:
    roles = httpx.get(server.url + "/health").json()["roles"]
    return {name: facts["restarts"] for name, facts in roles.items()}


def _miscast(server: Launch) -> list[str]:
    """Roles that have not exactly one process."""
    played = Counter(role for role, _ in processes(server.process.pid))
    return [f"{played[role]} processes play {role}" for role in (*VICTIMS, "gateway") if played[role] != 1]


def _named(trial: Trial) -> str:
    dull = ("return_token_ids", "stream_options")
    return f"{trial.transport} { {name: value for name, value in trial.body.items() if name not in dull} }"


def _tables(figures: dict[str, Any]) -> str:
    rows = [
        [name, str(f["streams"]), f"{f.get('p50', 0):.2f}", f"{f.get('p99', 0):.2f}"]
        for name, f in figures["pause_s"].items()
    ]
    lines = [
        f"{figures['answers']} answers, {sum(figures['blows'].values())} blows, "
        f"{len(figures['faults'])} faults in {figures['seconds']:.0f} s",
        table(["pause after", "streams", "p50 s", "p99 s"], rows),
        *figures["faults"][:MAX_SHOWN],
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
