"""`python -m bench [commit|sim] [arguments of that measurement]`; without a name all run, one after the other."""

from __future__ import annotations

import sys

from . import commit, sim

MEASUREMENTS = {"commit": commit.main, "sim": sim.main}


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in MEASUREMENTS:
        return MEASUREMENTS[arguments[0]](arguments[1:])
    return max(measurement(arguments) for measurement in MEASUREMENTS.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
