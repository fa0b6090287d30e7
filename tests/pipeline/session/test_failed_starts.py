"""Errors of sessions that cannot be made: the attempt, the reason, and the next step."""

from __future__ import annotations

import importlib
import signal
import socket
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkImportError, PySparkRuntimeError

from kraftlab.pipeline.errors import EnvironmentFault
from kraftlab.pipeline.session import factory


class JavaError(Py4JJavaError):
    """As Py4J raises it, without a JVM to ask."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.java_exception = self
        self.message = message

    def getMessage(self) -> str:
        return self.message


class FailingBuilder:
    """A session builder that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def config(self, key: str, value: str) -> FailingBuilder:
        return self

    def getOrCreate(self) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}), "given the memory 900g"),
        (PySparkImportError("grpcio-status is missing"), "pip install -e '.[pipeline]'"),
        (PySparkException("UNAVAILABLE: refused"), "no session with the master spark://h:1: UNAVAILABLE: refused\nNext step"),
        (
            JavaError("Could not parse Master URL\nat org.apache"),
            "no session with the master spark://h:1: Could not parse Master URL\nNext",
        ),
    ],
    ids=["the JVM ended", "a package of Connect", "a server that is away", "a master that is none"],
)
def test_a_session_that_cannot_be_made_is_a_sentence_with_the_next_step(error: Exception, sentence: str) -> None:
    builder: Any = FailingBuilder(error)
    with pytest.raises(EnvironmentFault) as raised:
        factory.built(builder, {"spark.driver.memory": "900g"}, "spark://h:1")
    assert sentence in str(raised.value)
    assert "Next step: " in str(raised.value)


def test_a_jvm_that_is_interrupted_while_it_starts_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    monkeypatch.setattr(factory, "has_jvm", lambda: False)
    before = java_gateway.Popen
    with pytest.raises(KeyboardInterrupt), factory.no_half_started_jvm():
        process = java_gateway.Popen(["sleep", "60"])
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL
    assert java_gateway.Popen is before


def test_a_connect_server_that_is_not_there_is_reported_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        remote = f"sc://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EnvironmentFault, match=f"no session with the master {remote}: .*refused"):
            factory.check_listening(remote)
    with pytest.raises(EnvironmentFault, match=r"no session with the master sc://127\.0\.0\.1:none"):
        factory.check_listening("sc://127.0.0.1:none")
