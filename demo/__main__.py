"""`python -m kraftlab.demo`: plays the main job and leaves nothing behind."""

from __future__ import annotations

import argparse
import pathlib
import shutil
import signal
import sys
import tempfile
from types import FrameType

from kraftlab.client.errors import ClusterUnreachable
from kraftlab.lab import ClusterError, LocalCluster
from kraftlab.metadata.errors import ApiError

from .lab import StoryError
from .recording import Recording, RecordingError
from .report import Report
from .story import Story

DEFAULT_CAPTURE = pathlib.Path(__file__).resolve().parents[1] / "examples" / "capture"
BROKERS = 4
OVERRIDES = {"log.segment.delete.delay.ms": "1000"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Plays the main job on a cluster of seven processes: import, reassign under a throttle, fail over, move"
        " between log dirs, cancel, verify. Exit code 0 only if every check holds.",
        epilog='examples: make demo · make demo ARGS=--json · make demo ARGS="--capture DIR"',
    )
    parser.add_argument("--json", action="store_true", help="print one JSON report on stdout, nothing else")
    parser.add_argument("--capture", type=pathlib.Path, default=DEFAULT_CAPTURE, metavar="DIR", help="play another recording")
    return parser.parse_args()


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, _interrupted)
    report = Report(as_json=options.json)
    try:
        recording = Recording(options.capture)
        if unknown := [broker for broker in recording.brokers() if broker not in range(BROKERS)]:
            raise RecordingError(f"{options.capture} names brokers {unknown}; the demo runs brokers 0 to {BROKERS - 1}")
    except RecordingError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    directory = tempfile.mkdtemp(prefix="kraftlab-demo-")
    try:
        cluster = LocalCluster(directory, 3, BROKERS, recording.log_dir_count(), overrides=OVERRIDES)
        try:
            Story(report, recording, cluster).tell()
        finally:
            cluster.close()
    except KeyboardInterrupt:
        report.check("ran to its end", False, "interrupted")
        return 130
    except (StoryError, ClusterError, ClusterUnreachable, ApiError) as error:
        report.check("ran to its end", False, str(error))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        report.finish()
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
