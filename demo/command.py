"""Command `kraftlab demo`: play the main job on a cluster of seven processes and leave nothing behind."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from kraftlab.cli.output import CommandFailed, json_option
from kraftlab.common.exit_codes import DONE, FAILED, INTERRUPTED

if TYPE_CHECKING:
    from .recording import Recording
    from .report import StoryReport


@click.command(
    "demo",
    epilog="""\b
Examples:
  kraftlab demo
  kraftlab demo --secure
  kraftlab demo --json
  kraftlab demo --capture DIR""",
)
@click.option(
    "--capture",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Use the recording in DIR (default: six topics of an Apache Kafka cluster).",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Play on a cluster as of `kraftlab up --secure`: TLS, logins and access rules on all listeners.",
)
@json_option
def demo(capture: Path | None, secure: bool, as_json: bool) -> int:
    """Run the main scenario on a cluster of seven processes: import, reassign under a throttle, fail over, move replicas between
    log directories, cancel, verify. Exit code 0 only if every check passes.
    """
    from .recording import DEFAULT_CAPTURE, Recording, RecordingError
    from .report import StoryReport
    from .story import BROKERS

    capture = capture or DEFAULT_CAPTURE
    report = StoryReport(as_json=as_json)
    try:
        recording = Recording(capture)
        if unknown := [broker for broker in recording.brokers() if broker not in range(BROKERS)]:
            raise RecordingError(f"{capture} names brokers {unknown}; the demo runs brokers 0 to {BROKERS - 1}")
    except RecordingError as error:
        raise CommandFailed(f"Error: {error}") from error
    return _play(report, recording, secure=secure)


def _play(report: StoryReport, recording: Recording, *, secure: bool) -> int:
    """Start a cluster in a temporary directory, play the story, and return the exit code."""
    import tempfile

    from kraftlab.client.errors import ClusterUnreachable
    from kraftlab.common.errors import ApiError
    from kraftlab.lab import ClusterError, LocalCluster

    from .lab import StoryError
    from .story import BROKERS, OVERRIDES, Story

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="kraftlab-demo-", ignore_cleanup_errors=True) as directory:
            cluster = LocalCluster(directory, 3, BROKERS, recording.log_dir_count(), overrides=OVERRIDES, secure=secure)
            try:
                Story(report, recording, cluster).play()
            finally:
                cluster.close()
    except KeyboardInterrupt:
        report.check("ran to its end", False, "interrupted")
        return INTERRUPTED
    except (StoryError, ClusterError, ClusterUnreachable, ApiError) as error:
        report.check("ran to its end", False, str(error))
    finally:
        signal.signal(signal.SIGTERM, before)
        report.finish()
    return DONE if report.ok else FAILED


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler: end the story as Ctrl-C does."""
    raise KeyboardInterrupt
