import json
from pathlib import Path

from click import Context
from click.testing import CliRunner

from stretto.bench.plan import plan_command
from stretto.supervisor import main

FEW = ["--requests", "4", "--prompt", "20", "--output", "4"]


def test_plan_is_a_command_of_stretto() -> None:
    assert main.get_command(Context(main), "plan") is plan_command


def test_a_table_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = CliRunner().invoke(plan_command, [*FEW, "--rate", "3", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("llama-3-8b on h200: ")
    figures = json.loads(file.read_text())
    assert figures["bench"] == "plan"
    assert figures["settings"]["gpu"] == "h200"
    assert [(each["rate"], each["answered"]) for each in figures["forecasts"]] == [(3.0, 4)]


def test_the_same_seed_gives_the_same_plan() -> None:
    outputs = {CliRunner().invoke(plan_command, [*FEW, "--spread", "0.5"]).stdout for _ in range(2)}
    assert len(outputs) == 1


def test_what_cannot_be_had_is_said_in_one_sentence() -> None:
    done = CliRunner().invoke(plan_command, ["--gpu", "l40s", "--model", "llama-3-70b"])
    assert done.exit_code == 1
    assert "the weights take 141.1 GB and the GPU has 48 GB" in done.output
    assert "no model 'gpt-5' to simulate" in CliRunner().invoke(plan_command, ["--model", "gpt-5"]).output
