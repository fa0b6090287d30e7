"""The documents name what there is: files, and in docs/architecture.md rooms, the order of their imports, and functions."""

from __future__ import annotations

import configparser
import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| `([\w/-]+)` \| (.+) \| .+ \|$", re.MULTILINE)
ROOMS = dict(ROW.findall(ARCHITECTURE))
"""Room → what it does."""
OUTSIDE = {"bench", "docs", "examples", "src", "tests"}
MADE_BY_TOOLS = {"build", "dist", "runs"}


def test_every_file_that_a_document_names_exists() -> None:
    named = [
        (doc.name, path) for doc in DOCS for path in re.findall(r"`([\w.-]+/[\w/.-]+\.(?:py|md|txt|proto))`", doc.read_text())
    ]
    linked = [(doc, path) for doc in DOCS for path in re.findall(r"\]\(([\w/.-]+\.md)", doc.read_text())]
    assert [pair for pair in named if not (ROOT / pair[1]).is_file()] == []
    assert [pair for pair in linked if not (pair[0].parent / pair[1]).is_file()] == []
    assert len(named) > 20


def test_every_pip_install_works_in_a_clone_and_names_an_extra() -> None:
    """No index has kraftlab. Documents may name other packages; sources name none, as errors use `common/extras.py`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rooms = [ROOT / room.partition("/")[0] for room in ROOMS]
    sources = [path for room in rooms for path in room.rglob("*.py") if path.name != "extras.py"]
    texts = {path: path.read_text() for path in [*DOCS, *sources]}
    assert [path.name for path in sources if "pip install" in texts[path]] == []
    assert [path.name for path, text in texts.items() if re.search(r"pip install [^`\n#]*'?(?<!/)\bkraftlab\b", text)] == []
    named = {extra for text in texts.values() for extra in re.findall(r"pip install -e '[./\w]*\[(\w+)\]'", text)}
    calls = re.compile(r"""(?:(?:install_command|not_installed)\(.*|^    extra=)["'](\w+)["']""", re.MULTILINE)
    asked = {extra for text in texts.values() for extra in calls.findall(text)}
    assert (named | asked) - extras.keys() == set()
    assert {"chaos", "demo", "pipeline"} <= named & asked


def test_the_errors_that_troubleshooting_explains_are_errors_of_the_product() -> None:
    rows = re.findall(r"^\| `(.+?)` \| ", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    rooms = {room.partition("/")[0] for room in ROOMS}
    sources = "".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))
    assert [row for row in rows if row not in sources] == []
    assert len(rows) >= 15


def test_each_recipe_lists_files_in_order_and_every_file_exists() -> None:
    recipes = (ROOT / "CONTRIBUTING.md").read_text().partition("## Recipes")[2].split("\n### ")[1:]
    assert [re.match(r"Add an? (\w+) ", recipe).group(1) for recipe in recipes] == [
        "call",
        "record",
        "workload",
        "fault",
        "command",
    ]
    for recipe in recipes:
        steps = re.findall(r"^(\d+)\. `([^`]+)`: ", recipe, re.MULTILINE)
        assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
        assert [path for _, path in steps if not (ROOT / path).is_file()] == []
        assert len(steps) >= 5


def test_the_table_of_commands_has_every_target_that_people_call() -> None:
    (targets,) = re.findall(r"^# make (.+?)\. ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    rows = re.findall(r"^\| (`make .+?) \| ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`make ([\w-]+)`", row)} | {"clean"} == set(targets.split(" | "))


def test_the_rooms_are_the_folders() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert {room.partition("/")[0] for room in ROOMS} | OUTSIDE == folders - MADE_BY_TOOLS


def test_a_room_whose_parts_are_named_has_those_and_no_others() -> None:
    different = {}
    for room, purpose in ROOMS.items():
        home = ROOT / "jepsen-lite" / "jepsen_lite" if room == "jepsen-lite" else ROOT / room
        named = set(re.findall(r"`(\w+)/`", purpose))
        parts = {path.parent.name for path in home.glob("*/__init__.py")}
        if named and named != parts:
            different[room] = named ^ parts
    assert different == {}


def test_the_rooms_stand_in_the_order_of_their_imports() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    layers = rules["importlinter:contract:house"]["layers"].split()
    names = {"jepsen-lite": "jepsen_lite", "proto": "kraftlab.admin"}
    in_order = [names.get(room, f"kraftlab.{room.replace('/', '.')}") for room in ROOMS]
    assert in_order == [layer for layer in layers if layer != "|"]


def test_every_function_that_the_walkthrough_names_exists() -> None:
    steps = re.findall(r"`([\w.]+)`\s+(?:in|\()\s*`?([\w/]+\.py)`", (ROOT / "docs" / "walkthrough.md").read_text())
    missing = [step for step in steps if not defines(step[1], step[0].split("."))]
    assert missing == []
    assert len(steps) > 30


def test_every_picture_exists_and_belongs_to_its_text() -> None:
    assert runpy.run_path(str(ROOT / "docs" / "diagrams" / "render.py"))["stale"]() == []
    shown = [(doc, path) for doc in DOCS for path in re.findall(r"!\[[^\]]+\]\(([\w/.-]+)\)", doc.read_text())]
    assert [path for doc, path in shown if not (doc.parent / path).is_file()] == []
    drawn = {path.with_suffix(".svg").resolve() for path in (ROOT / "docs" / "diagrams").glob("*.d2")}
    taken = {path.resolve() for path in (ROOT / "docs" / "console").glob("*.png")}
    assert {(doc.parent / path).resolve() for doc, path in shown} == drawn | taken


def defines(path: str, names: list[str]) -> bool:
    text = (ROOT / path).read_text()
    return all(re.search(rf"(?:\b(?:class|def) {name}\b|^{name}\b.*=)", text, re.MULTILINE) for name in names)
