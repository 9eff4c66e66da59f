"""Structured logs with redaction on every handler, ours and everybody else's.

It must not be possible to log an address, a link, a token or a credential by mistake: whatever looks
like one is replaced before a line is written, whoever wrote it (case F26).
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import structlog

# Third parties that log URLs, keys or payloads below these levels.
HELD_DOWN = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "aiokafka": logging.WARNING,
    "faust": logging.WARNING,
    "mode": logging.WARNING,
    "asyncio": logging.WARNING,
    "psycopg": logging.WARNING,
    "psycopg.pool": logging.ERROR,
    "uvicorn": logging.WARNING,
}

_PATTERNS = (
    (re.compile(r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){2,4}"), "[sealed]"),
    (
        re.compile(r"(?i)\b(?:https?|wss?)(?:://|%3A%2F%2F)(?!127\.0\.0\.1|localhost|\[::1\])[^\s\"'<>]+"),
        "[link]",
    ),
    (re.compile(r"[A-Za-z0-9._%+'-]+(?:@|%40)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"), "[address]"),
    (re.compile(r"(?<![A-Za-z0-9_])(?:\+|%2B)[1-9][0-9]{6,14}(?![0-9])"), "[number]"),
    (re.compile(r"(?i)\b(bearer|password=|token[=:]|authorization[=:])\s*[^\s\"',;]+"), r"\1 [secret]"),
)


def redact(text: str) -> str:
    """The text without anything that looks like a destination, a link or a secret."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


class _Redacting(logging.Formatter):
    """Formats with the wrapped formatter, then redacts the whole line, traceback included."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return redact(self._inner.format(record))


def configure(*, level: str = "INFO", as_json: bool = False, stream: Any = None) -> None:
    """One handler on the root logger; structlog and the standard library write the same lines."""
    shared: list[Any] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = (
        structlog.processors.JSONRenderer(sort_keys=True)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=(stream or sys.stderr).isatty(), pad_event_to=0)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Redacting(formatter))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in HELD_DOWN.items():
        logging.getLogger(name).setLevel(max(least, logging.getLevelName(level)))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
