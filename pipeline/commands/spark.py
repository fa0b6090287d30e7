"""What commands that need Spark share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..command import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        yield spark
