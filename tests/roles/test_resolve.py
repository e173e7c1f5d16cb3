from pathlib import Path

import pytest

from stretto.roles.actor import SetupError
from stretto.roles.config import Config
from stretto.roles.resolve import resolve


def context(**more: object) -> int:
    return resolve(Config(**more), lambda line: None).max_model_len


def test_the_context_is_that_of_the_model_that_runs(model_dir: Path) -> None:
    assert context() == 8192
    assert context(max_model_len=100) == 100
    assert context(device="sim", sim_model="llama-3.1-8b") == 131_072


def test_a_context_beyond_the_model_that_runs_is_refused(model_dir: Path) -> None:
    with pytest.raises(SetupError, match="choose at most 8192"):
        context(max_model_len=8193)
    assert context(device="sim", sim_model="qwen3-4b", max_model_len=8193) == 8193


def test_a_model_that_cannot_be_simulated_is_refused_at_once(model_dir: Path) -> None:
    with pytest.raises(SetupError, match="no model 'nothing' to simulate"):
        context(device="sim", sim_model="nothing")


def test_spinning_is_refused_where_roles_would_fight_for_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(5)))
    with pytest.raises(SetupError, match="--spin-us needs a core for each of the 5 roles and one to spare"):
        resolve(Config(spin_us=50), lambda line: None)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))
    assert resolve(Config(spin_us=50, device="sim"), lambda line: None).spin_us == 50


def test_a_cache_directory_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=r"cannot write to the cache directory .*/file: .*STRETTO_CACHE"):
        resolve(Config(), print)


def test_why_a_model_cannot_be_had_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    said: list[str] = []
    with pytest.raises(SetupError, match=r"^/.*a\.gguf is damaged or cut short"):
        resolve(Config(model=str(tmp_path / "a.gguf")), said.append)
    assert said == ["converting a.gguf (once; the next start finds it ready)"]


def test_what_can_be_no_origin_is_refused_before_anything_starts() -> None:
    with pytest.raises(SetupError, match="'localhost' is no origin"):
        resolve(Config(allowed_origins="localhost"), print)
