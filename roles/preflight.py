"""What a launch needs from the machine, and what to tell the user where it is not to be had."""

from __future__ import annotations

import contextlib
import errno
import resource
import tempfile
from collections.abc import Iterator

from stretto.roles.actor import SetupError

_ADVICE = {
    errno.EMFILE: "this process may open no more files; raise the limit with `ulimit -n`",
    errno.ENFILE: "the machine has no file descriptors left; close some programs or raise fs.file-max",
    errno.ENOMEM: "there is no memory left; give less with --kv-memory, or close some programs",
    errno.ENOSPC: "no space is left; free some",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EAGAIN: "the machine takes no more processes; raise the limit with `ulimit -u`",
    errno.ENOSYS: "this kernel or sandbox has no memfd_create, which Stretto's shared memory needs",
    errno.EPERM: "this sandbox forbids it; Stretto needs memfd_create, eventfd and pidfd_open",
}


@contextlib.contextmanager
def needing(what: str) -> Iterator[None]:
    """Say of an OSError in this block what could not be had, and what to do: a `SetupError`."""
    try:
        yield
    except OSError as error:
        raise SetupError(f"cannot have {what}: {advice(error)}") from error


def advice(error: OSError) -> str:
    """The reason of an error, and what its user can do."""
    return _ADVICE.get(error.errno or 0, error.strerror or str(error))


def raise_file_limit() -> None:
    """Allow as many open files as this user may have: each connection is one. Children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def make_run_dir() -> str:
    """A private 0700 directory for the sockets of a launch. Raises `SetupError`."""
    where = "the usual temporary directories"
    try:
        where = tempfile.gettempdir()
        return tempfile.mkdtemp(prefix="stretto-")
    except OSError as error:
        raise SetupError(
            f"cannot make the run directory in {where}: {advice(error)}; TMPDIR names another place"
        ) from error
