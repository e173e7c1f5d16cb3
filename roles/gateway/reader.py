"""Reading JSON into a struct, strictly or with unknown fields left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from stretto.roles.gateway.faults import undecodable

T = TypeVar("T")
UNKNOWN = "unknown field; leave it out, or start the server with --allow-unknown-fields."
_STEP = re.compile(r"\w+")


class Reader(Generic[T]):
    """Decodes one type. With `lenient`, fields that it does not have are dropped, at any depth."""

    def __init__(self, type: type[T], lenient: bool = False) -> None:
        self._type, self._lenient = type, lenient
        self._decoder = msgspec.json.Decoder(type)
        self._info = inspect.type_info(type)

    def read(self, data: bytes | msgspec.Raw) -> T:
        """The body as a struct. Raises `Refused`, naming the field."""
        try:
            if not self._lenient:
                return self._decoder.decode(data)
            return msgspec.convert(_known(msgspec.json.decode(data), self._info), self._type, str_keys=True)
        except (msgspec.DecodeError, RecursionError) as error:
            raise undecodable(error, partial(choices, self._info), UNKNOWN, bytes(data)) from None


def choices(info: inspect.Type, path: str) -> list[Any]:
    """What may stand at a path such as `messages[0].role`, where that can be listed; else nothing."""
    return list(dict.fromkeys(_choices(info, _STEP.findall(path))))


def _choices(info: inspect.Type, steps: list[str]) -> Iterator[Any]:
    """Literals, and tags of structs."""
    match info, steps:
        case inspect.UnionType(types), _:
            for member in types:
                yield from _choices(member, steps)
        case inspect.LiteralType(values), []:
            yield from values
        case inspect.ListType(item_type=item_type), [index, *rest] if index.isdigit():
            yield from _choices(item_type, rest)
        case inspect.StructType(tag_field=tag_field, tag=tag), [name] if name == tag_field:
            yield tag
        case inspect.StructType(fields=fields), [name, *rest]:
            for field in fields:
                if field.encode_name == name:
                    yield from _choices(field.type, rest)


def _known(value: Any, info: inspect.Type) -> Any:
    """The value without fields that its type does not have; what is otherwise wrong is left as it is."""
    match value, info:
        case _, inspect.UnionType(types):
            return _known_of_union(value, types)
        case dict(), inspect.StructType(fields=fields, tag_field=tag):
            types_of = {field.encode_name: field.type for field in fields}
            return {
                name: _known(item, types_of[name]) if name in types_of else item
                for name, item in value.items()
                if name in types_of or name == tag
            }
        case list(), inspect.ListType(item_type=item_type):
            return [_known(item, item_type) for item in value]
    return value


def _known_of_union(value: Any, types: tuple[inspect.Type, ...]) -> Any:
    for info in types:
        if _fits(value, info):
            return _known(value, info)
    return value


def _fits(value: Any, info: inspect.Type) -> bool:
    """Whether a value is read by this member of a union, which has one for each kind of JSON value."""
    if isinstance(info, inspect.StructType):
        return isinstance(value, dict) and (info.tag_field is None or value.get(info.tag_field) == info.tag)
    return isinstance(info, inspect.ListType) and isinstance(value, list)
