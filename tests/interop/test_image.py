"""The image of a node (examples/deploy/Containerfile): built by buildah, and started as testcontainers for Java starts Kafka's.

Needs root, buildah, and mmdebstrap, which makes the base: a Debian with Python. No registry and no daemon take part. A container
that buildah runs has no network of its own, so the test gives it one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from kraftlab.lab import namespaces
from tests.helpers import testcontainers
from tests.helpers.waiting import wait_until

CLONE = Path(__file__).resolve().parents[2]
MISSING = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
BUILD_S = 900
READY = "Transitioning from RECOVERY to RUNNING"
VARIABLES = testcontainers.JAVA | {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092,BROKER://0f3c:9093",
}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} not found: install them (apt install buildah mmdebstrap)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="buildah's isolation by chroot needs root"),
]


class Builder:
    """buildah with a storage of its own below a directory."""

    def __init__(self, directory: Path) -> None:
        storage = directory / "storage.conf"
        storage.write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{directory}/run"\ngraphroot = "{directory}/graph"\n')
        self._policy = directory / "policy.json"
        self._policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.environment = os.environ | {"CONTAINERS_STORAGE_CONF": str(storage), "STORAGE_DRIVER": "vfs"}

    def run(self, *arguments: str, cwd: Path = CLONE) -> str:
        done = subprocess.run(
            ["buildah", *arguments], capture_output=True, text=True, timeout=BUILD_S, cwd=cwd, env=self.environment, check=False
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout.strip()

    def build(self, tag: str, file: Path, context: Path, *options: str) -> None:
        common = ("--isolation", "chroot", "--format", "docker", "--signature-policy", str(self._policy))
        self.run("bud", *common, *options, "--file", str(file), "--tag", tag, str(context))

    def container(self, image: str) -> str:
        """Make a container of the image and return its name."""
        return self.run("from", "--signature-policy", str(self._policy), image)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A storage with the image `kraftlab`."""
    directory = tmp_path_factory.mktemp("images")
    tree, base = directory / "tree", directory / "Containerfile"
    packages = "--include=python3,python3-venv"
    subprocess.run(["mmdebstrap", "--variant=minbase", packages, "bookworm", tree], timeout=BUILD_S, check=True)
    if authorities := os.environ.get("PIP_CERT"):
        shutil.copy(authorities, tree / "etc" / "authorities.pem")
        (tree / "etc" / "pip.conf").write_text("[global]\ncert = /etc/authorities.pem\n")
    base.write_text("FROM scratch\nCOPY . /\n")
    made = Builder(directory)
    made.build("base", base, tree)
    shutil.rmtree(tree)
    made.build("kraftlab", CLONE / "examples" / "deploy" / "Containerfile", CLONE, "--build-arg", "BASE=localhost/base")
    yield made
    shutil.rmtree(directory)


@contextmanager
def network() -> Iterator[str]:
    """Path of a new network namespace, whose loopback is up."""
    command = ["unshare", "-n", "sh", "-c", "ip link set lo up && echo && cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        yield f"/proc/{holder.pid}/ns/net"
        holder.stdin.close()


def inside(path: str, act: Callable[[], None]) -> None:
    """Act in that network."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            namespaces.enter(path)
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="inside")
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not errors, errors


def write_and_read() -> None:
    with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
        producer.send("t", b"one").get(20)
    with KafkaConsumer("t", bootstrap_servers="localhost:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        assert next(consumer).value == b"one"


def test_the_image_says_how_it_is_run(builder: Builder) -> None:
    template = "{{.Docker.Config.User}} {{.Docker.Config.StopSignal}} {{.Docker.Config.Cmd}} {{.Docker.Config.Volumes}}"
    found = builder.run("inspect", "--type", "image", "--format", template, "localhost/kraftlab")
    assert found == "1000:1000 SIGTERM [kraftlab node --environment] map[/var/lib/kraftlab:{}]"


def test_testcontainers_start_runs_it_without_root(builder: Builder, tmp_path: Path) -> None:
    name = builder.container("localhost/kraftlab")
    options = ["--isolation", "chroot", "--user", "1000:1000", *(f"--env={key}={value}" for key, value in VARIABLES.items())]
    log = tmp_path / "log"
    with network() as path, log.open("wb") as output:
        entering = ["nsenter", f"--net={path}", "buildah", "run", *options, name, "--"]
        start = [*entering, "sh", "-c", "id -u; /etc/kafka/docker/run & echo $! > /tmp/pid; wait $!"]
        running = subprocess.Popen(start, stdout=output, stderr=output, env=builder.environment)
        try:
            wait_until(lambda: READY in log.read_text() or running.poll() is not None, READY, 60)
            inside(path, write_and_read)
            probe = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/readyz')"
            subprocess.run([*entering, "python3", "-c", probe], env=builder.environment, timeout=60, check=True)
        finally:
            subprocess.run([*entering, "sh", "-c", "kill $(cat /tmp/pid)"], env=builder.environment, timeout=60, check=False)
            running.wait(60)
    assert running.returncode == 0, log.read_text()
    assert log.read_text().startswith("1000\n")
