from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stretto.kernels.sample import State
from stretto.kernels.sample.reference import sample
from stretto.roles import messages as m
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.models.interface import Context, Logits
from stretto.roles.executor.runner import Runner

GREEDY = m.Sampling()


class Counter:
    """Says `t + p + 1` modulo 32 after token `t` at position `p`, and keeps the tokens as keys."""

    vocab_size, kv_windows, state_pages, kv_layers, kv_heads, head_dim = 32, (0,), 0, 1, 1, 1
    dtype = kv_dtype = torch.float32

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before
        self.ids: list[list[int]] = []

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        self.before()
        self.ids.append(ids.tolist())
        cache.keys.view(-1)[context.cells] = ids.float()
        following = (ids + context.positions + 1).long() % 32
        return lambda rows: torch.nn.functional.one_hot(following[rows], 32).float()


def held(bench: Any, slot: int) -> list[int]:
    """The tokens that the pool holds for a slot."""
    keys = bench.runner._cache.keys[0, :, :, 0, 0]
    return keys[bench.pages[slot]].flatten()[: bench.lengths[slot]].int().tolist()


def test_chunks_and_decodes_advance_a_slot(make_bench: Any) -> None:
    model = Counter()
    bench = make_bench(model, page_size=2)
    assert bench.step([(3, [5, 6, 7], False)], admits={3: GREEDY}) == []
    assert bench.step([(3, [8], True)]) == [12]
    assert bench.step(decodes=[3]) == [17]
    assert bench.step(decodes=[3]) == [23]
    assert model.ids == [[5, 6, 7], [8], [12], [17]]
    assert held(bench, 3) == [5, 6, 7, 8, 12, 17]


def test_a_mixed_step_returns_chunk_tokens_then_decode_tokens(make_bench: Any) -> None:
    bench = make_bench(Counter())
    assert bench.step([(0, [1], True), (1, [2], True)], admits={0: GREEDY, 1: GREEDY}) == [2, 3]
    chunks = [(2, [9, 10], True), (3, [4], False)]
    assert bench.step(chunks, decodes=[1, 0], admits={2: GREEDY, 3: GREEDY}) == [12, 5, 4]


def test_a_reused_slot_starts_afresh(make_bench: Any) -> None:
    bench = make_bench(Counter(), page_size=2)
    bench.step([(0, [1, 2, 3], True)], admits={0: GREEDY})
    bench.step(decodes=[0])
    assert bench.step([(0, [20], True)], admits={0: GREEDY}) == [21]
    assert bench.step(decodes=[0]) == [23]
    assert held(bench, 0) == [20, 21]


def test_an_admit_may_bring_pages_that_hold_a_prefix(make_bench: Any) -> None:
    bench = make_bench(Counter(), page_size=2)
    bench.step([(0, [1, 2, 3], True)], admits={0: GREEDY})
    pages = np.array(bench.pages[0], np.int32).tobytes()
    plan = m.Plan(
        step=2,
        admits=[m.Admit(1, 2, pages, GREEDY)],
        chunks=np.array([1, 1, 1], np.int32).tobytes(),
        chunk_ids=np.array([7], np.int32).tobytes(),
    )
    bench.runner.launch(plan)
    assert np.frombuffer(bench.result().tokens, np.int32).tolist() == [10]
    assert bench.runner._cache.keys[0, bench.pages[0][1], 0, 0, 0] == 7


def test_pages_are_copied_before_the_step_writes(make_bench: Any) -> None:
    bench = make_bench(Counter(), page_size=4)
    bench.step([(0, [1, 2, 3], True)], admits={0: GREEDY})
    source, target = bench.pages[0][0], bench.free.pop()
    bench.step(copies=[(source, target)], decodes=[0])
    keys = bench.runner._cache.keys[0, :, :, 0, 0]
    assert keys[target, :3].tolist() == [1, 2, 3]
    assert keys[target, 3].isnan()
    assert keys[source].tolist() == [1, 2, 3, 6]


