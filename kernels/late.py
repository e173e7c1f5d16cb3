"""Modules that are imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """Stands for the module `name`, which is imported when one of its names is first asked for.

    Triton takes a second to import, and a machine without a GPU never needs it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value
