"""What the structs of the API say beyond their types: what fields are for, and what some are limited to."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from typing import Any

import msgspec

from stretto.roles.gateway import (
    anthropic_bodies,
    bodies,
    responses_bodies,
    schemas,
    schemas_others,
    sglang_bodies,
    unsupported,
    utilities,
)

_MODULES = (
    unsupported,
    bodies,
    anthropic_bodies,
    responses_bodies,
    sglang_bodies,
    utilities,
    schemas,
    schemas_others,
)


def refine(name: str, schema: dict[str, Any]) -> None:
    """Write into the schema of a struct what its fields are for, and to which values some are limited."""
    properties = schema.get("properties", {})
    kind = _structs()[name]
    for field, allowed in getattr(kind, "only", {}).items():
        properties[field] = {"enum": list(allowed), "default": None}
    for field, text in _field_docs(kind).items():
        if field in properties:
            properties[field] = {**properties[field], "description": text}


@functools.cache
def _structs() -> dict[str, type[msgspec.Struct]]:
    return {
        kind.__name__: kind
        for module in _MODULES
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, msgspec.Struct)
    }


def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a struct and of those that it inherits from."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        texts |= _docs_of_all().get(base.__name__, {})
    return texts


@functools.cache
def _docs_of_all() -> dict[str, dict[str, str]]:
    """Struct, field, docstring."""
    return {
        node.name: dict(_described(node))
        for module in _MODULES
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    }


def _described(node: ast.ClassDef) -> list[tuple[str, str]]:
    return [
        (field.target.id, " ".join(text.value.value.split()))
        for field, text in itertools.pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    ]
