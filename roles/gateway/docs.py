"""`/docs`: the OpenAPI document as one page that needs nothing else, no script and no network."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --soft: color-mix(in srgb, currentColor 12%, transparent); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, pre, summary b { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .75rem; border-radius: .4rem; overflow-x: auto; }
details { border: 1px solid var(--soft); border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.5rem; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--soft); padding: .3rem .6rem .3rem 0; vertical-align: top; }
td:first-child { white-space: nowrap; }
"""


def page(document: dict[str, Any]) -> str:
    """The whole page."""
    info, components = document["info"], document["components"]["schemas"]
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in tags.items())
    schemas = "".join(_schema(name, schema) for name, schema in sorted(components.items()))
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>{title}</h1><p>{_prose(info["description"])}</p><p><a href="openapi.json">openapi.json</a></p>'
        f"{sections}<h2>Schemas</h2>{schemas}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<details><summary><b>{method.upper()}</b><code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary>"
    ]
    if operation["parameters"]:
        rows = [(p["name"], _kind(p["schema"]), f"in the {p['in']}") for p in operation["parameters"]]
        parts.append("<h4>Parameters</h4>" + _table(rows))
    if body := operation.get("requestBody"):
        content = body["content"]["application/json"]
        example = escape(json.dumps(content["example"], indent=2, ensure_ascii=False))
        parts.append(f"<h4>Body: {_kind(content['schema'])}</h4><pre>{example}</pre>")
    rows = [
        (status, _content(response.get("content", {})), _prose(response["description"]))
        for status, response in operation["responses"].items()
    ]
    return "".join([*parts, "<h4>Answers</h4>", _table(rows), "</details>"])


def _content(content: dict[str, Any]) -> str:
    return "<br>".join(f"{escape(media)}: {_kind(entry['schema'])}" for media, entry in content.items())


def _schema(name: str, schema: dict[str, Any]) -> str:
    """Fields that take nothing but null come last, in one line: they are there for clients that send them."""
    required, properties = schema.get("required", []), schema.get("properties", {})
    empty = [field for field, kind in properties.items() if kind.get("type") == "null"]
    rows = [
        (field if field in required else f"{field}?", _kind(kind), _prose(kind.get("description", "")))
        for field, kind in properties.items()
        if field not in empty or field in required
    ]
    nulls = ", ".join(f"<code>{escape(field)}</code>" for field in empty if field not in required)
    return (
        f'<details id="{escape(name)}" open><summary><code>{escape(name)}</code> '
        f"{_prose(schema.get('description', ''))}</summary>{_table(rows)}"
        f"{f'<p>Only null: {nulls}.</p>' if nulls else ''}</details>"
    )


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{text}</td></tr>"
        for name, kind, text in rows
    )
    return f"<table>{cells}</table>"


def _kind(schema: dict[str, Any]) -> str:
    """A type, in words, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            inner = _kind(items) if isinstance(items, dict) else "anything"
            return f"list of ({inner}){_limits(schema)}"
        case "object":
            return "object" + _limits(schema)
        case None:
            return "anything"
        case name:
            return escape(str(name)) + _limits(schema)


_LIMITS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "up to {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "maxProperties": "at most {}",
}


def _limits(schema: dict[str, Any]) -> str:
    found = [text.format(schema[name]) for name, text in _LIMITS.items() if name in schema]
    return f" ({', '.join(found)})" if found else ""


def _prose(text: str) -> str:
    """Text whose backquotes mark code, as HTML."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
