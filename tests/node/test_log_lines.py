"""The lines of a node's log: none can be forged, in text or in JSON, whatever strangers send."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlab.common import audit
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import ControllerConfig, build
from kraftlab.node import log_lines
from kraftlab.node.log_file import LogFile
from kraftlab.node.log_lines import JsonFormatter, TextFormatter, rfc_3339

FORGED = "orders\n2026-11-28 21:04:05,678 INFO kraftlab.audit: changed: User:admin"
texts = st.text(st.characters()) | st.text(st.sampled_from('\n\r\0\x1b\x85\u2028\u202e\ud800\udc80a\\"%'))


def record(message: str, error: BaseException | None = None, **more: Any) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("kraftlab.gateway", logging.WARNING, __file__, 1, "%s", (message,), exc_info)
    made.__dict__.update(more)
    return made


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as same:
        return same


def as_utf_16(text: str) -> bytes:
    """The text in JSON's terms, where two halves of a surrogate pair are one character."""
    return text.encode("utf-16", "surrogatepass")


@given(texts)
@example("t" * 249)
@example("x" * (1 << 20))
@example("é\n" * (1 << 19))
@example(FORGED)
def test_any_message_is_one_line_of_json_that_gives_it_back(message: str) -> None:
    line = JsonFormatter(7, "broker").format(record(message))
    assert len(line.splitlines()) == 1 and line.isprintable()
    found = json.loads(line.encode())
    assert as_utf_16(found["message"]) == as_utf_16(message)
    assert (found["level"], found["logger"], found["node"], found["role"]) == ("WARNING", "kraftlab.gateway", 7, "broker")


@given(texts)
@example(FORGED)
def test_any_message_is_one_printable_line_of_text(message: str) -> None:
    line = TextFormatter().format(record(message))
    assert line.isprintable()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING kraftlab\.gateway: ", line)


def test_text_stays_as_it_is_if_it_can_be_printed() -> None:
    assert TextFormatter().format(record("Größe 中 \\n")).endswith("WARNING kraftlab.gateway: Größe 中 \\n")


def test_a_traceback_is_indented_in_text_and_a_field_in_json() -> None:
    error = raised(ValueError(f"\x1b[2J{FORGED}"))
    first, *others = TextFormatter().format(record("failed", error)).split("\n")
    assert first.endswith("failed") and others[0] == "  Traceback (most recent call last):"
    assert any(line.startswith('    File "') for line in others)
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    found = json.loads(JsonFormatter(7, "broker").format(record("failed", error)))
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback (most recent call last):\n") and FORGED in found["exception"]


def test_json_names_epoch_and_offset_once_they_are_known(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: log_lines.show_position(None))
    formatter = JsonFormatter(7, "broker")
    assert {"epoch", "offset"}.isdisjoint(json.loads(formatter.format(record("early"))))
    log_lines.show_position(lambda: (4, 312))
    found = json.loads(formatter.format(record("later")))
    assert (found["epoch"], found["offset"]) == (4, 312)


def test_fields_of_a_record_stand_beside_the_others_and_replace_none() -> None:
    fields = {"principal": "User:a", "level": "FORGED", "object": Path("/x")}
    found = json.loads(JsonFormatter(7, "broker").format(record("m", fields=fields)))
    assert (found["principal"], found["level"], found["object"]) == ("User:a", "WARNING", "/x")


def test_lines_of_the_audit_log_have_their_parts_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kraftlab.audit")
    audit.AuditLog().refused("User:alice", "10.0.0.7", "DELETE", "TOPIC orders")
    audit.AuditLog().login_failed("KAFKA", "10.0.0.7", "no TLS")
    audit.changed("User:admin", "10.0.0.8", "CreateTopics", "orders", 312)
    refused, failed, changed = (json.loads(JsonFormatter(7, "broker").format(line)) for line in caplog.records)
    assert refused["message"] == "refused: User:alice from 10.0.0.7 has no right to DELETE on TOPIC orders"
    assert (refused["event"], refused["principal"], refused["resource"]) == ("refused", "User:alice", "TOPIC orders")
    assert (failed["event"], failed["listener"], failed["reason"]) == ("login-failed", "KAFKA", "no TLS")
    assert (changed["event"], changed["call"], changed["end_offset"]) == ("changed", "CreateTopics", 312)


@given(st.integers(0, 4_000_000_000_000))
def test_times_are_rfc_3339_with_milliseconds(milliseconds: int) -> None:
    shown = rfc_3339((milliseconds + 0.5) / 1000)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown)
    assert shown.endswith(f"{milliseconds % 1000:03d}Z")


# --- where the lines go -------------------------------------------------------------------------------------------------------


