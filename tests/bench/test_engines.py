import sys
from pathlib import Path

import click
import pytest

from stretto.bench import engines
from stretto.roles.actor import SetupError

RUNNER = """
import json, sys
_, engine, model, threads = sys.argv
print(json.dumps({"engine": engine, "version": "1", "model": model, "threads": threads}), flush=True)
for line in sys.stdin:
    work = json.loads(line)
    if work["output_tokens"] == 99:
        sys.exit(3)
    tokens = len(work["prompts"]) * work["output_tokens"]
    print(json.dumps({"seconds": 0.5, "output_tokens": min(tokens, 50)}), flush=True)
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runner.py").write_text(RUNNER)
    monkeypatch.setattr(engines, "RUNNER", tmp_path / "runner.py")


@pytest.mark.usefixtures("runner")
def test_an_engine_is_told_its_work_and_tells_its_time() -> None:
    with engines.peer("vllm", Path(sys.executable), "model", 2) as peer:
        assert peer.facts == {"engine": "vllm", "version": "1", "model": "model", "threads": "2"}
        assert peer.run([[1, 2], [3, 4]], 5) == 20.0
        assert peer.run([[1, 2]], 5) == 10.0


@pytest.mark.usefixtures("runner")
def test_an_engine_that_does_less_than_was_asked_is_no_rival() -> None:
    with (
        engines.peer("vllm", Path(sys.executable), "model", 2) as peer,
        pytest.raises(SetupError, match="vllm made 50 tokens where 60 were asked for"),
    ):
        peer.run([[1]] * 2, 30)


@pytest.mark.usefixtures("runner")
def test_an_engine_that_ends_is_told() -> None:
    with (
        engines.peer("vllm", Path(sys.executable), "model", 2) as peer,
        pytest.raises(SetupError, match="vllm ended with status 3"),
    ):
        peer.run([[1]], 99)


def test_engines_that_are_not_installed_are_left_out(tmp_path: Path) -> None:
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert engines.installed(tmp_path) == {"vllm": python}


def test_an_interpreter_may_be_anywhere() -> None:
    assert engines.named([f"openvino={sys.executable}"]) == {"openvino": Path(sys.executable)}


@pytest.mark.parametrize("text", ["openvino", "openvino=/nowhere", f"other={sys.executable}"])
def test_an_engine_that_cannot_be_run_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--engine"):
        engines.named([text])
