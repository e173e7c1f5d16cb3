"""Leaving nothing behind, however the owner goes: even SIGKILL ends a pipe."""

from __future__ import annotations

import subprocess


def hire_janitor(stdin: int, *paths: str) -> subprocess.Popen[bytes]:
    """A shell that sleeps until its standard input ends, and then removes the paths.

    `stdin` is the reading end of a pipe whose writing end only the owner holds, or `subprocess.PIPE`.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; rm -rf -- "$@"', "stretto-janitor", *paths],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
    )
