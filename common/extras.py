"""The command that installs optional packages, for errors about a missing one."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra of pyproject.toml, to be run in the clone (docs/install.md)."""
    return f"pip install -e '.[{extra}]'"


def not_installed(package: str, extra: str) -> str:
    """Return the sentence about a missing package, with the command that installs the package."""
    return f"{package} is not installed; in the clone of kraftlab run: {install_command(extra)}"
