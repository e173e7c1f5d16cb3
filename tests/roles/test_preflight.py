"""What is missing is told with what to do."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from stretto.roles import preflight
from stretto.roles.actor import SetupError


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "file descriptors"),
        (errno.ENOMEM, "memory"),
        (errno.ENOSPC, "space"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_an_error_is_told_as_what_could_not_be_had_and_what_to_do(number, advice):
    with pytest.raises(SetupError, match=f"cannot have the moon: .*{advice}"), preflight.needing("the moon"):
        raise OSError(number, os.strerror(number))


def test_the_file_limit_is_raised_as_far_as_allowed():
    code = (
        "import resource as r; from stretto.roles.preflight import raise_file_limit\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, 128)); raise_file_limit()\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "(128, 128)\n"


def test_a_run_directory_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = preflight.make_run_dir()
    assert os.stat(path).st_mode & 0o777 == 0o700


def test_a_run_directory_that_cannot_be_made_is_told_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(SetupError, match=r"cannot make the run directory in .*/gone: .*TMPDIR"):
        preflight.make_run_dir()


@pytest.fixture
def few_files():
    """Leaves so many descriptors, and perhaps one more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(spare: int) -> None:
        taken = set(map(int, os.listdir("/proc/self/fd")))
        free = [fd for fd in range(len(taken) + spare) if fd not in taken]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[spare - 1] + 1, hard))

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_file_descriptors_for_the_rings_is_told(few_files):
    from stretto.roles import graph
    from stretto.roles.config import Config

    few_files(3)
    with pytest.raises(SetupError, match="ulimit -n"), preflight.needing("shared memory"):
        graph.Wiring(Config())
