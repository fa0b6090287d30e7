"""Common code of commands that need Spark."""

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
    """Provide a session with the options of `kraftlab pipeline --master … --conf …`. It is stopped at the end, unless it was
    running before.
    """
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
        stack.enter_context(_quiet_interrupts())
        yield spark


@contextlib.contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Replace PySpark's handler of Ctrl-C, which calls the JVM wherever the signal interrupts the program, even within such a
    call; and silence what PySpark and Py4J log about errors that are raised as well.
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
