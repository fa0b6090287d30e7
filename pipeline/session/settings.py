"""Settings of every Spark session of the pipeline, as one table, and the settings from outside.

A row's reach names the sessions that it applies to. Settings of spark-submit, PYSPARK_SUBMIT_ARGS or spark-defaults.conf have
priority.
"""

from __future__ import annotations

import enum
import os
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import EnvironmentFault

ATTEMPTS = 3
"""Number of attempts of a local master at a task. Spark's default is one."""
DRIVER_MEMORY = "2g"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


class Reach(enum.Enum):
    """The sessions that a setting applies to."""

    ANY = "any session, over Spark Connect too"
    CONTEXT = "sessions whose driver is this process"
    JVM = "sessions whose JVM is started here"
    LOCAL = "sessions on this machine alone"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `about` explains the difference from Spark's default."""

    key: str
    value: str
    reach: Reach
    about: str


SETTINGS = (
    Setting("spark.sql.session.timeZone", "UTC", Reach.ANY, "times mean the same on every machine"),
    Setting("spark.sql.parquet.compression.codec", "zstd", Reach.ANY, "fewer bytes than Spark's snappy"),
    Setting(
        "spark.sql.python.filterPushdown.enabled", "true", Reach.ANY, "the sources prune segments; off, their reads would fail"
    ),
    Setting("spark.app.name", "kraftlab", Reach.CONTEXT, "the name in the cluster's list of applications"),
    Setting("spark.driver.memory", DRIVER_MEMORY, Reach.JVM, "room for sorts over millions of changes; Spark's own is 1g"),
    Setting("spark.ui.enabled", "false", Reach.LOCAL, "no port is opened, and the start is faster"),
    Setting("spark.ui.showConsoleProgress", "false", Reach.CONTEXT, "its bar would be written into the command's own lines"),
    Setting("spark.driver.host", "127.0.0.1", Reach.LOCAL, "no look-up of this machine's name"),
    Setting("spark.driver.bindAddress", "127.0.0.1", Reach.LOCAL, "no other machine can connect"),
)


def local_master(cores: int | None = None) -> str:
    """Return the master for this machine's processors, or some of them. Failed tasks are repeated."""
    return f"local[{cores or '*'},{ATTEMPTS}]"


def is_local(master: str) -> bool:
    """Return whether driver and workers are one machine, so that both see its files."""
    return master == "local" or master.startswith("local[")


SHARED_FILES = "spark.kraftlab.sharedFiles"
"""A setting of our own: paths of this machine lie on a disk that the workers of another master mount at the same place."""


@dataclass(frozen=True, slots=True)
class Master:
    """Master of a session, and whether its workers see the files of this machine."""

    url: str
    shares_files: bool
    is_remote: bool = False
    """True over Spark Connect."""


def shuffle_partitions(processors: int) -> str:
    """Return enough partitions that every processor has the next one waiting. On a cluster Spark coalesces its own 200."""
    return str(max(4, 2 * processors))


def wanted(reaches: Collection[Reach], processors: int) -> dict[str, str]:
    """Return key and value of all settings for sessions of these kinds."""
    chosen = {setting.key: setting.value for setting in SETTINGS if setting.reach in reaches}
    if Reach.LOCAL in reaches:
        chosen["spark.sql.shuffle.partitions"] = shuffle_partitions(processors)
    return chosen


_FLAGS = {"--master": "spark.master", "--driver-memory": "spark.driver.memory", "--name": "spark.app.name"}
_CONF_FLAGS = ("--conf", "-c")
_PROPERTY = re.compile(r"\s*(?P<key>[^\s=:#!][^\s=:]*)\s*[=:\s]\s*(?P<value>.*?)\s*$")


def given_outside(environ: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Return settings of spark-defaults.conf and PYSPARK_SUBMIT_ARGS; the latter have priority. EnvironmentFault if they cannot
    be parsed.
    """
    return _defaults(environ, spark_home) | _submit_arguments(environ.get("PYSPARK_SUBMIT_ARGS", ""))


def _submit_arguments(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise EnvironmentFault(f"PYSPARK_SUBMIT_ARGS is {text!r}: {error}; correct it, or unset it") from None
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in _FLAGS and flag not in _CONF_FLAGS:
            continue
        value = value if equals else next(words, "")
        key, _, of_conf = value.partition("=")
        if flag in _FLAGS:
            given[_FLAGS[flag]] = value
        else:
            given[key.strip()] = of_conf.strip()
    return given


def _defaults(environ: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    path = Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf") / "spark-defaults.conf"
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (_PROPERTY.match(line) for line in lines)
    return {pair["key"]: pair["value"] for pair in pairs if pair}


def processors() -> int:
    """Return the number of processors that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
