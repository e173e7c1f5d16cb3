"""The load generator against the real server, on a scripted model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from e2e.serving import Server
from scripted import make_model

from stretto.bench.cli import bench_command

WORDLESS = [ord("a"), 0xF0, 0x9F, 0x99, 0x82]
"""After any prompt: a letter, then bytes of a character that has no text before the last."""
SMALL = ["--vocabulary", "200", "--input-tokens", "12", "--output-tokens", "6"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), [WORDLESS])


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    server = Server(str(model), "--kv-memory", "16384tokens")
    try:
        yield server.wait_ready().url
    finally:
        server.stop()


def bench(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """What a bench prints and what it writes."""
    file = tmp_path / "out.json"
    result = CliRunner().invoke(bench_command, [*arguments, "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output, json.loads(file.read_text())


@pytest.mark.parametrize("transport", ["http", "websocket"])
def test_every_request_is_answered_with_all_its_tokens(url: str, transport: str, tmp_path: Path) -> None:
    seed = {"http": "1", "websocket": "2"}[transport]  # prompts that the other test has not left in the cache
    load = ["--requests", "5", "--concurrency", "2", "--slo-ttft", "1e6", "--seed", seed, *SMALL]
    shown, figures = bench(tmp_path, "serve", "--url", url, "--transport", transport, *load)
    assert (figures["answered"], figures["failed"]) == (5, 0)
    assert figures["output_tokens_per_s"] * figures["seconds"] == pytest.approx(30)
    assert figures["total_tokens_per_s"] * figures["seconds"] == pytest.approx(90)
    assert figures["goodput_per_s"] == figures["requests_per_s"]
    assert figures["cache_hit_rate"] < 0.1
    assert figures["load_generator"]["cpu_seconds"] > 0
    for name in ("TTFT", "TPOT", "ITL", "E2E", "goodput, requests/s", "device idle"):
        assert f"\n{name}  " in shown


def test_conversations_find_what_was_said_in_the_cache(url: str, tmp_path: Path) -> None:
    load = [
        "--workload",
        "multi-turn",
        "--turns",
        "3",
        "--requests",
        "2",
        "--rate",
        "50",
        "--seed",
        "7",
        *SMALL,
    ]
    _, figures = bench(tmp_path, "serve", "--url", url, *load)
    assert figures["answered"] == 6
    # Prompts of 12, 30 and 48 tokens; of the second and third all was seen but 12 and the last answer's last.
    assert figures["cache_hit_rate"] == pytest.approx((17 + 35) / 90, abs=0.05)


def test_a_shared_prefix_is_computed_once(url: str, tmp_path: Path) -> None:
    load = ["--workload", "shared-prefix", "--prefix-tokens", "100", "--requests", "4", "--concurrency", "1"]
    _, figures = bench(tmp_path, "serve", "--url", url, *load, *SMALL, "--seed", "8")
    assert figures["cache_hit_rate"] == pytest.approx(300 / 448, abs=0.02)


def test_a_trace_sets_times_and_lengths(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"arrival": 0.2, "prompt": "Hello", "output_tokens": 4},
        {"prompt_tokens": 7, "output_tokens": 1},
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    _, figures = bench(tmp_path, "serve", "--url", url, "--trace", str(trace), "--vocabulary", "200")
    assert (figures["answered"], figures["settings"]["trace"]) == (2, str(trace))
    assert figures["output_tokens_per_s"] * figures["seconds"] == pytest.approx(5)
    assert figures["seconds"] > 0.19


def test_refusals_are_counted_and_shown(url: str) -> None:
    load = ["--vocabulary", "1000000", "--requests", "3", "--warmup", "0"]
    result = CliRunner().invoke(bench_command, ["serve", "--url", url, *load])
    assert result.exit_code == 1
    assert "every request failed; the first: HTTP 400: " in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rate", "1", "--concurrency", "1"], "choose one: --rate"),
        (["--workload", "multi-turn", "--no-token-ids"], "multi-turn needs token ids"),
        (["--url", "ftp://host"], "is not a server's address"),
        (["--url", "http://127.0.0.1:9"], "nothing listens at http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(bench_command, ["serve", *arguments])
    assert result.exit_code != 0
    assert complaint in result.output


def test_latency_asks_one_at_a_time_of_a_server_of_its_own(model: Path, tmp_path: Path) -> None:
    _, figures = bench(tmp_path, "latency", str(model), "--requests", "3", "--max-seqs", "4", *SMALL)
    assert (figures["answered"], figures["settings"]["server"]) == (3, {"max_seqs": 4})
    assert figures["ttft_ms"]["p50"] <= figures["e2e_ms"]["p50"]
    assert figures["seconds"] >= 3 * figures["e2e_ms"]["mean"] / 1e3


def test_throughput_counts_every_repeat(model: Path, tmp_path: Path) -> None:
    repeats = ["--repeats", "2", "--requests", "3"]
    shown, figures = bench(tmp_path, "throughput", str(model), *repeats, *SMALL)
    counts = [(b["requests"], b["prompt_tokens"], b["output_tokens"]) for b in figures["batches"]]
    assert counts == [(3, 36, 18)] * 2
    assert "\noutput tokens/s" in shown
