"""Stretto: a server for large language models, one process per role, the device always one step ahead."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncClient", "Client", "SamplingParams", "StrettoError", "__version__"]

if TYPE_CHECKING:
    from stretto.roles.client import LLM, AsyncClient, Client, StrettoError
    from stretto.roles.messages import SamplingParams

_HOME = {
    "LLM": "stretto.roles.client",
    "AsyncClient": "stretto.roles.client",
    "Client": "stretto.roles.client",
    "StrettoError": "stretto.roles.client",
    "SamplingParams": "stretto.roles.messages",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: every role imports this package, few need all of it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
