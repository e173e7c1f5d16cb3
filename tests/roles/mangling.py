"""Bytes as no peer would send them: noise, and messages that something has gone over."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st


@st.composite
def mangled(draw: st.DrawFn, whole: bytes) -> bytes:
    """A text of bytes with some overwritten, left out, put in or repeated, or cut short."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 8)))
        match draw(st.sampled_from(["overwrite", "leave out", "put in", "repeat", "cut"])):
            case "overwrite":
                data[at:to] = draw(st.binary(min_size=to - at, max_size=to - at))
            case "leave out":
                del data[at:to]
            case "put in":
                data[at:at] = draw(st.binary(max_size=8))
            case "repeat":
                data[at:at] = data[at:to] * draw(st.integers(1, 100))
            case "cut":
                del data[at:]
    return bytes(data)


def noise(*messages: Any) -> st.SearchStrategy[bytes]:
    """Random bytes, and these messages mangled as bytes of msgpack."""
    wholes = [msgspec.msgpack.encode(message) for message in messages]
    return st.one_of(st.binary(max_size=64), *map(mangled, wholes))


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=8),
        st.sampled_from([-1, 0, 2**31, 2**63, 10**400, 1e308, "", "\x00", "\ud800", "a" * 5000]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
"""Of JSON as Python has it, NaN and numbers beyond all bounds among them."""


@st.composite
def altered(draw: st.DrawFn, body: Any) -> Any:
    """A value of JSON with some of its parts replaced, left out or repeated, at any depth."""
    if draw(st.integers(0, 3)) == 0:
        return draw(values)
    if isinstance(body, dict) and body:
        return _altered_dict(draw, body)
    if isinstance(body, list) and body:
        at = draw(st.integers(0, len(body) - 1))
        repeats = draw(st.integers(0, 3))
        return [*body[:at], *[draw(altered(body[at]))] * repeats, *body[at + 1 :]]
    return draw(values)


def _altered_dict(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(body)))
    rest = {key: value for key, value in body.items() if key != name}
    match draw(st.sampled_from(["alter", "leave out", "rename", "add"])):
        case "alter":
            return {**body, name: draw(altered(body[name]))}
        case "leave out":
            return rest
        case "rename":
            return {**rest, draw(st.text(max_size=8)): body[name]}
        case _:
            return {**body, draw(st.text(max_size=8)): draw(values)}
