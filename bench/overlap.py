"""How far ahead of the device the scheduler is: steps whose plan was queued in time, device idle share.

    python -m stretto.bench.overlap [--json FILE]

Eight sequences decode at once on a real server, one step ahead and then with --no-overlap; the figures come
from the results' clocks, through `/metrics`.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stretto.bench.launch import Launch, launch, machine

SEQUENCES = 8
TOKENS = 128


def main() -> None:
    """Measure both ways and print a table; with `--json FILE` write the figures there."""
    figures: dict[str, Any] = {"machine": machine(), "sequences": SEQUENCES, "tokens": TOKENS}
    for name, option in (("one step ahead", "--overlap"), ("in turn", "--no-overlap")):
        with launch(option) as server:
            _load(server)  # warms caches and the clock of the processor
            before = server.metrics()
            _load(server)
            figures[name] = _figures(before, server.metrics())
    print(f"{'':<16}{'plans ahead':>12}{'device idle':>13}{'tokens/s':>10}{'ms/step':>9}")
    for name in ("one step ahead", "in turn"):
        row = figures[name]
        print(
            f"{name:<16}{row['ahead']:>11.1%}{row['idle_share']:>13.2%}"
            f"{row['tokens_per_s']:>10.1f}{row['ms_per_step']:>9.2f}"
        )
    if "--json" in sys.argv:
        with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
            json.dump(figures, file, indent=1)


def _load(server: Launch) -> None:
    """Eight greedy completions at once."""

    def one(i: int) -> None:
        body = {"model": "SmolLM2-135M-Instruct", "prompt": f"Story {i}:", "max_tokens": TOKENS}
        body |= {"ignore_eos": True, "temperature": 0}
        request = urllib.request.Request(
            server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request).read()

    with ThreadPoolExecutor(SEQUENCES) as pool:
        list(pool.map(one, range(SEQUENCES)))


def _figures(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    busy, idle = grown["stretto_device_busy_seconds_total"], grown["stretto_device_idle_seconds_total"]
    return {
        "ahead": grown["stretto_steps_ahead_total"] / grown["stretto_steps_followed_total"],
        "idle_share": idle / (idle + busy),
        "tokens_per_s": grown["stretto_generated_tokens_total"] / (idle + busy),
        "ms_per_step": 1000 * busy / grown["stretto_steps_total"],
    }


if __name__ == "__main__":
    main()
