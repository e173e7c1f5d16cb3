"""From bytes to a struct, and the checks of it that types cannot say."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from stretto.roles.gateway.faults import refusal, undecodable

T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """The body as a struct. Raises `Refused`, naming the field."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise undecodable(error) from None


def check_only(part: Any, path: str = "") -> None:
    """Refuse values that the API knows and this server does not; `part.only` lists what is left of them."""
    for field, allowed in part.only.items():
        if getattr(part, field) not in allowed:
            supported = " or ".join(msgspec.json.encode(value).decode() for value in allowed)
            raise refusal(f"{path}{field}: only {supported} is supported.", path + field)


def check_packs(value: dict[str, Any], param: str) -> None:
    """Refuse integers that JSON has and messages between processes have not: those over 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        raise refusal(f"{param}: integers must fit in 64 bits.", param) from None
