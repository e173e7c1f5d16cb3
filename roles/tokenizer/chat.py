"""Chat turns to prompt text: the model's own Jinja template, in a sandbox that bounds its time and size.

Templates on the hub are written for transformers' `apply_chat_template`, so they see the same environment,
globals and filters here, without transformers' start-up time.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from stretto.roles.tokenizer.files import read_json, special_tokens
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.sandbox import Sandbox, render

_END = "\ue000END_OF_FINAL_MESSAGE "
"""Private-use text that no message has; its last space tells whether the template trims content."""
MAX_INDENT = 16


class GenerationTag(Extension):
    """`{% generation %}` marks what an assistant said, for training; here it is only a scope."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes HTML, which no model was trained on."""
    if indent is not None and indent > MAX_INDENT:
        raise jinja2.TemplateError(f"it indents by {indent}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> Sandbox:
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


class ChatTemplate:
    """A model's chat template. One that does not compile fails each chat, not the start of the server."""

    def __init__(self, source: str | None, constants: dict[str, str]) -> None:
        """`constants` are the special tokens that templates name, e.g. {"bos_token": "<s>"}."""
        self._constants: dict[str, Any] = {"tools": None, "documents": None, **constants}
        self._template: jinja2.Template | None = None
        self._missing = "This model has no chat template: use a text completion (prompt) instead."
        if source is not None:
            self._compile(source)

    def _compile(self, source: str) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            self._missing = f"This model's chat template is broken ({error}): use a text completion instead."

    def render(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool,
        extra: dict[str, Any],
        continue_final_message: bool = False,
    ) -> str:
        """The prompt's text. `extra` overrides the special tokens; keys of a turn that are None are dropped.

        With `continue_final_message` the text ends where the last turn's content does, so that the answer
        continues it. Raises `Refused` when there is no template, or when it fails on these messages in
        whatever way.
        """
        if self._template is None:
            raise Refused(self._missing, "messages")
        turns = [{key: value for key, value in turn.items() if value is not None} for turn in messages]
        values = self._constants | extra
        values |= {"messages": turns, "add_generation_prompt": add_generation_prompt}
        return (_render_open if continue_final_message else _render)(self._template, values)


def _render_open(template: jinja2.Template, values: dict[str, Any]) -> str:
    """Mark the end of the last content, render, and cut at the mark, as transformers does."""
    turns = values["messages"]
    if values["add_generation_prompt"]:
        raise Refused(
            "continue_final_message continues the last message, add_generation_prompt begins a new one; "
            "set one of them to false.",
            "continue_final_message",
        )
    content = turns[-1].get("content") if turns else None
    if not isinstance(content, str):
        raise Refused("There is no final message to continue.", "continue_final_message")
    marked = [*turns[:-1], turns[-1] | {"content": content + _END}]
    text = _render(template, values | {"messages": marked})
    if _END.strip() not in text or content.strip() not in text:
        raise Refused(
            "The model's chat template changes the final message, so it cannot be continued.",
            "continue_final_message",
        )
    at = text.rindex(_END.strip())
    kept = text[:at]
    return kept if text.startswith(_END, at) else kept.rstrip()  # a template that trims content


def _render(template: jinja2.Template, values: dict[str, Any]) -> str:
    try:
        return render(template, values)
    except Exception as error:  # the template is the model's program: a failure is between it and the client
        raise Refused(f"The model's chat template refuses these messages: {error}.", "messages") from error


def load_template(model_dir: Path) -> ChatTemplate:
    """The template of `chat_template.jinja`, else of `tokenizer_config.json` (of a list, its "default")."""
    return ChatTemplate(_source(model_dir), special_tokens(model_dir))


def _source(model_dir: Path) -> str | None:
    file = model_dir / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = read_json(model_dir / "tokenizer_config.json").get("chat_template")
    if isinstance(found, list):
        return {entry["name"]: entry["template"] for entry in found}.get("default")
    return found
