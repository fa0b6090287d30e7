"""What a user reads when a session cannot be made: what was tried, why not, and the next step."""

from __future__ import annotations

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
    ("error", "told"),
    [
        (PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}), "given the memory 900g"),
        (PySparkImportError("grpcio-status is missing"), "pip install 'pyspark[connect]'"),
        (PySparkException("UNAVAILABLE: refused"), "no session with the master spark://h:1: UNAVAILABLE: refused\nNext step"),
        (
            JavaError("Could not parse Master URL\nat org.apache"),
            "no session with the master spark://h:1: Could not parse Master URL\nNext",
        ),
    ],
    ids=["the JVM ended", "a package of Connect", "a server that is away", "a master that is none"],
)
def test_a_session_that_cannot_be_made_is_a_sentence_with_the_next_step(error: Exception, told: str) -> None:
    builder: Any = FailingBuilder(error)
    with pytest.raises(EnvironmentFault) as raised:
        factory._built(builder, {"spark.driver.memory": "900g"}, "spark://h:1")
    assert told in str(raised.value)
    assert "Next step: " in str(raised.value)
