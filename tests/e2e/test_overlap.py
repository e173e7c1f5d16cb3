"""One step ahead, by the clocks of the results."""

from concurrent.futures import ThreadPoolExecutor


def test_the_next_plan_is_queued_before_the_running_step_ends(server):
    before = server.metrics()
    with ThreadPoolExecutor(8) as pool:
        prompts = [f"Story number {i}: once upon a time" for i in range(8)]
        list(pool.map(lambda prompt: server.complete(prompt, max_tokens=120, ignore_eos=True), prompts))
    after = server.metrics()
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["stretto_steps_followed_total"] >= 100
    assert grown["stretto_steps_ahead_total"] >= 0.99 * grown["stretto_steps_followed_total"]
    assert grown["stretto_device_busy_seconds_total"] > 0
    assert grown["stretto_device_idle_seconds_total"] >= 0
    assert grown["stretto_generated_tokens_total"] == 8 * 120


def test_without_overlap_no_plan_is_ahead(start):
    server = start("--no-overlap")
    server.complete("Once upon a time", max_tokens=20, ignore_eos=True)
    metrics = server.metrics()
    server.stop()
    assert metrics["stretto_steps_followed_total"] >= 19
    assert metrics["stretto_steps_ahead_total"] == 0
