"""`/metrics`: what all roles count on the board, in Prometheus' words."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from stretto import __version__
from stretto.roles.metrics import METRICS, Metric, offsets
from stretto.shm.board import PID, RESTARTS, Board, State

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BoardCollector(Collector):
    """Reads the whole board anew for every scrape.

    A metric has a label `process` (the index) where several processes play its role, so that sums and single
    processes can both be asked for; the `stretto_process_*` metrics are labelled by full name.
    """

    def __init__(self, board: Board, model: str) -> None:
        self._board, self._model = board, model
        self._processes = {
            role: [name for name in board.names if name.partition(".")[0] == role] for role in METRICS
        }

    def collect(self) -> Iterator[Family]:
        """All metric families."""
        yield InfoMetricFamily(
            "stretto_build", "What serves.", value={"version": __version__, "model": self._model}
        )
        yield from self._of_processes()
        for role, metrics in METRICS.items():
            for metric in metrics:
                yield self._family(role, metric)

    def _of_processes(self) -> Iterator[Family]:
        up = GaugeMetricFamily("stretto_process_up", "Whether the process is ready.", labels=["process"])
        restarts = CounterMetricFamily(
            "stretto_process_restarts", "Times it was started again.", labels=["process"]
        )
        memory = GaugeMetricFamily(
            "stretto_process_resident_memory_bytes", "Resident memory.", labels=["process"]
        )
        for name in self._board.names:
            row = self._board.row(name)
            up.add_metric([name], self._board.state(name) is State.READY)
            restarts.add_metric([name], row[RESTARTS])
            memory.add_metric([name], _resident_bytes(int(row[PID])))
        yield from (up, restarts, memory)

    def _family(self, role: str, metric: Metric) -> Family:
        names = self._processes[role]
        labels = ["process"] if len(names) > 1 else []
        at, _ = offsets(role)[metric.name]
        name = f"stretto_{metric.name}"
        family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if metric.kind == "histogram":
            family = HistogramMetricFamily(name, metric.help, labels=labels)
        elif metric.kind == "counter":
            family = CounterMetricFamily(name, metric.help, labels=labels)
        else:
            family = GaugeMetricFamily(name, metric.help, labels=labels)
        for process in names:
            values = [process.partition(".")[2]][: len(labels)]
            cells = self._board.row(process)[at : at + metric.cells].tolist()
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(values, cumulative(metric, cells), sum_value=cells[-1])
            else:
                family.add_metric(values, cells[0])
        return family


def summed(board: Board, role: str, name: str) -> list[float]:
    """The cells of a metric, over all processes of its role."""
    at, metric = offsets(role)[name]
    rows = (board.row(process) for process in board.names if process.startswith(f"{role}."))
    return [sum(cells) for cells in zip(*(row[at : at + metric.cells] for row in rows), strict=True)]


def cumulative(metric: Metric, cells: Sequence[float]) -> list[tuple[str, float]]:
    """A histogram's counts by upper bound, as the exposition format wants them."""
    bounds = [str(float(bound)) for bound in metric.buckets] + ["+Inf"]
    return list(zip(bounds, itertools.accumulate(cells[:-1]), strict=True))


def _resident_bytes(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):  # it is just not there
        return 0
