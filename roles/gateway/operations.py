"""Every HTTP operation of the API, for the OpenAPI document and the docs page."""

from __future__ import annotations

from typing import Any, NamedTuple

from stretto.roles.gateway import anthropic_bodies as anthropic
from stretto.roles.gateway import bodies, utilities
from stretto.roles.gateway import responses_bodies as responses
from stretto.roles.gateway import schemas as s
from stretto.roles.gateway import schemas_others as o
from stretto.roles.gateway import sglang_bodies as sglang

HELLO = [{"role": "user", "content": "Say hello."}]


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    tag: str
    summary: str
    answer: Any = None
    """Type of the answer, None where it is no JSON."""
    body: Any = None
    example: dict[str, Any] | None = None
    """A body that works, but for `model`, which is filled in."""
    stream: str = ""
    """What its server-sent events are, where there can be any."""
    query: tuple[tuple[str, dict[str, Any]], ...] = ()
    media: str = "application/json"
    open: bool = False
    """Served without an API key."""


_AFTER = ("starting_after", {"type": "integer", "minimum": -1, "maximum": 2**31})
_STREAM = ("stream", {"type": "string", "enum": ["true", "false"]})
_PAGE = (
    ("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    ("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
    ("after", {"type": "string"}),
)
_ABORT = {"request_id": "chatcmpl-0000000000000001"}


def operations() -> list[Operation]:
    """All of them, in the order of the docs page."""
    op, get, post = Operation, "GET", "POST"
    one = "/v1/responses/{id}"
    return [
        op(post, "/v1/chat/completions", "OpenAI", "Answer a conversation", s.ChatCompletion, bodies.ChatBody,
           {"messages": HELLO, "max_tokens": 16}, "chat.completion.chunk objects, then [DONE]"),
        op(post, "/v1/completions", "OpenAI", "Continue texts", s.TextCompletion, bodies.TextBody,
           {"prompt": "Once upon a time", "max_tokens": 16}, "text_completion objects, then [DONE]"),
        op(post, "/v1/responses", "OpenAI", "Make a response", o.Response, responses.ResponsesBody,
           {"input": "Say hello.", "max_output_tokens": 16}, "response.* events"),
        op(get, one, "OpenAI", "Fetch a stored response; stream again what was streamed in the background",
           o.Response, stream="response.* events", query=(_STREAM, _AFTER)),
        op("DELETE", one, "OpenAI", "Forget a stored response", o.Deleted),
        op(post, f"{one}/cancel", "OpenAI", "Cancel a response that runs in the background", o.Response),
        op(get, f"{one}/input_items", "OpenAI", "List what a response was made from", o.InputItems,
           query=_PAGE),
        op(get, "/v1/models", "OpenAI", "List the model", s.ModelList),
        op(get, "/v1/models/{id}", "OpenAI", "Show the model", s.Model),
        op(post, "/v1/messages", "Anthropic", "Answer a conversation", o.AnthropicMessage,
           anthropic.MessagesBody, {"messages": HELLO, "max_tokens": 16}, "message_start ... message_stop"),
        op(post, "/v1/messages/count_tokens", "Anthropic", "Count a conversation's tokens", o.TokenCount,
           anthropic.CountBody, {"messages": HELLO}),
        op(post, "/generate", "SGLang", "Continue texts", o.Generated | list[o.Generated],
           sglang.GenerateBody, {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16}},
           "all so far, again and again, then [DONE]"),
        op(get, "/health_generate", "SGLang", "Prove the whole path by generating a token", open=True,
           media=""),
        op(get, "/get_model_info", "SGLang", "Name the model", s.ModelInfo),
        op(get, "/model_info", "SGLang", "The same, by its newer name", s.ModelInfo),
        op(post, "/tokenize", "Utilities", "Turn a text or a conversation into tokens", s.Tokens,
           utilities.TokenizeBody, {"prompt": "Hello"}),
        op(post, "/detokenize", "Utilities", "Turn tokens into text", s.Text, utilities.DetokenizeBody,
           {"tokens": [72, 105]}),
        op(post, "/abort", "Utilities", "End live requests", s.Aborted, utilities.AbortBody, _ABORT),
        op(post, "/abort_request", "Utilities", "End live requests, by SGLang's name", s.Aborted,
           utilities.AbortBody, _ABORT),
        op(get, "/server_info", "Server", "Show versions, configuration and state", s.ServerInfo),
        op(get, "/get_server_info", "Server", "The same, by SGLang's name", s.ServerInfo),
        op(post, "/start_profile", "Server", "Begin to record what every process does", s.ProfileStarted),
        op(post, "/stop_profile", "Server", "End it, and get it as a trace for Perfetto", dict[str, Any]),
        op(post, "/drain", "Server", "Take no new requests, finish those there are, and end", s.Ordered),
        op(post, "/restart/{role}", "Server", "Replace a role's processes, or one: executor, executor.0",
           s.Ordered),
        op(get, "/cache", "Server", "Show what the prefix cache holds, in numbers", s.Cache),
        op(post, "/flush_cache", "Server", "Drop from the prefix cache what nobody uses", s.CacheFlushed),
        op(get, "/version", "Server", "Show the version", s.Version, open=True),
        op(get, "/health", "Server", "Tell whether every process is well; 503 where one is not", s.Health,
           open=True),
        op(get, "/ping", "Server", "The same, by SageMaker's name", s.Health, open=True),
        op(post, "/ping", "Server", "The same", s.Health, open=True),
        op(get, "/load", "Server", "Count the requests that have not ended", s.Load, open=True),
        op(get, "/metrics", "Server", "Metrics for Prometheus", media="text/plain", open=True),
        op(get, "/v1/stream", "Server", "A WebSocket: connect to it with one, else the answer is 426"),
        op(get, "/openapi.json", "Server", "This document", dict[str, Any], open=True),
        op(get, "/docs", "Server", "This document, to be read", media="text/html", open=True),
        op(get, "/", "Server", "A word of welcome", media="text/plain", open=True),
    ]  # fmt: skip