def test_a_plan_without_rows_has_a_result(make_bench: Any) -> None:
    bench = make_bench(Counter())
    assert bench.step() == []
    assert bench.step(admits={1: GREEDY}) == []


def test_steps_run_on_the_stream_that_is_given(make_bench: Any, tiny: Any) -> None:
    given: list[Any] = []

    def kind(device: Any, **rest: Any) -> Runner:
        given.append(device.stream())
        return Runner(device, **rest, stream=given[0])

    bench = make_bench(tiny, runner=kind)
    assert bench.runner._stream is given[0]
    assert bench.generate([[3, 1]], 3) == make_bench(tiny).generate([[3, 1]], 3)


def test_two_steps_are_in_flight_and_not_three(make_bench: Any) -> None:
    gate = threading.Event()
    bench = make_bench(Counter(before=gate.wait))
    runner = bench.runner
    runner.launch(bench.plan([(0, [1], True)], admits={0: GREEDY}))
    assert runner.ready
    runner.launch(bench.plan(decodes=[0]))
    assert (runner.in_flight, runner.ready, runner.collect()) == (2, False, [])
    with pytest.raises(RuntimeError, match="plan 3 with 2 steps in flight"):
        runner.launch(bench.plan(decodes=[0]))
    with pytest.raises(RuntimeError, match="reset with 2 steps in flight"):
        runner.reset()
    gate.set()
    while runner.in_flight:
        bench.landed.wait()
        bench.landed.clear()
        runner.collect()
    assert runner.ready


