"""Renders every diagram: NAME.d2 to NAME.svg, in one file for light and dark pages. `--check` only compares.

Each SVG ends with the digest of the text that it was rendered from, so that a test can tell without D2 that both belong together.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
THEMES = ("--theme", "0", "--dark-theme", "200")


def mark(text: str) -> str:
    """Return the last line of the SVG of a diagram's text."""
    return f"<!-- rendered from sha256:{hashlib.sha256(text.encode()).hexdigest()} -->\n"


def render(source: Path) -> None:
    """Write the SVG of a diagram beside it."""
    import stat

    import d2_python

    binary = Path(d2_python.D2().binary_path)
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)  # the wheel forgets it
    done = subprocess.run([binary, *THEMES, "--pad", "16", source, "-"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{source.name}: {done.stderr.strip()}")
    source.with_suffix(".svg").write_text(done.stdout.rstrip("\n") + "\n" + mark(source.read_text()))


def stale() -> list[str]:
    """Return the names of the diagrams with an SVG that does not belong to their text."""
    return [
        source.name
        for source in sorted(HERE.glob("*.d2"))
        if not (svg := source.with_suffix(".svg")).exists() or not svg.read_text().endswith(mark(source.read_text()))
    ]


if __name__ == "__main__":
    for name in stale():
        if "--check" in sys.argv:
            sys.exit(f"docs/diagrams/{name} is newer than its picture; run: make diagrams")
        render(HERE / name)
