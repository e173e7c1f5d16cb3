"""Where compiled kernels are kept between starts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def use(root: str) -> Path:
    """Keep compiled kernels below `root`; call it before any kernel is imported. Returns the directory.

    numba recompiles a kernel when its own file changes, but not when a function that it calls does, so the
    directory's name carries a digest of all the sources of this package.
    """
    folder = Path(root) / f"kernels-{source_digest()}"
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    return folder


def source_digest() -> str:
    """Twelve hexadecimal digits that change with any source file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
