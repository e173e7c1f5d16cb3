"""Random operations on the core, by the million: `python -m stretto.tests.roles.scheduler.soak 1000000`.

As `test_core_random`, but without hypothesis, which remembers too much for so many. `check` runs after each
operation (a third argument says: each n-th), and each request's tokens are compared with those it has alone.
"""

from __future__ import annotations

import math
import random
import sys
import time

from stretto.roles import messages as m
from stretto.roles.scheduler.below import NOTHING_BELOW, Below
from stretto.tests.roles.scheduler.device import World

VOCABULARY = 3
EPISODE = 500
"""Operations before everything is drained, compared, and begun anew with other sizes."""


WINDOWS = [(0,), (2,), (5,), (0, 3), (3, 7), (0, 4, 4)]


def below_of(rng: random.Random) -> Below:
    return Below(
        host_pages=rng.randint(1, 20),
        disk=rng.random() < 0.6,
        write=rng.choice(["back", "through", "selective"]),
        compute_seconds=rng.choice([math.inf, math.inf, math.inf, 0.0]),
    )


def world_of(rng: random.Random) -> World:
    tiers = rng.random() < 0.5
    world = World(
        VOCABULARY,
        pages=rng.randint(1, 48),
        page_size=rng.randint(1, 5),
        max_seqs=rng.randint(1, 6),
        max_batched_tokens=rng.randint(1, 12),
        max_model_len=rng.randint(2, 40),
        overlap=rng.random() < 0.7,
        prefix_cache=rng.random() < 0.8,
        policy=rng.choice(["prefix", "fcfs", "priority"]),
        max_overtakes=rng.randint(0, 6),
        shared_tokens=rng.randint(1, 9),
        windows=(0,) if tiers else rng.choice(WINDOWS),
        state_pages=0 if tiers else rng.choice([0, 0, 0, 1]),
        below=below_of(rng) if tiers else NOTHING_BELOW,
    )
    return world.optimistic() if rng.random() < 0.7 else world


def submit(world: World, rng: random.Random) -> None:
    prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 14))]
    sampling = m.Sampling(seed=rng.randrange(4), logprobs=rng.choice([None, None, 1]))
    fields = {"cache_salt": rng.choice(["", "", "ours"]), "priority": rng.choice([0, 0, -1, 1])}
    beams = m.Beams(rng.randint(1, 3), 1) if rng.random() < 0.1 else None
    limit = rng.choice([None, *range(20)])
    leader = world.submit(
        prompt, limit, tuple(rng.sample(range(12), 2)), sampling=sampling, beams=beams, **fields
    )
    if beams is None and rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            world.submit(prompt, limit, (), rng.randrange(4), leader=leader, **fields)


def cut(world: World, rng: random.Random) -> None:
    uid = rng.randint(1, max(1, len(world.streams)))
    stream = world.streams.get(uid)
    if stream is None or stream.end is not None or stream.silenced:
        return
    world.abort(uid) if rng.random() < 0.5 else world.stop(uid)


def move(world: World, rng: random.Random) -> None:
    """Transfers and the disk's moves come about at any time, and the latter may fail."""
    lower = world.lower
    if lower.transfers and rng.random() < 0.5:
        lower.transfer()
    elif lower.disk_moves:
        lower.answer(rng.randrange(100), fails=rng.random() < 0.2)


def operate(world: World, rng: random.Random) -> None:
    match rng.choices(
        ("submit", "plan", "report", "turn", "move", "cut", "flush", "hurry", "lose"),
        (14, 25, 25, 30, 10, 4, 1, 0.1, 0.2),
    )[0]:
        case "submit":
            submit(world, rng)
        case "plan":
            world.plan()
        case "report" if world.flying:
            world.report()
        case "turn":
            world.turn()
        case "move":
            move(world, rng)
        case "cut":
            cut(world, rng)
        case "flush":
            world.core.flush_cache()
        case "hurry":
            world.core.hurry()
        case "lose":
            rng.choice([world.restart, world.lose_scheduler])()


def compare(world: World) -> int:
    world.drain()
    for uid, stream in world.streams.items():
        if stream.end is not None and stream.end.reason in ("stop", "length"):
            assert world.output(uid) == world.expect(uid), f"request {uid}"
    return len(world.streams)


def main(operations: int, seed: int = 0, every: int = 1) -> None:
    rng, started, requests = random.Random(seed), time.monotonic(), 0
    for episode in range(operations // EPISODE):
        state = rng.getrandbits(64)
        own = random.Random(state)
        try:
            world = world_of(own)
            for number in range(EPISODE):
                operate(world, own)
                if number % every == 0:
                    world.core.check()
            requests += compare(world)
            if episode % 100 == 99:
                print(f"{(episode + 1) * EPISODE} operations, {requests} requests", flush=True)
        except BaseException:
            print(f"episode {episode}, seed {state}", flush=True)
            raise
    seconds = time.monotonic() - started
    print(f"{operations} operations, {requests} requests, {seconds:.0f} s: clean")


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(int, sys.argv[2:]))
