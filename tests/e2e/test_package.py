"""kraftlab installed from the wheel, without a checkout."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.cluster

ROOT = pathlib.Path(__file__).parents[2]
BUILD = "from setuptools import build_meta; build_meta.build_sdist('dist'); build_meta.build_wheel('dist')"
NOT_PACKAGED = {"admin.proto"}
"""Sources of packaged files."""
RECORDINGS = pathlib.PurePosixPath("kraftlab/examples")
"""The package has those files of it that the demos play; they are played below."""


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    """Return the environment of this process, without the path of a checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the sdist and the wheel of a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    rooms = {path.resolve().relative_to(ROOT).parts[0] for path in (ROOT / "src").glob("**/*") if path.is_symlink()}
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for room in sorted(rooms | {"src"}):
        shutil.copytree(ROOT / room, copy / room, symlinks=True, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-c", BUILD], cwd=copy, stdout=subprocess.DEVNULL, check=True)
    return copy / "dist"


@pytest.fixture(scope="module")
def installed(built: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The `bin` folder of an environment that has the wheel, and of this interpreter's packages all but the checkout."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel, cwd=home)
    return home / "bin"


def test_wheel_and_sdist_hold_every_file_of_the_checkouts_packages(built: pathlib.Path) -> None:
    src = ROOT / "src"
    paths = {path.relative_to(src) for room in (src / "kraftlab").iterdir() for path in tree(room)} | {
        path.relative_to(src) for path in tree(src / "jepsen_lite")
    }
    expected = {path.as_posix() for path in paths if not path.is_relative_to(RECORDINGS) and path.name not in NOT_PACKAGED}
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        members = [pathlib.PurePosixPath(*pathlib.PurePosixPath(item.name).parts[1:]) for item in archive if item.isfile()]
    in_sdist = {path.relative_to("src").as_posix() for path in members if path.parts[0] == "src"}
    assert {name for name in in_wheel if not pathlib.PurePosixPath(name).is_relative_to(RECORDINGS)} == expected
    assert {name for name in in_sdist if ".egg-info/" not in name} == in_wheel


def tree(path: pathlib.Path) -> list[pathlib.Path]:
    """The files below a folder or a link to one; byte code left out."""
    if path.is_file():
        return [path]
    if path.name == "__pycache__":
        return []
    return [found for each in path.iterdir() for found in tree(each)]


def test_the_client_is_imported_from_the_package_itself(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    program = "import kraftlab, sys; assert 'kraftlab.client' not in sys.modules; from kraftlab import AdminClient"
    program += "; assert {*kraftlab.__all__} <= {*dir(kraftlab)}; [getattr(kraftlab, name) for name in kraftlab.__all__]"
    said = run(installed / "python", "-c", f"{program}; print(AdminClient.__name__, kraftlab.__file__)", cwd=tmp_path)
    name, path = said.split()
    assert name == "AdminClient"
    assert pathlib.Path(path).is_relative_to(installed.parent)


PROGRAM = """
import kraftlab
from kraftlab import AdminClient, EntriesFailed, MoveOptions
from kraftlab.admin.v1 import admin_pb2 as pb

def leaders(client: AdminClient) -> dict[str, list[int | None]]:
    return {topic.name: [each.leader_id for each in topic.partitions] for topic in client.describe_topics().values()}

with AdminClient("127.0.0.1:21078") as client:
    client.create_topics([pb.CreatableTopic(name="clicks")])
    reveal_type(client.describe_cluster().brokers[0].rack)
    client.create_topic(7)
    kraftlab.AdminClinet
"""
"""A user's program. mypy must know a type, and find its last two lines."""


def test_a_users_program_is_checked_against_the_wheel(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    shutil.copy(ROOT / "docs" / "reference" / "examples.py", tmp_path)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", tmp_path / "cache")
    done = subprocess.run(
        [*mypy, "--python-executable", installed / "python", "examples.py", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )
    known, argument, attribute = done.stdout.splitlines()
    assert known.endswith('note: Revealed type is "str | None"')
    assert '"create_topic" of "AdminClient" has incompatible type "int"; expected "str"' in argument
    assert 'Module has no attribute "AdminClinet"' in attribute


def test_the_simulator_runs(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert "2 seeds, all invariants held" in run(installed / "kraftlab", "sim", "--seeds", "2", cwd=tmp_path)


def test_the_demo_plays_its_own_recording(
    installed: pathlib.Path, scratch: pathlib.Path, processes: Callable[[pathlib.Path], dict[int, str]]
) -> None:
    """Up to Ctrl-C in the middle of it: no process is left then, and no directory."""
    process = start(installed / "kraftlab", "demo", cwd=scratch)
    assert process.stdout is not None
    imported = next((line for line in process.stdout if "✓ imported" in line), None)
    process.send_signal(signal.SIGINT)
    said, complained = process.communicate(timeout=30)
    assert imported, said + complained
    assert "ran to its end: interrupted" in said
    assert process.returncode == 130
    assert not processes(scratch)
    assert not list(scratch.iterdir())


def start(*command: str | pathlib.Path, cwd: pathlib.Path) -> subprocess.Popen[str]:
    """Start a command that handles Ctrl-C even if the tests run in the background of a shell, whose children ignore it."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"TMPDIR": str(cwd), "PYTHONUNBUFFERED": "1"},
    )
    signal.signal(signal.SIGINT, inherited)
    return process
