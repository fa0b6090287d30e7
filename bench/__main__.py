"""`python -m bench [NAME] [--json] [--quick] [arguments of that measurement]`; without a name: all. `--help` lists the names."""

from __future__ import annotations

import argparse
import sys

from . import catch_up, changes, chaos, checkers, commit, failover, large_cluster, pipeline, planner, sim, snapshot, start

MEASUREMENTS = {
    "commit": commit.main,
    "failover": failover.main,
    "start": start.main,
    "snapshot": snapshot.main,
    "catch-up": catch_up.main,
    "changes": changes.main,
    "large-cluster": large_cluster.main,
    "planner": planner.main,
    "pipeline": pipeline.main,
    "sim": sim.main,
    "chaos": chaos.main,
    "checkers": checkers.main,
}


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in MEASUREMENTS:
        return MEASUREMENTS[arguments[0]](arguments[1:])
    names = ", ".join(MEASUREMENTS)
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Measures kraftlab on this machine. Each of {names} has arguments of its own (--help).",
    )
    parser.add_argument("measurement", nargs="?", default="all", help=f"{names} or all (default)", choices=[*MEASUREMENTS, "all"])
    parser.add_argument("--json", action="store_true", help="print one JSON document per measurement, a line each")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    chosen = parser.parse_args(arguments)
    passed = [option for option in ("--json", "--quick") if getattr(chosen, option[2:])]
    worst = 0
    for name, measurement in MEASUREMENTS.items():
        if not chosen.json:
            print(f"\n{name}\n", flush=True)
        worst = max(worst, measurement(passed))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
