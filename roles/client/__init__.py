"""What users hold in their hands: a client for a running server, and `LLM`, which starts one for itself."""

from typing import TYPE_CHECKING, Any

__all__ = ["LLM", "AsyncClient", "Client", "ConnectionFailed", "RequestOutput", "StrettoError"]

if TYPE_CHECKING:
    from stretto.roles.client.aio import AsyncClient
    from stretto.roles.client.client import Client
    from stretto.roles.client.errors import ConnectionFailed, StrettoError
    from stretto.roles.client.llm import LLM
    from stretto.roles.client.outputs import RequestOutput

_HOME = {
    "LLM": "llm",
    "AsyncClient": "aio",
    "Client": "client",
    "RequestOutput": "outputs",
    "StrettoError": "errors",
    "ConnectionFailed": "errors",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line should not wait for what it does not need."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
