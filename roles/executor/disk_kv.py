"""The file store: KV pages that outlive the process, one file each, never trusted unverified.

    PATH/<fingerprint>/<first two digits of the key>/<key>.kv

The fingerprint names everything that a page's bytes depend on besides its tokens, which the key names. A file
is a checksum and the page; the checksum covers fingerprint, key and page, so that a file from elsewhere is as
wrong as a torn one. Files appear under their names complete (written beside, then renamed). Nothing is
synced: what a loss of power tears, the checksum finds.

The store keeps itself within a size, over all fingerprints, by removing what was used longest ago; the time
of the last use is the file's modification time, so it outlives the process too. Errors never leave the store:
what cannot be written is not kept, what cannot be read is computed again, and each kind of error is logged
once.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

KEY_BYTES = 16
CHECKSUM_BYTES = 32
SUFFIX = ".kv"
WRITE_PAUSE_SECONDS = 30.0
"""For so long nothing is written after a write failed: a full disk is not asked again for every page."""
ABANDONED_SECONDS = 600.0
"""Temporary files that are older were left by a crash."""
BATCH = 4096
"""Keys that are told at once when the directory is read."""

_log = logging.getLogger(__name__)


class DiskKV:
    """Files of one fingerprint within a directory that others may use too. For one thread."""

    def __init__(self, root: Path, fingerprint: bytes, capacity: int) -> None:
        self._root, self._fingerprint, self._capacity = root, fingerprint, capacity
        self._home = root / fingerprint.hex()
        self._sizes: OrderedDict[Path, int] = OrderedDict()
        """Every file of the store, the one used longest ago first."""
        self._total = 0
        self._pause_until = 0.0
        self._reported: set[str] = set()
        self.errors = 0
        """Pages that could not be written, read or trusted."""
        self._gone: list[bytes] = []
        self._indexed = False

    # The index.

    def index(self) -> Iterator[list[bytes]]:
        """What there is, in batches of keys, those used longest ago first; the first call reads the names."""
        if not self._indexed:
            self._read_index()
        keys = [key for path in self._sizes if (key := self._key_of(path)) is not None]
        for start in range(0, len(keys), BATCH):
            yield keys[start : start + BATCH]

    def take_gone(self) -> list[bytes]:
        """Keys that were removed to make room since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def _read_index(self) -> None:
        self._indexed = True
        found: list[tuple[float, Path, int]] = []
        for directory in sorted(self._root.glob("[0-9a-f]*/[0-9a-f][0-9a-f]")):
            found += self._scan(directory)
        found.sort()
        for _, path, size in found:
            self._add(path, size)
        self._shrink()

    def _scan(self, directory: Path) -> list[tuple[float, Path, int]]:
        found = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(SUFFIX):
                        found.append((status.st_mtime, Path(entry.path), status.st_size))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > ABANDONED_SECONDS:
                        os.unlink(entry.path)
        except OSError as error:
            self._failed("listing", error)
        return found

    # Pages.

    def save(self, key: bytes, page: memoryview) -> bool:
        """Write a page; whether it is there now."""
        path = self._path(key)
        if path in self._sizes:
            return True
        if time.monotonic() < self._pause_until:
            self.errors += 1
            return False
        try:
            self._write(path, self._checksum(key, page), page)
        except OSError as error:
            self._pause_until = time.monotonic() + WRITE_PAUSE_SECONDS
            self._failed("writing", error)
            return False
        self._add(path, CHECKSUM_BYTES + len(page))
        self._shrink()
        return path in self._sizes

    def load(self, key: bytes, page: memoryview) -> bool:
        """Read a page into memory that is exactly as long; whether it holds the verified page now."""
        path = self._path(key)
        try:
            checksum = self._read(path, page)
        except FileNotFoundError:  # another server that shares the directory made room
            self._forget(path)
            return False
        except OSError as error:
            self._forget(path)
            self._failed("reading", error)
            return False
        if checksum != self._checksum(key, page):
            self._distrust(path)
            return False
        self._use(path, CHECKSUM_BYTES + len(page))
        return True

    def _write(self, path: Path, checksum: bytes, page: memoryview) -> None:
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "wb") as file:
                file.write(checksum)
                file.write(page)
            os.replace(beside, path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def _read(self, path: Path, page: memoryview) -> bytes | None:
        """The checksum, None where the length is wrong."""
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != CHECKSUM_BYTES + len(page):
                return None
            checksum, at = file.read(CHECKSUM_BYTES), 0
            while at < len(page) and (count := file.readinto(page[at:])):
                at += count
            return checksum if at == len(page) else None

    def _distrust(self, path: Path) -> None:
        self.errors += 1
        self._report("corrupt", f"{path} is damaged, or not what its name says; it is removed")
        self._forget(path)
        self._remove(path)

    def _use(self, path: Path, size: int) -> None:
        self._add(path, size)
        try:
            os.utime(path)
        except OSError as error:
            self._failed("marking", error)

    # Sizes.

    def _add(self, path: Path, size: int) -> None:
        self._total += size - self._sizes.pop(path, 0)
        self._sizes[path] = size

    def _forget(self, path: Path) -> None:
        self._total -= self._sizes.pop(path, 0)

    def _shrink(self) -> None:
        """Remove what was used longest ago until all fits."""
        while self._total > self._capacity:
            path, size = self._sizes.popitem(last=False)
            self._total -= size
            if (key := self._key_of(path)) is not None:
                self._gone.append(key)
            self._remove(path)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._failed("removing", error)

    # Names.

    def _path(self, key: bytes) -> Path:
        name = key.hex()
        return self._home / name[:2] / (name + SUFFIX)

    def _key_of(self, path: Path) -> bytes | None:
        """The key that a file of this fingerprint is named by."""
        if path.parent.parent != self._home or len(path.stem) != 2 * KEY_BYTES:
            return None
        return bytes.fromhex(path.stem)

    def _checksum(self, key: bytes, page: memoryview) -> bytes:
        state = blake2b(key, digest_size=CHECKSUM_BYTES, key=self._fingerprint)
        state.update(page)
        return state.digest()

    # Errors.

    def _failed(self, what: str, error: OSError) -> None:
        self.errors += 1
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "; give it room, or a smaller --disk-kv-size" if error.errno == errno.ENOSPC else ""
        self._report(f"{what} {error.errno}", f"{what} under {self._root} failed: {reason}{hint}")

    def _report(self, kind: str, text: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            _log.warning("disk KV: %s (said once)", text)


def ensure_directory(root: Path) -> None:
    """Make the directory. Raises OSError where nothing can be written there."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    probe = root / f".{os.getpid()}.tmp"
    probe.write_bytes(b"")
    probe.unlink()
