"""What a result must say of where it was taken, and whether it can be trusted."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("torch", "numba", "numpy", "tokenizers", "uvloop", "pyzmq")
BUSY = 1.0
"""A load average above this means that somebody else is at work, and that figures are not comparable."""


def machine() -> dict[str, Any]:
    """Processor, memory, versions, commit, and how busy the machine is now."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
    }


def is_busy() -> bool:
    """Whether somebody else is at work here; ask before the bench adds its own load."""
    return os.getloadavg()[0] > BUSY


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1].strip() for line in lines if line.startswith("model name")), "?")


def _commit() -> str:
    """Short hash, with "+" where tracked files differ from it; empty outside a checkout."""
    head = _git("rev-parse", "--short", "HEAD")
    return head + "+" if head and _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
