"""What commands that need Spark share."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..command import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = "SQLQueryContextLogger"


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session as `kraftlab pipeline --master … --conf …` says, stopped at the end; one that ran before is left alone."""
    from rich.console import Console

    from ..session import factory

    options = click.get_current_context().find_object(SparkOptions) or SparkOptions()
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            with console.status("starting Spark …"):
                spark = stack.enter_context(factory.session(master=options.master, conf=options.conf))
        else:
            spark = stack.enter_context(factory.session(master=options.master, conf=options.conf))
        stack.enter_context(_alone_with_its_errors())
        yield spark


@contextlib.contextmanager
def _alone_with_its_errors() -> Iterator[None]:
    """PySpark's handler of Ctrl-C calls the JVM from wherever the signal finds the program, also from the midst of such a call;
    and what it and Py4J log of errors that are raised as well would stand between a command's own lines.
    """
    from pyspark.logger import PySparkLogger

    logs = logging.getLogger()
    nowhere = logging.NullHandler()
    logs.addHandler(nowhere)
    queries = PySparkLogger.getLogger(QUERIES)
    level = queries.level
    queries.setLevel(logging.CRITICAL)
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
        queries.setLevel(level)
        logs.removeHandler(nowhere)
