"""A machine that lacks something, and roles that cannot be kept alive: a clear word and the right end."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
import psutil
import pytest

PROMPT = "Once upon a time"
NO_SHARED_MEMORY = """
import errno, os

def memfd_create(*args, **options):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

os.memfd_create = memfd_create
"""


def refuse_to_serve(files=None, **env):
    """What a launch says that must fail, with so many open files at most."""

    def limit():
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    result = subprocess.run(
        [sys.executable, "-m", "stretto.supervisor", "serve", "--port", "0"],
        capture_output=True,
        text=True,
        env=os.environ | env,
        preexec_fn=limit,
    )
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True)
    if done.returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_disk_that_cannot_hold_the_model_is_named_with_what_to_do(small_disk):
    last = refuse_to_serve(STRETTO_CACHE=str(small_disk))
    assert f"cannot write {small_disk}" in last
    assert "No space left on device; make room, or point STRETTO_CACHE elsewhere" in last
    assert list(small_disk.rglob("*.partial")) == []


def test_a_disk_that_cannot_hold_the_kernels_is_named_with_what_to_do(model_dir, small_disk):
    (small_disk / "models").symlink_to(model_dir.parent)
    last = refuse_to_serve(STRETTO_CACHE=str(small_disk))
    assert last.startswith(
        f"stretto: executor.0 did not start: cannot keep compiled kernels in {small_disk}: "
        "no space is left; free some, or set STRETTO_CACHE"
    )


@pytest.mark.parametrize("files", [16, 40])
def test_too_few_open_files_for_a_launch_are_told(model_dir, files):
    assert "raise the limit with `ulimit -n`" in refuse_to_serve(files)


def test_a_machine_without_shared_memory_is_told(model_dir, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_SHARED_MEMORY)
    assert "has no memfd_create" in refuse_to_serve(PYTHONPATH=str(tmp_path))


def test_a_crowd_that_would_take_all_files_of_a_gateway_is_outlived(start):
    """The files are few when the gateway's peers connect to it for the first time."""
    server = start()
    first, port = server.family()["gateway"], httpx.URL(server.url).port
    server.family()["supervisor"].rlimit(psutil.RLIMIT_NOFILE, (256, 256))
    first.kill()
    with httpx.Client(base_url=server.url, timeout=60) as known, ExitStack() as crowd:
        gateway = known.get("/health").json()["roles"]["gateway.0"]["pid"]
        assert gateway != first.pid
        for _ in range(400):
            crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert known.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}).status_code == 200
        crowd.close()
        assert known.get("/health").json()["roles"]["gateway.0"]["pid"] == gateway
    assert server.complete(PROMPT, max_tokens=2)["usage"]["completion_tokens"] == 2
    server.stop()


def test_a_role_that_dies_whenever_it_starts_ends_the_launch(start):
    server = start()
    killed = set()
    while server.process.poll() is None:
        victim = server.family().get("tokenizer")
        if victim is None or victim.pid in killed:
            time.sleep(0.01)
            continue
        victim.send_signal(signal.SIGSEGV)
        killed.add(victim.pid)
    assert server.stop() == 1
    last = server.stderr.splitlines()[-1]
    assert last == "stretto: tokenizer.0 died 6 times in a row before it worked; last: killed by SIGSEGV"


def test_a_gateway_that_freezes_is_replaced(start):
    server = start("--heartbeat-timeout", "2")
    frozen = server.family()["gateway"]
    frozen.suspend()
    assert server.complete(PROMPT, max_tokens=2)["usage"]["completion_tokens"] == 2
    assert server.family()["gateway"].pid != frozen.pid
    server.stop()
