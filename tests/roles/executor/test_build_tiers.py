from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from stretto.roles.config import Config
from stretto.roles.executor import build_tiers as module
from stretto.roles.executor.build_tiers import Tiers, build_tiers
from stretto.roles.executor.device_cpu import CpuDevice
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.fingerprint import fingerprint
from stretto.roles.executor.kv import PageShape

CPU = torch.device("cpu")
SHAPE = PageShape(layers=2, page_size=16, kv_heads=2, head_dim=4, dtype=torch.float32)


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    made = CpuDevice(lambda: None)
    yield made
    made.close()


def build(device: CpuDevice, config: Config) -> Tiers | None:
    cache = SHAPE.allocate(8, torch.device("cpu"))
    return build_tiers(config, device, cache, SHAPE, context_pages=16, wake=lambda: None)


def test_by_default_there_is_nothing(device: CpuDevice) -> None:
    assert build(device, Config()) is None


def test_host_memory_has_the_size_that_is_asked_for_and_a_measured_rate(device: CpuDevice) -> None:
    tiers = build(device, Config(host_kv_memory="1000tokens"))
    assert tiers is not None
    assert (tiers.host_pages, tiers.disk) == (63, False)
    assert tiers.copy_rate > 0


def test_a_disk_alone_gets_a_buffer_for_two_of_the_longest_sequences(
    device: CpuDevice, make_tiny: Any, tmp_path: Path
) -> None:
    config = Config(model_dir=str(make_tiny()), disk_kv=str(tmp_path / "kv"))
    tiers = build(device, config)
    assert tiers is not None
    assert (tiers.host_pages, tiers.disk) == (32, True)
    tiers.transfers.close()
    assert (tmp_path / "kv").is_dir()


def test_the_buffer_is_bounded(
    device: CpuDevice, make_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUFFER_BYTES", 5 * SHAPE.bytes)
    tiers = build(device, Config(model_dir=str(make_tiny()), disk_kv=str(tmp_path)))
    assert tiers is not None
    assert tiers.host_pages == 5
    tiers.transfers.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host_kv_memory": "lots"}, "--host-kv-memory 'lots' is not a size"),
        ({"host_kv_memory": "900000GiB"}, "of memory are free"),
        ({"disk_kv": "/dev/null/kv"}, "--disk-kv /dev/null/kv cannot be written to: Not a directory"),
        ({"disk_kv": ".", "disk_kv_size": "big"}, "--disk-kv-size 'big' is not a size"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(device: CpuDevice, change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(device, msgspec.structs.replace(Config(), **change))
    assert words in str(caught.value)


def test_pages_on_disk_are_in_the_units_of_one_set_of_scales(
    device: CpuDevice, make_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[bytes] = []
    monkeypatch.setattr(module, "fingerprint", lambda *args: names.append(fingerprint(*args)) or names[-1])
    config = Config(model_dir=str(make_tiny()), disk_kv=str(tmp_path))
    for scales in ([], [[[1.0], [1.0]]], [[[1.0], [0.5]]], [[[1.0], [1.0]]]):
        tiers = build_tiers(config, device, SHAPE.allocate(8, CPU), SHAPE, 16, lambda: None, scales)
        assert tiers is not None
        tiers.transfers.close()
    assert names[1] == names[3]
    assert len(set(names)) == 3
