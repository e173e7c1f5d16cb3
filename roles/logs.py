"""Log lines: one per event, as text or as JSON.

ctx.log.info("request ended", extra={"fields": {"request_id": "cmpl-1", "tokens": 12}})

INFO gateway.0 request ended request_id=cmpl-1 tokens=12
{"time":"2026-01-31T12:00:00.000Z","level":"info","role":"gateway.0","event":"request ended",
 "request_id":"cmpl-1","tokens":12}
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal

Format = Literal["text", "json"]


class Formatter(logging.Formatter):
    """One line per record; `extra={"fields": {...}}` adds to it, an exception is part of it."""

    def __init__(self, role: str, kind: Format) -> None:
        super().__init__()
        self._role, self._kind = role, kind

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        if self._kind == "json":
            return self._json(record, fields)
        more = "".join(f" {name}={value}" for name, value in fields.items())
        line = f"{record.levelname} {self._role} {record.getMessage()}{more}"
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"

    def _json(self, record: logging.LogRecord, fields: dict[str, Any]) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head: dict[str, Any] = {
            "time": f"{when}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "event": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(head | fields, ensure_ascii=False, separators=(",", ":"), default=str)


class Plain(Formatter):
    """The supervisor's text lines, which people read: `stretto: ...`."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record) if self._kind == "json" else f"stretto: {record.getMessage()}"


def set_up(role: str, level: str, kind: Format) -> None:
    """Log to the standard error, as the process of this name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Plain(role, kind) if role == "supervisor" else Formatter(role, kind))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
