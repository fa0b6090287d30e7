"""README's block of Apache Kafka's own tools, run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from kraftlab.lab.local import LocalCluster

from .conftest import CLASSES, JARS, JAVA_OPTIONS

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README[README.index("## With existing Kafka clients") : README.index("## In Python")]
(BLOCK,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)


def scripts(directory: Path) -> None:
    """Write Kafka's scripts, as its distribution has them."""
    for script, name in CLASSES.items():
        main = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        path = directory / f"{script}.sh"
        path.write_text(f'#!/bin/sh\nexec java {" ".join(JAVA_OPTIONS)} -cp "{JARS}/*" {main} "$@"\n')
        path.chmod(0o755)


def test_the_tools_of_the_readme(cluster: LocalCluster, jars: None, tmp_path: Path) -> None:
    scripts(tmp_path)
    port = cluster.plan.brokers[0].kafka_port
    text = BLOCK.replace("localhost:9092", f"localhost:{port}").replace("/tmp/move.json", "move.json")
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e"], input=text, capture_output=True, text=True, timeout=180, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("Created topic sales.", "Successfully started partition reassignment for sales-0", "a sale"):
        assert line in done.stdout.splitlines()
    assert re.search(r"^LeaderId: +300\d$", done.stdout, re.MULTILINE)
    assert '"partition":"sales-0"' in done.stdout
