import json
from pathlib import Path

from click.testing import CliRunner

from stretto.bench.simulated import figures_of, main


def test_figures_come_from_the_counters_growth() -> None:
    before = {"stretto_steps_total": 5.0, "stretto_device_busy_seconds_total": 1.0}
    after = {
        "stretto_steps_total": 105.0,
        "stretto_device_busy_seconds_total": 2.0,
        "stretto_device_idle_seconds_total": 0.25,
        "stretto_steps_ahead_total": 45.0,
        "stretto_steps_followed_total": 90.0,
        "stretto_generated_tokens_total": 2500.0,
    }
    assert figures_of(before, after) == {
        "idle_share": 0.2,
        "ahead": 0.5,
        "ms_per_step": 10.0,
        "idle_us_per_step": 2500.0,
        "tokens_per_s": 2000.0,
    }


def test_the_textbook_needs_no_server(tmp_path: Path) -> None:
    file = tmp_path / "simulated.json"
    done = CliRunner().invoke(main, ["--textbook", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:]] == [
        "89.55%", "58.82%", "0.45%", "0.00%", "12.50%", "0.00%",
    ]  # fmt: skip
    assert json.loads(file.read_text())["textbook"]["device busy"]["in turn"] == 60 / 102
