"""Replayed steps give the bits of steps that were not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stretto.roles import messages as m
from stretto.roles.executor.models.replay import MOST, Replay


def random_ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(model: Any, make_bench: Any, recorder: Any, replayed: bool, **pool: Any) -> list[torch.Tensor]:
    """Logits of decodes of 1 to 3 sequences, between prefills; the numbers of rows come again and again."""
    replay, model._replay = model._replay, model._replay if replayed else None
    recorded = recorder(model)
    bench = make_bench(recorded, **pool)
    for slot in range(3):
        bench.step([(slot, random_ids(20 + 30 * slot, slot), True)], admits={slot: m.Sampling()})
        for rows in range(slot + 1):
            bench.step(decodes=list(range(rows + 1)))
            bench.step(decodes=list(range(rows, -1, -1)))
    model._replay = replay
    return recorded.calls


@pytest.mark.parametrize(
    "options", [{}, {"quantization": "int4"}, {"kv_dtype": torch.float16}, {"kv_dtype": torch.float8_e4m3fn}]
)
def test_decodes_are_replayed_with_the_bits_of_other_steps(
    options: dict[str, Any], make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    model = load_model(make_tiny(), **options)
    for page_size in (16, 5):
        pool = {"page_size": page_size}
        plain = run(model, make_bench, recorder, replayed=False, **pool)
        replayed = run(model, make_bench, recorder, replayed=True, **pool)
        assert all(map(torch.equal, plain, replayed))
    assert sorted(model._replay._programs) == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"quantization": "int8", "kv_dtype": torch.float16}])
def test_decodes_of_a_model_with_norms_of_heads_are_replayed_with_the_bits_of_other_steps(
    options: dict[str, Any], make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    model = load_model(make_tiny("Qwen3", head_dim=32), **options)
    plain = run(model, make_bench, recorder, replayed=False)
    assert all(map(torch.equal, plain, run(model, make_bench, recorder, replayed=True)))
    assert sorted(model._replay._programs) == [1, 2, 3]


@pytest.mark.parametrize("layers", [4, 2])
def test_decodes_of_layers_with_windows_are_replayed_with_the_bits_of_other_steps(
    layers: int, make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"][:layers]
    more = {"use_sliding_window": True, "sliding_window": 12, "layer_types": kinds}
    model = load_model(make_tiny("Qwen2", num_hidden_layers=layers, **more))
    plain = run(model, make_bench, recorder, replayed=False)
    assert all(map(torch.equal, plain, run(model, make_bench, recorder, replayed=True)))
    assert sorted(model._replay._programs) == [1, 2, 3]


def test_recordings_survive_larger_steps(
    make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    model = load_model(make_tiny())
    recorded = recorder(model)
    bench = make_bench(recorded)
    bench.step([(0, random_ids(10), True)], admits={0: m.Sampling()})
    bench.step(decodes=[0])
    programs = dict(model._replay._programs)
    bench.step([(1, random_ids(200, 1), True)], admits={1: m.Sampling()})
    bench.step(decodes=[0])
    assert model._replay._programs == programs
    whole = recorder(model)
    make_bench(whole).step([(0, random_ids(10) + bench_tokens(recorded), True)], admits={0: m.Sampling()})
    assert torch.equal(whole.calls[0][0], recorded.calls[-1][0])


def bench_tokens(recorded: Any) -> list[int]:
    """What slot 0 was fed after its prompt: the favourites of its first two steps."""
    return [int(recorded.calls[0][0].argmax()), int(recorded.calls[1][0].argmax())]


def test_a_model_that_does_some_of_it_in_torch_is_not_replayed(
    make_tiny: Any, load_model: Any, make_bench: Any
) -> None:
    model = load_model(make_tiny(), kv_dtype=torch.bfloat16)  # no kernel has such a cache
    (tokens,) = make_bench(model).generate([random_ids(9)], 5)
    assert len(tokens) == 5
    assert model._replay._whole is False


def test_steps_with_too_many_rows_are_not_taken(make_tiny: Any, load_model: Any, make_bench: Any) -> None:
    model = load_model(make_tiny())
    assert isinstance(model._replay, Replay)
    slots = MOST + 1
    make_bench(model, slots=slots, max_len=64).generate([[n % 200] for n in range(slots)], 2)
    assert model._replay._programs == {}


def test_mixed_steps_in_one_entry_of_the_pool_have_the_bits_of_others(
    make_tiny: Any, load_model: Any, make_bench: Any, recorder: Any
) -> None:
    model = load_model(make_tiny(), quantization="int8")
    steps = [[(0, random_ids(5), True)], [(1, random_ids(40, 1), False)], [(1, random_ids(30, 2), True)]]

    def logits() -> list[torch.Tensor]:
        recorded = recorder(model)
        bench = make_bench(recorded)
        for number, chunks in enumerate(steps):
            admits = {number: m.Sampling()} if number < 2 else {}
            bench.step(chunks, decodes=[0] if number else [], admits=admits)
        return recorded.calls

    replayed = logits()
    assert model._replay._whole is True
    model._replay = None
    assert all(map(torch.equal, replayed, logits()))


def test_layers_that_change_their_calls_are_an_error(
    make_tiny: Any, load_model: Any, make_bench: Any
) -> None:
    model = load_model(make_tiny())
    bench = make_bench(model)
    bench.step([(0, random_ids(5), True)], admits={0: m.Sampling()})
    model._layers.pop()
    model._places = model._places[:-1]
    with pytest.raises(RuntimeError, match="kernel calls in a network that makes"):
        bench.step([(1, random_ids(5), True)], admits={1: m.Sampling()})
