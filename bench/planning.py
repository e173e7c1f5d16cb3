"""What a model gives on a GPU for some traffic: the scheduler in virtual time, on the model of a device.

Times are those of the scheduler and the device: HTTP, tokenizing and detokenizing come on top, some
milliseconds where nothing is saturated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stretto.bench import measures, workload
from stretto.bench.measures import Objectives, Summary
from stretto.bench.virtual import Host, VirtualDevice, VirtualServer
from stretto.roles import messages as m
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.sim.cost import Roofline
from stretto.roles.executor.sim.gpus import GPU, GPUS, POOL_SHARE
from stretto.roles.executor.sim.models import kv_bytes, room, simulated_model
from stretto.roles.executor.sim.script import Script
from stretto.roles.executor.weights.model_config import ModelConfig
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits

LOADS = (0.25, 0.5, 0.75, 0.9)
"""Shares of what the device can do at most, where nobody says how much it is asked."""


@dataclass(frozen=True)
class Server:
    """What serves: a model on a GPU, and the scheduler's limits."""

    gpu: GPU
    model: ModelConfig
    max_seqs: int
    max_batched_tokens: int
    page_size: int
    overlap: bool
    efficiency: float
    """Share of the GPU's peaks that its kernels reach."""
    host: Host

    def limits(self) -> Limits:
        """Raises ConfigError when the GPU has no room."""
        pages = int(room(self.gpu, self.model) * POOL_SHARE) // (kv_bytes(self.model) * self.page_size)
        return Limits(
            pages=pages,
            page_size=self.page_size,
            max_seqs=self.max_seqs,
            max_batched_tokens=self.max_batched_tokens,
            max_model_len=self.model.max_position_embeddings,
            overlap=self.overlap,
        )


class Traffic(NamedTuple):
    """What is asked."""

    shape: workload.Shape
    requests: int
    seed: int


def server_of(asked: Mapping[str, Any]) -> Server:
    """From the options of `stretto plan`. Raises ConfigError or ModelError."""
    half = asked["host_us"] / 2e6
    return Server(
        gpu=GPUS[asked["gpu"]],
        model=simulated_model(asked["model"]),
        max_seqs=asked["max_seqs"],
        max_batched_tokens=asked["max_batched_tokens"],
        page_size=asked["page_size"],
        overlap=asked["overlap"],
        efficiency=asked["efficiency"],
        host=Host(half, half),
    )


def traffic_of(asked: Mapping[str, Any]) -> Traffic:
    """From the options of `stretto plan`."""
    shape = workload.Shape(asked["prompt"], asked["output"], asked["spread"])
    return Traffic(shape, asked["requests"], asked["seed"])


class Forecast(NamedTuple):
    """What comes of it."""

    rate: float | None
    """Requests a second; None: all at once."""
    summary: Summary
    running: float
    """Sequences in a step, on average."""
    busy: float
    """Share of the time in which the device computes."""


def forecast(server: Server, traffic: Traffic, rate: float | None) -> Forecast:
    """Play Poisson arrivals of `rate` requests a second. Raises ConfigError for what cannot be served."""
    limits = server.limits()
    seconds = Roofline(server.gpu, server.model, server.efficiency)
    device = VirtualDevice(seconds, Script(server.model.vocab_size, ()), server.max_seqs, server.page_size)
    played = VirtualServer(Core(limits), device, server.host)
    played.play(_requests(traffic, rate))
    answers = list(played.answers.values())
    refused = next((answer.error for answer in answers if answer.error), "")
    if refused:
        raise ConfigError(refused)
    return Forecast(
        rate,
        measures.summarize(answers, Objectives()),
        running=device.rows / device.steps,
        busy=device.busy / (max(answer.ended for answer in answers) - min(answer.sent for answer in answers)),
    )


def forecasts(server: Server, traffic: Traffic, rates: Sequence[float]) -> Iterator[Forecast]:
    """One for each rate; without any, for shares of what the device can do at most, and for that."""
    if rates:
        yield from (forecast(server, traffic, rate) for rate in rates)
        return
    most = forecast(server, traffic, None)
    for share in LOADS:
        yield forecast(server, traffic, share * most.summary.requests_per_s)
    yield most


def _requests(traffic: Traffic, rate: float | None) -> list[m.Request]:
    shape, count, seed = traffic
    sessions = workload.independent(shape, count, seed)
    arrivals: Sequence[float] = workload.poisson(rate, count, seed) if rate else [0.0] * count
    return [
        m.Request(
            uid,
            arrived,
            np.array(turn.prompt, np.int32).tobytes(),
            turn.output_tokens,
            (),
            m.Sampling(),
            m.Output(0, True),
        )
        for uid, (arrived, (turn,)) in enumerate(zip(arrivals, sessions, strict=True))
    ]
