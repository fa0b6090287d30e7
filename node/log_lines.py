"""The lines of a node's log: text, or one JSON object each (`log.format`), to standard error or to a file (`log.file`).

Theory of operation. Names and texts of strangers reach the log: client ids, hosts, topics, errors of the network. So no character
of a message can end its line or move a terminal's cursor: characters that are not printable are escaped. In text a traceback
follows its line, each of its lines indented; a line that begins with a time is one that this node wrote. In JSON the traceback is
a field. The end of a node by an error is a line of the log too, unless the log is text on standard error: there the error's text
alone stands, as commands print theirs. Libraries in C (gRPC) write text to standard error, whatever the format.

A line does not wait for its readers, but for the disk of a file: `log.file` belongs on a disk that answers.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec

from kraftlab.config.errors import ConfigError
from kraftlab.config.models import NodeConfig

logger = logging.getLogger("kraftlab.node")

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_NOT_ASCII = re.compile(r"[^ -~]")
_encode = msgspec.json.Encoder(enc_hook=str).encode


_position: Callable[[], tuple[int, int]] | None = None


def show_position(ask: Callable[[], tuple[int, int]] | None) -> None:
    """Let JSON lines name the epoch (0: unknown) and the applied offset that `ask` returns. Any thread may call it. A node that
    ends gives None: what `ask` holds must not live until the interpreter ends.
    """
    global _position
    _position = ask


class TextFormatter(logging.Formatter):
    """`2026-11-28 21:04:05,678 INFO kraftlab.node: text`, and a traceback in indented lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """One JSON object: `time`, `level`, `logger`, `message`, `node`, `role`; `epoch` and `offset` where known; `exception`; and
    what the record has as `extra={"fields": {…}}`.
    """

    def __init__(self, node_id: int, role: str) -> None:
        super().__init__()
        self._node_id = node_id
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": rfc_3339(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "node": self._node_id,
            "role": self._role,
        }
        ask = _position
        if ask is not None and (position := ask())[0]:
            line["epoch"], line["offset"] = position
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for name, value in record.__dict__.get("fields", {}).items():
            line.setdefault(name, value)
        return _json(line)


def rfc_3339(seconds: float) -> str:
    """UTC with milliseconds: `2026-11-28T21:04:05.678Z`."""
    milliseconds = int(seconds * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03d}Z"


def escaped(text: str) -> str:
    """Return the text with each character that is not printable as Python writes it: `\\n`, `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else _NOT_ASCII.sub(_python_escape, text)


def _python_escape(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() else repr(character)[1:-1]


def _indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.split("\n"))


def _json(line: dict[str, object]) -> str:
    try:
        text = _encode(line).decode()
    except UnicodeEncodeError:  # Half a surrogate pair, as in the name of a file that is not UTF-8.
        return json.dumps(line, default=str)
    return text if text.isprintable() else _NOT_ASCII.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def begin(config: NodeConfig) -> Callable[[str], None]:
    """Write the lines of all loggers as the node's configuration says. Return a function that tells of the error that ends the
    node. ConfigError for a file that cannot be opened.
    """
    handler = _handler(config)
    is_json = config.log_format == "json"
    handler.setFormatter(JsonFormatter(config.node_id, config.process_roles[0]) if is_json else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if not is_json and config.log_file is None:
        return print_error
    logging.captureWarnings(True)

    def log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        logger.critical("an error ended this node or one of its threads", exc_info=(kind, error or kind(), trace))
        if config.log_file is not None:
            sys.__excepthook__(kind, error or kind(), trace)

    def end_with(text: str) -> None:
        logger.error("%s", text.removeprefix("Error: "))
        if config.log_file is not None:
            print_error(text)

    sys.excepthook = log_uncaught
    threading.excepthook = lambda hook: log_uncaught(hook.exc_type, hook.exc_value, hook.exc_traceback)
    return end_with


def print_error(text: str) -> None:
    """Print the error that ends a node as commands print theirs, in one line."""
    print(escaped(text), file=sys.stderr)


def _handler(config: NodeConfig) -> logging.Handler:
    if config.log_file is not None:
        from .log_file import LogFile

        try:
            return LogFile(config.log_file)
        except OSError as error:
            raise ConfigError(
                f"{config.source}: log.file={config.log_file}: it cannot be opened: {error.strerror}; check the path and its "
                "permissions"
            ) from error
    if config.log_format == "json" and hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(encoding="utf-8")
    return logging.StreamHandler(sys.stderr)
