import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stretto.bench import plot, report
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options, table

CHART = Chart("Title", "bars", ["a", "b"], {"one": [1.0, 2.0], "two": [3.0, 4.0]})


@click.command()
@report_options
def command(json_file: Path | None, plot_file: Path | None) -> None:
    Report("name", json_file, plot_file).publish({"figure": 1}, CHART)


def test_figures_are_written_with_the_machine(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out.json").read_text())
    assert (written["bench"], written["figure"]) == ("name", 1)
    assert {"cpu", "cores", "memory_gib", "load_average", "commit", "python", "versions"} == set(
        written["machine"]
    )


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plot, "available", lambda: False)
    result = CliRunner().invoke(command, ["--plot", str(tmp_path / "out.png")])
    assert result.exit_code == 2
    assert "--plot needs matplotlib, which is not installed: pip install matplotlib" in result.output


@pytest.mark.parametrize(
    "chart",
    [
        CHART,
        Chart("Lines", "lines", [1, 10], {"one": [1.0, 2.0]}, "x", "y", True, True),
        Chart("Shares", "shares", (), {"one": [1.0, 2.0, 5.0]}, log_x=True),
    ],
)
def test_charts_of_every_kind_are_drawn(chart: Chart, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.draw(chart, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("busy", "words"), [(True, "figures taken now are not comparable"), (False, "")])
def test_a_busy_machine_is_told(
    busy: bool, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "is_busy", lambda: busy)
    Report("name")
    said = capsys.readouterr().err
    assert words in said
    assert bool(said) == busy


def test_columns_are_aligned() -> None:
    assert (
        table(("ms", "p50"), [("TTFT", "7.5"), ("E2E", "100.0")]) == "ms      p50\nTTFT    7.5\nE2E   100.0"
    )


def test_progress_passes_items_through() -> None:
    assert list(progress(range(3))) == [0, 1, 2]
