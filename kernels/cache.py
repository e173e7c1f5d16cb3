"""Where compiled kernels are kept between starts: `<root>/kernels-<digest>/`, of one version of the sources.

Whoever uses such a directory holds a shared lock on it. In it, each kernel has a file `<kernel>.lock`, which
is locked by the process that compiles or loads the kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

KEPT_DAYS = 7
"""So long nobody has used what is removed."""
_PREFIX, _DOOMED = "kernels-", ".doomed"


class Busy(Exception):
    """Another process compiles this kernel."""


def use(root: str) -> Path:
    """Keep compiled kernels below `root`; call it before any kernel is imported. Returns the directory.

    numba recompiles a kernel when its own file changes, but not when a function that it calls does, so the
    directory's name carries a digest of all the sources of this package.
    """
    folder = Path(root) / f"{_PREFIX}{source_digest()}"
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    _hold(folder)
    return folder


def source_digest() -> str:
    """Twelve hexadecimal digits that change with any source file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def claim(kernel: str, wait: bool = True) -> Iterator[None]:
    """Within, no other process compiles or loads the kernel of that name.

    Raises Busy where one does and we are not to wait, and OSError where nothing can be written.

    numba's own cache does not expect several writers: of two variants of a kernel that are compiled at the
    same time, one could be found under the other's key.
    """
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if not folder:  # numba keeps kernels beside their sources
        yield
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{kernel}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(kernel) from None
        yield


def remove_unused(root: str, now: float | None = None) -> None:
    """Remove what other versions of the sources have left, once nobody has used it for `KEPT_DAYS` days."""
    oldest = (time.time() if now is None else now) - KEPT_DAYS * 86400
    for folder in Path(root).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.suffix == _DOOMED or _doom(folder, oldest):
                shutil.rmtree(folder.with_suffix(_DOOMED))


def _hold(folder: Path) -> None:
    """Make the directory, and keep it from being removed as long as this process lives.

    If it is being removed now, whoever compiles makes another.
    """
    with contextlib.suppress(OSError):  # where directories cannot be locked, its age protects it
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        os.utime(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def _doom(folder: Path, oldest: float) -> bool:
    """Rename a directory that nobody holds or has used since `oldest`, so that nobody finds it any more."""
    if folder.stat().st_mtime >= oldest:
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_mtime >= oldest:
            return False
        folder.rename(folder.with_suffix(_DOOMED))
    finally:
        os.close(descriptor)
    return True
