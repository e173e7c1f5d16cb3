"""KV below the device's pool: evicted prompts come back from the host, those of yesterday from the disk."""

import random

import numpy as np
import pytest

from stretto.roles.scheduler.keys import page_keys

TOKENS, PAGE = 1000, 16
WHOLE = TOKENS // PAGE * PAGE


def prompt(seed):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40_000) for _ in range(TOKENS)]


@pytest.fixture
def disk(tmp_path):
    return tmp_path / "kv"


def launch(start, disk, dtype):
    return start("--kv-memory", "1040tokens", "--host-kv-memory", "4096tokens", "--disk-kv", str(disk),
                 "--kv-write", "back", "--kv-cache-dtype", dtype)  # fmt: skip


def ask(server, tokens):
    answer = server.complete([*tokens, 7], max_tokens=8)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["token_ids"]


@pytest.mark.parametrize("dtype", ["auto", "fp8"])
def test_evicted_and_stored_prompts_are_hits_and_damaged_ones_are_computed_again(start, disk, dtype):
    first, other = prompt(1), prompt(2)
    server = launch(start, disk, dtype)
    cached, answer = ask(server, first)
    assert cached == 0
    _, other_answer = ask(server, other)
    assert ask(server, first) == (WHOLE, answer)
    assert server.metrics()["stretto_host_hit_pages_total"] == WHOLE // PAGE
    assert server.metrics()["stretto_disk_kv_pages"] == 0
    assert server.stop() == 0  # what only memory holds is saved

    key = page_keys(np.array(other, np.int32), PAGE, "")[0].hex()
    (damaged,) = disk.glob(f"*/{key[:2]}/{key}.kv")
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)

    server = launch(start, disk, dtype)
    assert ask(server, first) == (WHOLE, answer)
    assert ask(server, other) == (0, other_answer)
    seen = server.metrics()
    assert seen["stretto_disk_hit_pages_total"] == WHOLE // PAGE
    assert seen["stretto_kv_disk_errors_total"] == 1
    assert server.stop() == 0
    assert server.stderr.count("is damaged") == 1