def config_with(**changes: str) -> ControllerConfig:
    values = {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "listeners": "CONTROLLER://127.0.0.1:19093,GRPC://127.0.0.1:19100",
        "metadata.log.dir": "/var/lib/kraftlab",
    }
    values |= {key.replace("_", "."): value for key, value in changes.items()}
    return build(values, "controller.properties", "controller", ControllerConfig)


@pytest.fixture
def file_log(tmp_path: Path) -> Iterator[SimpleNamespace]:
    directory = tmp_path / "logs"
    directory.mkdir()
    handler = LogFile(directory / "node.log")
    handler.setFormatter(TextFormatter())
    yield SimpleNamespace(directory=directory, path=directory / "node.log", write=lambda text: handler.handle(record(text)))
    handler.close()


def test_a_file_that_was_moved_is_opened_again(file_log: SimpleNamespace) -> None:
    file_log.write("first")
    file_log.path.rename(file_log.directory / "node.log.1")
    file_log.write("second")
    assert "first" in (file_log.directory / "node.log.1").read_text()
    assert "second" in file_log.path.read_text()


def test_lines_go_to_standard_error_while_the_file_cannot_be_opened(
    file_log: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    file_log.path.unlink()
    file_log.directory.rename(file_log.directory.with_name("gone"))
    file_log.write("meanwhile")
    assert capsys.readouterr().err.endswith("kraftlab.gateway: meanwhile\n")
    file_log.directory.mkdir()
    file_log.write("again")
    assert "again" in file_log.path.read_text() and capsys.readouterr().err == ""


def test_a_full_disk_does_not_end_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFile(Path("/dev/full"))
    handler.setFormatter(TextFormatter())
    handler.handle(record("no room"))
    assert capsys.readouterr().err.endswith("kraftlab.gateway: no room\n")
    handler.stream = None


def test_a_file_that_cannot_be_opened_is_named_with_its_property(tmp_path: Path) -> None:
    config = config_with(log_file=str(tmp_path))
    with pytest.raises(ConfigError, match=rf"controller.properties: log.file={tmp_path}: it cannot be opened: Is a directory; "):
        log_lines.begin(config)


def test_a_fifo_without_a_reader_is_refused_and_does_not_keep_the_node_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="fifo: it cannot be opened: No such device or address; "):
        log_lines.begin(config_with(log_file=str(tmp_path / "fifo")))


def test_a_fifo_with_a_reader_takes_lines(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    handler = LogFile(path)
    handler.setFormatter(TextFormatter())
    handler.handle(record("by pipe"))
    handler.close()
    assert os.read(reader, 1000).endswith(b"by pipe\n")
    os.close(reader)


@contextmanager
def fresh_process() -> Iterator[None]:
    """Loggers and hooks as a process has them before it begins its log."""
    handlers, level, hooks = logging.root.handlers, logging.root.level, (sys.excepthook, threading.excepthook)
    logging.root.handlers = []
    try:
        yield
    finally:
        for handler in logging.root.handlers:
            handler.close()
        logging.captureWarnings(False)
        logging.root.handlers, (sys.excepthook, threading.excepthook) = handlers, hooks
        logging.root.setLevel(level)


def test_the_error_that_ends_a_node_is_a_line_of_a_json_log(capsys: pytest.CaptureFixture[str]) -> None:
    with fresh_process():
        end_with = log_lines.begin(config_with(log_format="json"))
        end_with("Error: no disk")
        warnings.warn("odd", stacklevel=1)
        error = raised(KeyError("a bug"))
        sys.excepthook(type(error), error, error.__traceback__)
    fatal, warning, bug = map(json.loads, capsys.readouterr().err.splitlines())
    assert (fatal["level"], fatal["message"], fatal["node"]) == ("ERROR", "no disk", 3000)
    assert (warning["level"], warning["logger"]) == ("WARNING", "py.warnings")
    assert (bug["level"], "KeyError: 'a bug'" in bug["exception"]) == ("CRITICAL", True)


def test_with_a_file_the_error_stands_in_it_and_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fresh_process():
        end_with = log_lines.begin(config_with(log_file=str(tmp_path / "node.log")))
        error = raised(KeyError("a bug"))
        sys.excepthook(type(error), error, error.__traceback__)
        end_with("Error: no disk")
    log, said = (tmp_path / "node.log").read_text(), capsys.readouterr().err
    assert log.endswith("ERROR kraftlab.node: no disk\n") and said.endswith("\nError: no disk\n")
    assert "  KeyError: 'a bug'\n" in log and "\nKeyError: 'a bug'\n" in said


def test_text_on_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with fresh_process():
        end_with = log_lines.begin(config_with())
        logging.getLogger("kraftlab.node").info("a line")
        end_with(f"Error: no {FORGED}")
    line, error = capsys.readouterr().err.splitlines()
    assert line.endswith(" INFO kraftlab.node: a line") and error.startswith("Error: no orders\\n2026")
