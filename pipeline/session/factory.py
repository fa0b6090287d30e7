"""The one place that makes Spark sessions.

`create` starts a session, or returns the running one: over Spark Connect for SPARK_REMOTE or an `sc://` master (with a server of
its own for SPARK_REMOTE=local); in the JVM of spark-submit; otherwise in a JVM of its own, for which it finds Java. The master is
the requested one, otherwise the one set outside, otherwise this machine. `session` ends everything that it started, including the
JVM.

Only this room uses Spark's context and its JVM: everything else works over Spark Connect.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kraftlab.common.extras import install_command

from ..errors import EnvironmentFault, WrongUse
from . import cache, java, settings
from .archive import archive_for
from .settings import Master, Reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE = "sc://"
CONNECT_PORT = 15_002
KNOCK_TIMEOUT_S = 20
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Environment variables of proxies that gRPC uses."""
EXIT_TIMEOUT_S = 300
MEMORY = "spark.driver.memory"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def create(*, master: str | None = None, conf: Mapping[str, str] = {}) -> SparkSession:
    """Return a Spark session, the running one if there is one. `conf` overrides everything else.

    Raises NoJava, EnvironmentFault for a master that cannot be used, WrongUse for one that differs from the running session's.
    """
    running = _running()
    if running is not None:
        return _checked(running, master)
    remote = master if master and master.startswith(REMOTE) else None if master else os.environ.get("SPARK_REMOTE")
    if remote is not None:
        return _connect(remote, conf)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted(master, conf)
    return _start(master, conf)


@contextlib.contextmanager
def session(*, master: str | None = None, conf: Mapping[str, str] = {}) -> Iterator[SparkSession]:
    """Provide a session for a while. A session that `create` started is stopped at the end, a running one is left alone."""
    kept = _running() is not None
    spark = create(master=master, conf=conf)
    try:
        yield spark
    finally:
        if not kept:
            stop(spark)


def stop(spark: SparkSession) -> None:
    """Stop a session, and wait for the end of its JVM if this process started it."""
    spark.stop()
    stop_jvm()


def stop_jvm() -> None:
    """End the JVM that this process started, if any. The next session starts a new one, with its own settings."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None or process.stdin is None:
        return
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def master_of(spark: SparkSession) -> Master:
    """Return the master of a session. Over Spark Connect the server has its own files, whatever its master is."""
    url = spark.conf.get("spark.master", None) or REMOTE
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    shared = str(spark.conf.get(settings.SHARED_FILES, "false")).lower() == "true"
    return Master(f"{REMOTE} ({url})" if is_remote else url, shared or (settings.is_local(url) and not is_remote), is_remote)


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the Spark that will run: SPARK_HOME, otherwise the one inside the package pyspark."""
    import pyspark

    return Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _running() -> SparkSession | None:
    from pyspark.sql import SparkSession

    found: SparkSession | None = SparkSession.getActiveSession()
    return found


def _checked(running: SparkSession, master: str | None) -> SparkSession:
    runs_on = master_of(running).url
    if master is not None and not master.startswith(REMOTE) and master != runs_on:
        raise WrongUse(f"a session with master {runs_on} runs in this process; stop it before one with {master} is made")
    return running


