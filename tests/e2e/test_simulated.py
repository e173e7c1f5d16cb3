"""The real server on a GPU that is not there."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from stretto.bench.simulated import served

SIM = ("--device", "sim", "--max-seqs", "16", "--max-batched-tokens", "2048")


@pytest.fixture(scope="module")
def sim(start):
    server = start(*SIM, "--sim-gpu", "h200", "--sim-model", "llama-3-8b", "--sim-output-tokens", "12")
    yield server
    server.stop()


def grown(server, run):
    """What `run` returns, and by how much it moved the server's counters."""
    before = server.metrics()
    result = run()
    return result, {
        name.removeprefix("stretto_"): value - before.get(name, 0.0)
        for name, value in server.metrics().items()
    }


def ids(answer):
    return answer["choices"][0]["token_ids"]


def test_tokens_follow_from_the_seed_alone(sim):
    one, other = (
        ids(sim.complete(prompt, max_tokens=8, temperature=1, seed=5)) for prompt in ("Once upon", "a time")
    )
    assert one == other
    assert one != ids(sim.complete("Once upon", max_tokens=8, temperature=1, seed=6))


def test_outputs_end_by_themselves_where_they_should(sim):
    answer = sim.complete("Once upon a time", max_tokens=40)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert len(ids(answer)) == 12
    assert ids(answer)[-1] == 2


def test_a_stop_that_is_learnt_late_wastes_one_token_at_most_and_a_length_none(sim):
    def four(**fields):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: sim.complete(f"Story {i}:", **fields), range(4)))

    _, stopped = grown(sim, lambda: four(max_tokens=40))
    assert stopped["generated_tokens_total"] == 4 * 12
    assert stopped["wasted_tokens_total"] <= 4  # fewer where the scheduler was not a step ahead
    _, limited = grown(sim, lambda: four(max_tokens=10))
    assert (limited["generated_tokens_total"], limited["wasted_tokens_total"]) == (4 * 10, 0)


def test_steps_take_no_less_than_the_time_of_the_gpu(sim):
    _, change = grown(sim, lambda: sim.complete("Once upon a time", max_tokens=10))
    assert change["steps_total"] == 10
    # 9 launches for each of 32 layers and 4 more, and the weights of 15 GB once, at 4.8 TB/s
    step = 292 * 0.5e-6 + 15_009_849_344 / 4.8e12
    assert change["device_busy_seconds_total"] >= 10 * step


def test_the_pool_is_that_of_the_gpu_and_takes_no_memory(sim):
    assert sim.metrics()["stretto_kv_pages"] == 50_639
    executor = sim.family()["executor"]
    assert executor.memory_info().rss < 2 << 30


def test_the_bench_serves_and_tells_what_the_device_did():
    figures = served(4, 24, "--sim-step-ms", "5", "--no-overlap")
    assert figures["ms_per_step"] >= 4.999
    assert figures["ahead"] == 0.0
    assert 0.0 < figures["idle_share"] < 1.0
    assert 0.0 < figures["tokens_per_s"] < 4 / 0.005
