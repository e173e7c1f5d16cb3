from __future__ import annotations

from pathlib import Path

import pytest

from stretto.roles.executor.fingerprint import SAMPLE_BYTES, SAMPLES, fingerprint

BIG = 4 * SAMPLES * SAMPLE_BYTES


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "config.json", tmp_path / "model.safetensors"]
    paths[0].write_text("{}")
    paths[1].write_bytes(bytes(BIG))
    return paths


def test_it_does_not_depend_on_where_the_files_are_or_in_what_order(
    files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    copies = [tmp_path / "copy" / path.name for path in files]
    for path, copy in zip(files, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    assert fingerprint(files, ("cpu", 16)) == fingerprint(reversed(copies), ("cpu", 16))
    assert len(fingerprint(files, ())) == 16


@pytest.mark.parametrize("at", [0, BIG // 3, BIG - 1])
def test_other_weights_of_the_same_size_are_another_model(files: list[Path], at: int) -> None:
    before = fingerprint(files, ())
    with files[1].open("r+b") as file:
        file.seek(min(max(0, at - 2 * SAMPLE_BYTES), BIG - 4 * SAMPLE_BYTES))
        file.write(b"x" * 4 * SAMPLE_BYTES)
    assert fingerprint(files, ()) != before


def test_every_fact_counts(files: list[Path]) -> None:
    facts = [("cpu", "float32", 16), ("cuda", "float32", 16), ("cpu", "float16", 16), ("cpu", "float32", 32)]
    assert len({fingerprint(files, fact) for fact in facts}) == 4