def _connect(remote: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    if remote.startswith(REMOTE) and not any(name in os.environ for name in PROXIES):
        check_listening(remote)
    wanted = settings.wanted({Reach.ANY}, settings.processors()) | dict(conf)
    if settings.is_local(remote):
        _set_python(remote)
        os.environ.setdefault("SPARK_HOME", str(spark_home()))
        wanted |= {settings.SHARED_FILES: "true", JAVA_OPTIONS: java_options(java.ensure(), wanted.get(JAVA_OPTIONS, ""))}
    with warnings.catch_warnings():
        # PySpark sends the server's own settings once more as settings of the session, and warns about those that it refuses.
        warnings.simplefilter("ignore", UserWarning)
        return built(SparkSession.builder.remote(remote), wanted, remote)


def check_listening(remote: str) -> None:
    """Raise EnvironmentFault if nothing listens there: PySpark would retry for many minutes without a message."""
    try:
        place = urlsplit(remote)
        with socket.create_connection((place.hostname or "", place.port or CONNECT_PORT), KNOCK_TIMEOUT_S):
            pass
    except (OSError, ValueError) as error:
        raise EnvironmentFault(_no_session(remote, str(error))) from None


def _submitted(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Return a session in the JVM of spark-submit, whose settings have priority."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    submitted = given["spark.master"]
    if master not in (None, submitted):
        raise WrongUse(f"spark-submit has the master {submitted} and this command {master}; leave out one of them")
    _set_python(submitted)
    wanted = settings.wanted(_reaches(submitted) - {Reach.JVM}, settings.processors())
    return built(SparkSession.builder, wanted | given | dict(conf), submitted)


def _start(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    outside = settings.given_outside(os.environ, spark_home()) | dict(conf)
    master = master or outside.get("spark.master") or settings.local_master()
    found = java.ensure()
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
    _set_python(master)
    wanted = settings.wanted(_reaches(master), settings.processors()) | outside | {"spark.master": master}
    wanted[JAVA_OPTIONS] = java_options(found, wanted.get(JAVA_OPTIONS, ""))
    with no_half_started_jvm():
        return built(SparkSession.builder, wanted, master)


def has_jvm() -> bool:
    """Return whether PySpark has a JVM that has announced its port."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


@contextlib.contextmanager
def no_half_started_jvm() -> Iterator[None]:
    """End a JVM that is interrupted before PySpark has its gateway: it ignores Ctrl-C, and would live on unused."""
    launching: Any = importlib.import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []
    popen = launching.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    launching.Popen = noted
    try:
        yield
    except BaseException:
        for process in started if not has_jvm() else ():
            process.kill()
            process.wait()
        raise
    finally:
        launching.Popen = popen


def java_options(found: java.Java, given: str) -> str:
    """Return options of the driver's JVM: no messages about itself on stdout, the archive of classes if there is one, and the
    given options.
    """
    options = [f"-Dlog4j2.configurationFile={settings.LOG_SETTINGS.as_uri()}", "-Xlog:disable"]
    if "SharedArchiveFile" not in given:
        options += archive_for(found, spark_home(), cache.directory(os.environ)).options
    return f"{shlex.join(options)} {given}".strip()


def _reaches(master: str) -> set[Reach]:
    return {Reach.ANY, Reach.CONTEXT, Reach.JVM} | ({Reach.LOCAL} if settings.is_local(master) else set())


def _set_python(master: str) -> None:
    """Make workers on this machine run this interpreter, not the first python3 on PATH. Elsewhere this path has no meaning."""
    if settings.is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def built(builder: SparkSession.Builder, wanted: Mapping[str, str], master: str) -> SparkSession:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException, PySparkImportError

    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        spark: SparkSession = builder.getOrCreate()
    except PySparkImportError as error:
        raise EnvironmentFault(f"{error}\nNext step: {install_command('pipeline')}") from None
    except PySparkException as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise EnvironmentFault(_no_jvm(wanted)) from None
        raise EnvironmentFault(_no_session(master, str(error))) from error
    except Py4JJavaError as error:
        raise EnvironmentFault(_no_session(master, str(error.java_exception.getMessage()))) from error
    return spark


def _no_jvm(wanted: Mapping[str, str]) -> str:
    return (
        "the JVM for Spark ended before it was ready; its output is above. "
        f"It was given the memory {wanted.get(MEMORY)} and the options {wanted.get(JAVA_OPTIONS)}.\n"
        "Next step: kraftlab pipeline doctor"
    )


def _no_session(master: str, reason: str) -> str:
    first = reason.strip().partition("\n")[0]
    return f"no session with the master {master}: {first}\nNext step: see that it runs and can be reached, or leave --master out"
