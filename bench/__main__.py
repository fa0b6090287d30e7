"""`python -m bench [commit|sim] [arguments of that measurement]`; without a name all run, one after the other."""

from __future__ import annotations

import argparse
import sys

from . import commit, sim

MEASUREMENTS = {"commit": commit.main, "sim": sim.main}


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in MEASUREMENTS:
        return MEASUREMENTS[arguments[0]](arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=f"{__doc__} Names: {', '.join(MEASUREMENTS)}.")
    parser.add_argument("--json", action="store_true", help="print one JSON document per measurement instead of tables")
    chosen = parser.parse_args(arguments)
    return max(measurement(["--json"] if chosen.json else []) for measurement in MEASUREMENTS.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
