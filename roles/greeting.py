"""What a server says when it is ready: where it is, and one line to try it."""

from __future__ import annotations

import json
import shlex

from stretto.roles.config import Config


def greeting(config: Config, seconds: float) -> str:
    """Two lines; the second is a command for a shell. `seconds`: from the start to ready."""
    where = f"unix:{config.uds}" if config.uds else _base(config)
    ready = f"Stretto serves {config.served_model_name} at {where} (ready in {seconds:.1f} s)"
    return f"{ready}\nTry: {shlex.join(_trial(config))}"


def _trial(config: Config) -> list[str]:
    socket = ["--unix-socket", config.uds] if config.uds else []
    key = ["-H", "Authorization: Bearer KEY"] if config.api_key else []
    question = {"role": "user", "content": "What is the capital of France?"}
    body = {"model": config.served_model_name, "messages": [question], "temperature": 0}
    return [
        *("curl", *socket, f"{_base(config)}/v1/chat/completions"),
        *("-H", "Content-Type: application/json", *key, "-d", json.dumps(body, ensure_ascii=False)),
    ]


def _base(config: Config) -> str:
    if config.uds:
        return "http://localhost"
    return f"http://{f'[{config.host}]' if ':' in config.host else config.host}:{config.port}"
