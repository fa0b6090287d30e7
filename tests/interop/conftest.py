"""Existing Kafka clients as black boxes, on one cluster of three controllers and four brokers.

Apache Kafka's tools need Java 17 and Maven, franz-go needs Go. Tests are skipped, with the reason, where a tool chain is missing
or cannot download. Jars are kept in ~/.cache/kraftlab, Go's modules in Go's cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftlab.lab.local import LocalCluster

HERE = Path(__file__).parent
JARS = Path.home() / ".cache" / "kraftlab" / "kafka-4.3.0"
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
CLASSES = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-topics": "TopicCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
}
"""Classes of the scripts, most of them below org.apache.kafka.tools."""
TIMEOUT_S = 90


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("interop")


@pytest.fixture(scope="session")
def cluster(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Start three controllers and four brokers. Callers, who are anonymous, may do everything.

    At the end no node must have logged an error.
    """
    access = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with LocalCluster(tmp_path_factory.mktemp("interop"), 3, 4, 2, overrides=access) as cluster:
        yield cluster
        logs = {node.name: cluster.log_path(node.node_id).read_text() for node in cluster.plan.nodes}
    errors = [f"{name}: {line}" for name, text in logs.items() for line in text.splitlines() if " ERROR " in line]
    assert not errors


class KafkaTools:
    """Runs the scripts of Apache Kafka's bin directory, with a file of client properties and options of Java."""

    def __init__(self, bootstrap: str, config: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self._where = ("--bootstrap-server", bootstrap, *(() if config is None else ("--command-config", str(config))))
        self._options = options

    def __call__(self, script: str, *arguments: str, code: int = 0, stdin: str = "", warnings: tuple[str, ...] = ()) -> str:
        """Run a script to its end; return its standard output, and its errors if it is to fail.

        A script that succeeds must log no warning but those with these words.
        """
        done = subprocess.run(
            self.command(script, *arguments), input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        logged = [line for line in done.stderr.splitlines() if re.match(r"\[.*\] (WARN|ERROR) ", line)]
        assert code != 0 or all(any(words in line for words in warnings) for line in logged), done.stderr
        return done.stdout + (done.stderr if code != 0 else "")

    def command(self, script: str, *arguments: str) -> list[str]:
        name = CLASSES[script]
        main = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        # The command of kafka-cluster comes before its options.
        first, rest = (arguments[:1], arguments[1:]) if script == "kafka-cluster" else ((), arguments)
        where = () if "--bootstrap-controller" in rest else self._where
        return ["java", *JAVA_OPTIONS, *self._options, "-cp", f"{JARS}/*", main, *first, *where, *rest]


@pytest.fixture(scope="session")
def kafka(jars: None, cluster: LocalCluster) -> KafkaTools:
    return KafkaTools(cluster.kafka_bootstrap_servers)


@pytest.fixture(scope="session")
def jars() -> None:
    """Download Apache Kafka's tools once."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on the path: Apache Kafka's tools need Java 17 and Maven")
    version = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()[0]
    if int(re.sub(r'.*"(\d+).*', r"\1", version)) < 17:
        pytest.skip(f"{version}: Apache Kafka's tools need Java 17")
    if not JARS.exists():
        partial = JARS.with_name(f"{JARS.name}.partial")
        pom = HERE / "kafka_tools" / "pom.xml"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"Maven cannot download Apache Kafka 4.3.0: {done.stdout.strip().splitlines()[0]}")
        partial.rename(JARS)


@pytest.fixture(scope="session")
def go_modules() -> Path:
    """Download franz-go once; return the folder of the module that uses it."""
    if shutil.which("go") is None:
        pytest.skip("no go on the path: franz-go needs Go")
    source = HERE / "franz_go"
    downloaded = subprocess.run(["go", "mod", "download"], cwd=source, capture_output=True, text=True, check=False)
    if downloaded.returncode != 0:
        pytest.skip(f"Go cannot download franz-go: {downloaded.stderr.strip().splitlines()[-1]}")
    return source


@pytest.fixture(scope="session")
def franz_go(go_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that uses franz-go; return its path."""
    return _built(go_modules, tmp_path_factory.mktemp("franz_go") / "franz_go", "build", ".")


def run_franz_go(program: Path, *arguments: str, seconds: float = 0, environment: Mapping[str, str] | None = None) -> str:
    """Run the program to its end; return its output. Warnings of franz-go fail the test. Its input ends after `seconds`."""
    call = ["sh", "-c", f'sleep {seconds} | "$@"', "sh", str(program), *arguments]
    whole = os.environ | (environment or {})
    done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=whole)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


class Suite(NamedTuple):
    """Tests of a Go package: a program, and the folder of the sources, which some of the tests read."""

    program: Path
    directory: Path


@pytest.fixture(scope="session")
def kgo_suite(go_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """Build franz-go's own tests of its client."""
    package = "github.com/twmb/franz-go/pkg/kgo"
    program = _built(go_modules, tmp_path_factory.mktemp("kgo") / "kgo.test", "test", package, "-c")
    listed = subprocess.run(["go", "list", "-f", "{{.Dir}}", package], cwd=go_modules, capture_output=True, text=True, check=True)
    return Suite(program, Path(listed.stdout.strip()))


def _built(source: Path, program: Path, command: str, package: str, *options: str) -> Path:
    """Build a package, or its tests. Go keeps what it has compiled."""
    call = ["go", command, *options, "-o", str(program), package]
    built = subprocess.run(call, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program
