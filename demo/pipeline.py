"""Command `python -m kraftlab.demo.pipeline`: from logs to tables, audits, plans and a page, with or without an installed Java.

A cluster of seven processes gets recorded topics; a plan drains a broker, and another reassignment is cancelled half-way. Then
Spark ingests the controllers' logs, and the recorded log of a real Kafka cluster, and the results are compared with the cluster's
own descriptions, and with plain Python.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import click
import msgspec

from kraftlab.cli.main import run
from kraftlab.client.errors import ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.common.exit_codes import DONE, FAILED, INTERRUPTED
from kraftlab.lab import ClusterError, LocalCluster

from .command import interrupt
from .lab import Lab, StoryError, wait_until
from .recording import DEFAULT_CAPTURE, Recording, RecordingError
from .report import StoryReport
from .story import BROKERS, OVERRIDES, Story

KAFKA_LOG = pathlib.Path(__file__).parents[1] / "examples" / "metadata-log" / "00000000000000000000.log.xz"
DRAINED = 0
PLOT = 'class="plot"'
QUICK = "-XX:TieredStopAtLevel=1"
"""The JVM's quick compiler: there is little data."""
CANCELLED = 2
"""Number of reassignments that the story of the main demo cancels."""


class Chapters(StoryReport):
    """A report that numbers the chapters of two stories consecutively."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(as_json=as_json)
        self.chapters = 0

    def chapter(self, number: int, text: str) -> None:
        self.chapters += 1
        super().chapter(self.chapters, text)


class CommandEnded(StoryError):
    """A command ended with an unexpected exit code. The text is its output."""


class PipelineStory:
    """Plays everything and reports the checks. `directory` gets both lakes and the page."""

    def __init__(self, report: StoryReport, recording: Recording, cluster: LocalCluster, directory: pathlib.Path) -> None:
        self.report = report
        self.story = Story(report, recording, cluster)
        self.cluster = cluster
        self.directory = directory
        self.lake = directory / "lake"
        self.moved = 0
        self.last_state: dict[tuple[str, int], list[int]] = {}

    def play(self) -> None:
        """Play all chapters, in order."""
        from kraftlab.pipeline.session import factory

        self.look_for_java()
        self.make_history()
        self.report.chapter(5, "Spark, in a JVM of its own")
        started = time.monotonic()
        with factory.session(conf={factory.JAVA_OPTIONS: QUICK}) as spark:
            spark.range(1).count()
            seconds = time.monotonic() - started
            self.report.took("Spark", seconds)
            self.report.check("Spark runs", True, f"{spark.version} answered its first query after {seconds:.1f} s")
            self.ingest_own_logs()
            self.audit()
            self.ingest_kafkas_log()
        self.write_page()

    # 1

    def look_for_java(self) -> None:
        """Show the Java that Spark will use."""
        self.report.chapter(1, "a Java for Spark")
        found = {check["name"]: check["found"] for check in self._command("doctor", "--json")["checks"]}
        self.report.check("a Java", True, found["java"])

    # 2, 3 and 4

    def make_history(self) -> None:
        """Start a cluster with recorded topics, drain one broker by plan, start a second reassignment and cancel it."""
        self.story.start()
        self.story.lab = Lab(self.cluster)
        try:
            self.story.import_topics()
            self._drain()
            self.story.cancel_half_way()
            self._sample()
            self._remember()
        finally:
            self.story.lab.close()
        self.cluster.stop()

    def _drain(self) -> None:
        self.report.chapter(3, f"a plan that drains broker {DRAINED}, executed with the reassignment tool")
        self._sample()
        bootstrap = ("--bootstrap-server", self.cluster.bootstrap_servers)
        plan, moves = self.directory / "plan.json", self.directory / "moves.json"
        proposed = self._command("plan", "propose", *bootstrap, "--drain", str(DRAINED), "--output", str(plan), "--json")
        checked = self._command("plan", "check", str(plan), "--json")
        errors = [finding for finding in checked["findings"] if finding["severity"] == "error"]
        self.moved = sum(move["before"] != move["after"] for move in proposed["moves"])
        self.report.check(
            "plan checked", not errors, f"{len(proposed['moves'])} partitions move; independent checks: {errors or 'no error'}"
        )
        moves.write_text(self._text("pipeline", "plan", "export", str(plan)))
        self._text("reassign-partitions", *bootstrap, "--execute", "--reassignment-json-file", str(moves))
        lab = self.story.lab
        wait_until("the plan is executed", lambda: not lab.reassigning(), timeout_s=120)
        left = [item for item in lab.partitions().values() if DRAINED in item.replica_nodes]
        self.report.check("broker drained", not left, f"broker {DRAINED} has {len(left)} replicas")

    def _sample(self) -> None:
        self._command("samples", "--bootstrap-server", self.cluster.bootstrap_servers, "--lake", str(self.lake), "--json")

    def _remember(self) -> None:
        for key, item in self.story.lab.partitions().items():
            self.last_state[key] = list(item.replica_nodes)

    # 5

    def ingest_own_logs(self) -> None:
        """Ingest all controllers' logs into bronze, silver and gold; once more, without effect."""
        logs = [str(self.cluster.metadata_dir(node_id)) for node_id in self.cluster.controller_ids]
        ingested = self._command("ingest", *logs, *self._lake(), "--json")
        gaps, damages = ingested["gaps"], ingested["damage_count"]
        seen = f"{ingested['records']} records of {len(logs)} controllers, {damages} damages, {len(gaps)} gaps"
        self.report.check("logs ingested", not gaps, seen)
        built = self._command("build", "silver", *self._lake(), "--json")
        agree = not built["disagreements"] and not built["undecodable"]
        self.report.check("silver", agree, f"{sum(built['rows'].values())} rows; controllers agree, every record decodes")
        again = self._command("ingest", *logs, *self._lake(), "--json"), self._command("build", "silver", *self._lake(), "--json")
        self.report.check(
            "again", all(each["lo"] == each["hi"] for each in again), "the same commands once more find no new records"
        )

    # 6

    def audit(self) -> None:
        """Show every reassignment from its first record to its last, the findings, and the last state of every partition."""
        self.report.chapter(6, "audits of the log")
        built = self._command("build", "gold", *self._lake(), "--json")
        self.report.check("gold", True, ", ".join(f"{rows} {table.partition('.')[2]}" for table, rows in built["rows"].items()))
        rows = self._command("audit", "reassignments", *self._lake(), "--json")["rows"]
        statuses = Counter(row["status"] for row in rows)
        slowest = max((row["duration_ms"] for row in rows if row["status"] == "completed"), default=0)
        held = statuses["completed"] == self.moved and statuses["cancelled"] == CANCELLED and not statuses["open"]
        counted = ", ".join(f"{count} {status}" for status, count in statuses.items())
        self.report.check("reassignments", held, f"{counted}; the slowest that was completed took {slowest / 1000:.1f} s")
        findings = {
            name: self._command("audit", name, *self._lake(), "--json", codes=(DONE, FAILED))["rows"]
            for name in ("rf", "divergence")
        }
        drifts, divergences = (len(rows) for rows in findings.values())
        seen = f"{drifts} replication factors drifted, the controllers' logs differ in {divergences} places"
        self.report.check("no findings", not drifts + divergences, seen)
        states = self._command("state", *self._lake(), "--json")["rows"]
        found = {(row["topic"], row["partition"]): row["replicas"] for row in states}
        self.report.check("last state", found == self.last_state, f"{len(found)} partitions, as the cluster described them")

    # 7

    def ingest_kafkas_log(self) -> None:
        """Decode a real Kafka's log with Spark's workers and, beside it, with plain Python."""
        self.report.chapter(7, "the recorded log of a real Kafka cluster")
        log = self.directory / "00000000000000000000.log"
        log.write_bytes(lzma.decompress(KAFKA_LOG.read_bytes()))
        place = ("--lake", str(self.directory / "kafka"))
        self._command("ingest", str(log), *place, "--json")
        built = self._command("build", "silver", *place, "--json")
        lines = self._text("pipeline", "kraft-dump", str(log)).splitlines()
        records = [record.get("type") for line in lines for record in msgspec.json.decode(line)["records"]]
        changes = sum(kind in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD") for kind in records)
        rows = built["rows"]["silver.partition_changes"]
        self.report.check("Kafka's log", rows == changes, f"{rows} changes of partitions; plain Python decodes {changes}")

    # 8

    def write_page(self) -> None:
        """Write one static page with plots."""
        self.report.chapter(8, "a report")
        page = self.directory / "report.html"
        self._command("report", *self._lake(), "--out", str(page), "--json", codes=(DONE, FAILED))
        text = page.read_text()
        plots = text.count(PLOT)
        self.report.check("page", plots > 0, f"{page}, {len(text) / 1e6:.1f} MB, {plots} plots")

    def _lake(self) -> tuple[str, str]:
        return ("--lake", str(self.lake))

    def _command(self, *arguments: str, codes: tuple[int, ...] = (DONE,)) -> Any:
        """Run a command of the pipeline and return its JSON."""
        document = msgspec.json.decode(self._text("pipeline", *arguments, codes=codes))
        if isinstance(document, dict) and "error" in document:  # findings have the same exit code
            raise CommandEnded(f"kraftlab pipeline {' '.join(arguments)}: {document['error']['message']}")
        return document

    def _text(self, *arguments: str, codes: tuple[int, ...] = (DONE,)) -> str:
        """Run a command line in this process and return its output. CommandEnded for another exit code."""
        self.report.print(f"  [dim]$ kraftlab {' '.join(self._shown(word) for word in arguments if word != '--json')}[/]")
        out, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = run(list(arguments))
        out.seek(0)
        text = out.read()
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code not in codes:
            raise CommandEnded(f"kraftlab {' '.join(arguments)} ended with {code}: {(errors.getvalue() or text).strip()}")
        return text

    def _shown(self, word: str) -> str:
        if word == self.cluster.bootstrap_servers:
            return word.partition(",")[0]
        return word.replace(f"{self.directory}/", "").replace(f"{self.cluster.directory}/", "")


@click.command(epilog="Example: make pipeline-demo ARGS=--json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON report on stdout, and nothing else.")
@click.option("--keep", type=click.Path(path_type=pathlib.Path), metavar="DIR", help="Keep the lakes and the page in DIR.")
def main(as_json: bool, keep: pathlib.Path | None) -> int:
    """Play the data pipeline: give a cluster a history, and turn it into tables, audits and a page with Spark. Needs no installed
    Java: pip brings one. Exit code 0 only if every check holds.
    """
    return play(as_json, keep)


def play(as_json: bool, keep: pathlib.Path | None) -> int:
    signal.signal(signal.SIGTERM, interrupt)
    report = Chapters(as_json=as_json)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="kraftlab-pipeline-demo-"))
    directory = keep.absolute() if keep else scratch / "kept"
    try:
        if directory.exists() and any(directory.iterdir()):
            raise StoryError(f"{directory} is not empty; give --keep a new directory")
        directory.mkdir(parents=True, exist_ok=True)
        cluster = LocalCluster(scratch / "cluster", 3, BROKERS, 2, overrides=OVERRIDES)
        try:
            PipelineStory(report, Recording(DEFAULT_CAPTURE), cluster, directory).play()
        finally:
            cluster.close()
    except KeyboardInterrupt:
        report.check("ran to its end", False, "interrupted")
        return INTERRUPTED
    except (StoryError, RecordingError, ClusterError, ClusterUnreachable, ApiError, OSError) as error:
        report.check("ran to its end", False, str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        report.finish()
    return DONE if report.ok else FAILED


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], main, "python -m kraftlab.demo.pipeline"))
