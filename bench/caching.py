"""Experiments on KV memory with the real scheduler in virtual time: see `bench.cache`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from stretto.bench.virtual import Host, VirtualDevice, VirtualServer
from stretto.bench.workload import poisson
from stretto.roles import messages as m
from stretto.roles.executor.sim.cost import fixed
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.keys import Chain
from stretto.roles.scheduler.limits import Limits, SchedulePolicy, pages_for
from stretto.roles.scheduler.memory import Memory

PAGE = 16
STOP = 2
VOCABULARY = 50_000
STEP_SECONDS = 0.01
MAX_TOKENS = 1024
"""What every request of the ShareGPT-like stream asks for, and the longest prompt and answer in it."""


class Asked(NamedTuple):
    """A request, and how long its answer will be, which the scheduler does not know."""

    prompt: np.ndarray
    output: int


def say(seeds: np.ndarray, places: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """A stop token at the end of each answer: the seed is its length."""
    return np.where(indices + 1 >= seeds.astype(np.int64), STOP, 7).astype(np.int32)


def requests_of(stream: Sequence[Asked], max_tokens: int, arrivals: Sequence[float] = ()) -> list[m.Request]:
    """As the tokenizer would make them."""
    return [
        m.Request(
            uid,
            arrivals[uid] if arrivals else 0.0,
            asked.prompt.astype(np.int32).tobytes(),
            max_tokens,
            (STOP,),
            m.Sampling(temperature=1.0, seed=asked.output),
            m.Output(0, True),
        )
        for uid, asked in enumerate(stream)
    ]


def server_of(limits: Limits) -> tuple[Core, Watched]:
    """A core and what plays requests through it; every step takes as long."""
    core = Core(limits)
    device = VirtualDevice(fixed(STEP_SECONDS), say, limits.max_seqs, limits.page_size)
    return core, Watched(core, device, Host(0.0, 0.0))


class Watched(VirtualServer):
    """Looks at the pool after every step while somebody waits."""

    def __init__(self, core: Core, device: VirtualDevice, host: Host) -> None:
        super().__init__(core, device, host)
        self.watched = core
        self.samples: list[tuple[int, int, int, int]] = []
        """(positions that running sequences fill, pages owned, pages cached, sequences that run)."""

    def _act(self) -> None:
        super()._act()
        core = self.watched
        if core.waiting:
            _, cached, owned = core.pages
            self.samples.append((core.held_tokens, owned, cached, core.running))


# How full the pool is.


def sharegpt_like(count: int, seed: int) -> list[Asked]:
    """Lognormal lengths with the means of ShareGPT in the vLLM paper (arXiv:2309.06180, figure 11): 161
    tokens in, 338 out; sigma 1.1 and 0.8, clipped to 4 and `MAX_TOKENS`.
    """
    rng = np.random.default_rng(seed)
    prompts, outputs = _lognormal(rng, 161, 1.1, count), _lognormal(rng, 338, 0.8, count)
    return [
        Asked(rng.integers(10, VOCABULARY, prompt), int(output))
        for prompt, output in zip(prompts, outputs, strict=True)
    ]


def _lognormal(rng: np.random.Generator, mean: float, sigma: float, count: int) -> np.ndarray:
    lengths = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    return np.clip(np.round(lengths), 4, MAX_TOKENS).astype(np.int64)


def paged(stream: Sequence[Asked], pool_tokens: int) -> dict[str, float]:
    """Shares of memory that hold tokens, over all steps in which somebody waits."""
    limits = Limits(pool_tokens // PAGE, PAGE, 256, 2048, 2 * MAX_TOKENS)
    core, server = server_of(limits)
    server.play(requests_of(stream, MAX_TOKENS))
    held, owned, cached, running = np.array(server.samples, np.float64).T
    counts = core.take_counts()
    return {
        "of what is reserved": held.sum() / (PAGE * owned.sum()),
        "of the pool, running": held.mean() / pool_tokens,
        "of the pool, running and cached": (held.mean() + PAGE * cached.mean()) / pool_tokens,
        "sequences at once": running.mean(),
        "retractions": counts.retractions,
        "steps": server.now / STEP_SECONDS,
    }


def contiguous(stream: Sequence[Asked], pool_tokens: int, by: str) -> dict[str, float]:
    """The same where each sequence reserves one stretch when it starts, first come, first served.

    "maximum": prompt and `max_tokens`. "power of two": as many as it will need, which an oracle knows,
    rounded up to a power of two (Orca's variants in the vLLM paper, section 6.1).
    """
    waiting, running, reserved = list(reversed(stream)), [], 0
    samples: list[tuple[int, int, int]] = []
    while waiting:
        while waiting and reserved + (need := _stretch(waiting[-1], by)) <= pool_tokens:
            asked = waiting.pop()
            running.append([len(asked.prompt), len(asked.prompt) + asked.output, need])
            reserved += need
        if waiting:
            samples.append((sum(length for length, _, _ in running), reserved, len(running)))
        for row in running:
            row[0] += 1
        reserved -= sum(need for length, end, need in running if length >= end)
        running = [row for row in running if row[0] < row[1]]
    held, taken, number = np.array(samples, np.float64).T
    return {
        "of what is reserved": held.sum() / taken.sum(),
        "of the pool, running": held.mean() / pool_tokens,
        "sequences at once": number.mean(),
    }


def _stretch(asked: Asked, by: str) -> int:
    if by == "maximum":
        return len(asked.prompt) + MAX_TOKENS
    return 1 << int(len(asked.prompt) + asked.output - 1).bit_length()


# What is reused.


def few_shot(tasks: int, each: int, seed: int) -> list[Asked]:
    """Questions that begin with their task's examples, some 900 tokens, shuffled."""
    rng = np.random.default_rng(seed)
    examples = [rng.integers(10, VOCABULARY, int(length)) for length in rng.integers(600, 1200, tasks)]
    stream = [
        Asked(np.concatenate([examples[task], rng.integers(10, VOCABULARY, int(rng.integers(20, 80)))]), 16)
        for task in range(tasks)
        for _ in range(each)
    ]
    return [stream[place] for place in rng.permutation(len(stream))]


def optimum(stream: Sequence[Asked]) -> float:
    """The hit rate where every distinct token is computed once."""
    ordered = sorted(tuple(asked.prompt.tolist()) for asked in stream)
    shared = sum(_common(a, b) for a, b in pairwise(ordered))
    return shared / sum(map(len, ordered))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def hit_rate(
    stream: Sequence[Asked],
    policy: SchedulePolicy,
    pool_tokens: int,
    arrivals: Sequence[float] = (),
    page: int = PAGE,
) -> float:
    """Cached prompt tokens / prompt tokens."""
    limits = Limits(pages_for(pool_tokens, page), page, 32, 2048, 2048, policy=policy)
    core, server = server_of(limits)
    server.play(requests_of(stream, 16, arrivals))
    counts = core.take_counts()
    return counts.cached_tokens / counts.prompt_tokens


def longest(stream: Iterable[Asked]) -> int:
    """Tokens of the longest request, prompt and answer."""
    return max(len(asked.prompt) + 16 for asked in stream)


def online(stream: Sequence[Asked], policy: SchedulePolicy, pool_tokens: int, rate: float) -> float:
    """The hit rate with Poisson arrivals, as a share of the optimum."""
    return hit_rate(stream, policy, pool_tokens, poisson(rate, len(stream), seed=1)) / optimum(stream)


# Who is overtaken.


def most_overtaken(bound: int, policy: SchedulePolicy = "prefix", hot: int = 400) -> int:
    """One cold request against ever more that share a hot prefix and came later: by how many it is passed."""
    rng = np.random.default_rng(0)
    prefix = rng.integers(10, VOCABULARY, 512)
    stream = [Asked(np.concatenate([prefix, rng.integers(10, VOCABULARY, 8)]), 8) for _ in range(hot)]
    stream.insert(60, Asked(rng.integers(10, VOCABULARY, 520), 8))
    arrivals = [0.0] * 16 + [index * STEP_SECONDS for index in range(len(stream) - 16)]
    limits = Limits(400, PAGE, 4, 2048, 1024, policy=policy, max_overtakes=bound)
    _, server = server_of(limits)
    server.play(requests_of(stream, 8, arrivals))
    starts = {uid: answer.pieces[0] for uid, answer in server.answers.items()}
    return max(sum(starts[other] < start for other in starts if other > uid) for uid, start in starts.items())


# What the tree costs.


def tree_costs(cached_tokens: int, tokens: int = 256, operations: int = 200) -> dict[str, Any]:
    """Microseconds to match, insert and evict a request of so many tokens, half of them a prefix that eight
    share, with so many tokens in the tree already.
    """
    rng = np.random.default_rng(0)
    held = max(1, cached_tokens // tokens)
    pages = pages_for(tokens, PAGE)
    memory = Memory(Limits((held + 2) * pages, PAGE, 1, 1, tokens))
    stream = _family(rng, held + operations, tokens)
    for prompt in stream[:held]:
        _insert(memory, prompt, pages)
    took: dict[str, list[float]] = {"match": [], "insert": [], "evict": []}
    for index in range(operations):
        known, fresh = stream[index % held], stream[held + index]
        took["match"].append(_microseconds(lambda known=known: memory.tree.match(known)))
        took["evict"].append(_microseconds(memory.tree.evict))
        taken = memory.take(pages)
        took["insert"].append(
            _microseconds(lambda fresh=fresh, taken=taken: memory.keep(fresh, taken, Chain()))
        )
        memory.release(taken)
    return {"cached tokens": held * tokens} | {
        name: float(np.median(values)) for name, values in took.items()
    }


def _family(rng: np.random.Generator, count: int, tokens: int) -> list[np.ndarray]:
    prompts = []
    for index in range(count):
        if index % 8 == 0:
            head = rng.integers(10, VOCABULARY, tokens // 2, dtype=np.int32)
        prompts.append(np.concatenate([head, rng.integers(10, VOCABULARY, tokens // 2, dtype=np.int32)]))
    return prompts


def _insert(memory: Memory, prompt: np.ndarray, pages: int) -> None:
    taken = memory.take(pages)
    memory.keep(prompt, taken, Chain())
    memory.release(taken)


def _microseconds(act: Any) -> float:
    start = time.perf_counter()
    act()
    return 1e6 * (time.perf_counter() - start)
