"""The command line made from `Config`: one option per field, its help text and bounds included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec

from stretto.roles.config import Config

F = TypeVar("F", bound=Callable[..., Any])


def config_options(*, skip: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Decorator that adds an option for every field of `Config` that a user may set."""
    hints = get_type_hints(Config, include_extras=True)
    options = [
        _option(field, *_split(hints[field.name]))
        for field in msgspec.structs.fields(Config)
        if field.name not in skip and _is_public(hints[field.name])
    ]

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _split(hint: Any) -> tuple[Any, msgspec.Meta]:
    assert get_origin(hint) is Annotated
    kind, meta = get_args(hint)
    return kind, meta


def _is_public(hint: Any) -> bool:
    _, meta = _split(hint)
    return bool((meta.extra or {}).get("cli", True))


def _option(field: msgspec.structs.FieldInfo, kind: Any, meta: msgspec.Meta) -> Callable[[F], F]:
    flag = "--" + field.name.replace("_", "-")
    if kind is bool:
        flag += "/--no-" + field.name.replace("_", "-")
    more: dict[str, Any] = {"default": field.default, "show_default": field.default not in ("", None)}
    if (meta.extra or {}).get("repeated"):
        more = {"multiple": True, "callback": _joined}
    return click.option(flag, field.name, type=_click_type(kind, meta), help=meta.description, **more)


def _joined(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str:
    return ",".join(values)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def _click_type(kind: Any, meta: msgspec.Meta) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is int:
        return click.IntRange(min=_whole(meta.ge), max=_whole(meta.le))
    if kind is float:
        low = meta.ge if meta.ge is not None else meta.gt
        return click.FloatRange(min=low, max=meta.le, min_open=meta.gt is not None)
    return kind