def run_ahead(bench: Any, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Tokens of each prompt, every step launched before the result of the one before it is read."""
    slots = list(range(len(prompts)))
    chunks = [(slot, prompts[slot], True) for slot in slots]
    first = {"chunks": chunks, "admits": dict.fromkeys(slots, GREEDY)}
    results = bench.run_ahead([first, *[{"decodes": slots}] * (count - 1)])
    assert [result.step for result in results] == list(range(1, count + 1))
    return np.array([np.frombuffer(result.tokens, np.int32) for result in results]).T.tolist()


def test_one_step_ahead_gives_the_tokens_of_one_at_a_time(make_bench: Any, tiny: Any) -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    expected = make_bench(tiny).generate(prompts, 24)
    assert run_ahead(make_bench(tiny, page_size=1), prompts, 24) == expected


def test_seeded_tokens_depend_on_seed_and_position_alone(make_bench: Any, tiny: Any) -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [3, 1, 4]]
    sampling = {"temperature": 1.5, "seed": 2**63 + 11}
    together = make_bench(tiny).generate(prompts, 24, chunk=2, **sampling)
    assert together[0] == together[2]
    assert make_bench(tiny).generate(prompts[:1], 24, **sampling) == together[:1]
    assert make_bench(tiny).generate(prompts[:1], 24, temperature=1.5, seed=5) != together[:1]


def test_steps_in_flight_keep_their_tokens_apart(make_bench: Any) -> None:
    gate = threading.Event()
    bench = make_bench(Counter(before=gate.wait))
    bench.runner.launch(bench.plan([(0, [1], True)], admits={0: GREEDY}))
    bench.runner.launch(bench.plan(decodes=[0]))
    gate.set()
    while not bench.runner._steps[1].landed.done:
        bench.landed.wait()
        bench.landed.clear()
    tokens = [np.frombuffer(result.tokens, np.int32).tolist() for result in bench.runner.collect()]
    assert tokens == [[2], [4]]


def test_a_token_is_drawn_at_its_own_place_in_the_sequence(make_bench: Any) -> None:
    class Flat(Counter):
        def __call__(self, *args: Any) -> Logits:
            logits = super().__call__(*args)
            return lambda rows: torch.zeros_like(logits(rows))

    (tokens,) = make_bench(Flat()).generate([[1, 2, 3]], 8, temperature=1.0, seed=5)
    logits, positions, expected = torch.zeros(8, 32), torch.arange(3, 11), torch.empty(8, dtype=torch.int32)
    one, none, none_int = torch.ones(1), torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    state = State(one, none_int, one, none, torch.tensor([5]), none_int)
    sample(logits, torch.zeros(8, dtype=torch.int64), positions, state, expected)
    assert tokens == expected.tolist()


def test_a_failed_row_is_reported_and_the_next_step_survives_it(make_bench: Any) -> None:
    class Broken(Counter):
        def __call__(self, *args: Any) -> Logits:
            logits = super().__call__(*args)
            failed = torch.tensor([[float("nan")], [0.0]]) if len(self.ids) == 1 else 0.0
            return lambda rows: logits(rows) + failed

    model = Broken()
    bench = make_bench(model)
    assert bench.step([(0, [4], True), (1, [4], True)], admits={0: GREEDY, 1: GREEDY}) == [-1, 5]
    assert bench.step(decodes=[0, 1]) == [2, 7]
    assert model.ids[1] == [0, 5]


def test_what_the_device_raises_is_raised_to_the_role(make_bench: Any) -> None:
    def fail() -> None:
        raise ArithmeticError("seven")

    bench = make_bench(Counter(before=fail))
    bench.runner.launch(bench.plan([(0, [1], True)], admits={0: GREEDY}))
    bench.landed.wait()
    with pytest.raises(ArithmeticError, match="seven"):
        bench.runner.collect()


def test_a_write_without_a_page_is_refused(make_bench: Any) -> None:
    bench = make_bench(Counter(), page_size=1)
    plan = bench.plan([(0, [1, 2], True)], admits={0: GREEDY})
    plan = m.Plan(step=1, admits=plan.admits, chunks=plan.chunks, chunk_ids=plan.chunk_ids)
    with pytest.raises(RuntimeError, match="slot 0 has no page for position 0"):
        bench.runner.launch(plan)


def test_the_clock_tells_order_and_idleness(make_bench: Any) -> None:
    bench = make_bench(Counter())
    clocks = []
    for cold in (False, False, True):
        admits = {0: GREEDY} if not clocks else None
        bench.runner.launch(bench.plan([(0, [1], True)], admits=admits, cold=cold))
        clocks.append(bench.result().clock)
    assert all(clock.queued <= clock.started <= clock.ended for clock in clocks)
    assert clocks[0].idle == 0
    assert clocks[1].idle == clocks[1].started - clocks[0].ended
    assert clocks[2].idle == 0


def test_after_a_reset_slots_are_empty_and_nothing_was_before(make_bench: Any) -> None:
    bench = make_bench(Counter())
    bench.step([(0, [1], True)], admits={0: GREEDY})
    bench.runner.reset()
    with pytest.raises(RuntimeError, match="no page"):
        bench.runner.launch(m.Plan(step=1, decodes=np.array([0], np.int32).tobytes()))
    bench.runner.reset()
    bench.runner.launch(bench.plan([(0, [1], True)], admits={0: GREEDY}))
    assert bench.result().clock.idle == 0


class Summer(Counter):
    """Says the sum of all tokens so far, modulo 32, which it carries along in the second page of a state."""

    state_pages = 2

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        assert context.states is not None
        sums = torch.zeros(len(ids), dtype=torch.int64)
        starts = context.query_starts.tolist()
        for index, page in enumerate(context.states[:, 1].tolist()):
            fed = slice(starts[index], starts[index + 1])
            carried = cache.keys[0, page, 0, 0] if context.positions[fed][0] > 0 else torch.zeros(1)
            sums[fed] = ids[fed].long().cumsum(0) + int(carried)
            cache.keys[0, page, 0, 0] = sums[fed][-1].float()
        return lambda rows: torch.nn.functional.one_hot(sums[rows] % 32, 32).float()


def sums(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % 32)
    return tokens[len(prompt) :]


def test_a_state_of_fixed_size_is_carried_along(make_bench: Any) -> None:
    prompts = [[3, 4, 5, 6, 7], [9], [1, 2]]
    bench = make_bench(Summer(), page_size=2)
    for _ in range(2):  # slots are used again, and so are the pages of their states
        assert bench.generate(prompts, 6, chunk=2) == [sums(prompt, 6) for prompt in prompts]
