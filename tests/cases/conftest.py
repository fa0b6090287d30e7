"""Options of `pytest tests/cases`, the clusters that recordings run on, and the report. See docs/recorded-cases.md."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlab.checking.recorded_cases.documents import Document, Folder, load_folder
from kraftlab.checking.recorded_cases.doors import DOORS
from kraftlab.checking.recorded_cases.judgement import Failure, Outcome, report
from kraftlab.checking.recorded_cases.lab import Lab
from kraftlab.checking.recorded_cases.runner import Run

from .differences import BETTER_TEXTS, DIFFERENCES

RECORDINGS = Path(__file__).parent / "recordings"
SAMPLE_EVERY = 24
"""A run through gRPC plays one in so many recordings through the Kafka protocol too."""

_folders: dict[Path, Folder] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("recorded cases")
    group.addoption("--cases", metavar="DIR", help="run the recordings of another folder")
    group.addoption("--door", choices=sorted(DOORS), default="grpc", help="the protocol of the requests (default: grpc)")
    group.addoption("--cases-report", metavar="FILE", help="write what passed, differs on purpose and failed as JSON")


def folder_of(config: pytest.Config) -> Folder:
    """Return the recordings of this run, read once."""
    directory = Path(config.getoption("--cases", None) or RECORDINGS)
    if directory not in _folders:
        _folders[directory] = load_folder(directory, RECORDINGS)
    return _folders[directory]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "recording" in metafunc.fixturenames:
        door, documents = metafunc.config.getoption("--door"), folder_of(metafunc.config).documents
        runs = [(document, door) for document in documents]
        if door == "grpc":
            runnable = [document for document in documents if DOORS["kafka"].skip_reason(document) is None]
            runs += [(document, "kafka") for document in runnable[::SAMPLE_EVERY]]
        metafunc.parametrize(("recording", "door"), runs, ids=[f"{document.name}-{door}" for document, door in runs])


class Labs:
    """The cluster with users, and a small one without an authorizer; one that does not start is not tried again."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._labs: dict[bool, Lab | Exception] = {}
        self._directories: list[str] = []
        self.outcomes: list[Outcome] = []

    def lab(self, *, with_users: bool) -> Lab:
        if with_users not in self._labs:
            directory = tempfile.mkdtemp(prefix="kraftlab-cases-")
            self._directories.append(directory)
            try:
                self._labs[with_users] = Lab(Path(directory), self._cluster_id(), with_users=with_users)
            except Exception as error:
                self._labs[with_users] = error
        found = self._labs[with_users]
        if isinstance(found, Exception):
            raise found
        return found

    def _cluster_id(self) -> str:
        """Return the id of the recorded cluster, which is in its answers."""
        ids = Counter(
            step["response"]["cluster_id"]
            for document in self._folder.documents
            for step in document.steps
            if isinstance(step.get("response"), dict) and isinstance(step["response"].get("cluster_id"), str)
        )
        return ids.most_common(1)[0][0] if ids else "kraftlab-recorded-cases"

    def close(self) -> None:
        for lab in self._labs.values():
            if isinstance(lab, Lab):
                lab.close()
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def labs(starts_clusters: None, request: pytest.FixtureRequest) -> Iterator[Labs]:
    labs = Labs(folder_of(request.config))
    try:
        yield labs
    finally:
        labs.close()
        target = request.config.getoption("--cases-report", None)
        if target:
            Path(target).write_text(json.dumps(report(labs.outcomes), indent=1) + "\n", encoding="utf-8")


@pytest.fixture
def outcome(recording: Document, door: str, labs: Labs, request: pytest.FixtureRequest) -> Outcome:
    """Outcome of the recording on its cluster."""
    reason = DOORS[door].skip_reason(recording)
    if reason is not None:
        pytest.skip(reason)
    try:
        lab = labs.lab(with_users=not recording.needs_no_authorizer)
    except Exception as error:
        outcome = Outcome(recording.name, [Failure(recording.name, 0, "cluster", "a cluster that runs", str(error))])
    else:
        outcome = Run(recording, folder_of(request.config), lab, DOORS[door], DIFFERENCES, BETTER_TEXTS).run()
    labs.outcomes.append(outcome)
    return outcome
