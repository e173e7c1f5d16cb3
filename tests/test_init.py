"""What `import stretto` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import stretto


def test_every_public_name_is_there_and_no_other() -> None:
    assert [name for name in stretto.__all__ if not hasattr(stretto, name)] == []
    assert issubclass(stretto.StrettoError, Exception)
    with pytest.raises(AttributeError, match="has no attribute 'Clint'"):
        _ = stretto.Clint


def test_names_are_imported_on_first_use() -> None:
    code = "import sys, stretto; print({'torch', 'msgspec', 'stretto.roles'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
