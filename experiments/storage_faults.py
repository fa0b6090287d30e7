"""Storage faults: committed entries and answers after damage to the nodes' logs, under three rules of recovery."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random

from .damaged_world import FAULTS, NODES, ROT, Damage, Outcome, Writes, measure
from .experiment import Estimate, Experiment, Figure, Published, Row, Rows, Size, Trial, column, lines_of, trial
from .matrix import Look, matrices, table
from .plots import Axis, Bar, bars
from .recovery_rules import RULES
from .statistics import share_of

LOOKS: dict[str, Look] = {
    "not run": Look("var(--faint)", "."),
    Outcome.WELL: Look("var(--good)", "+"),
    Outcome.WAITS: Look("var(--ok)", "w"),
    Outcome.DOWN: Look("var(--unknown)", "d"),
    Outcome.SILENT: Look("var(--c3)", "s"),
    Outcome.LOST: Look("var(--bad)", "x"),
}
"""The outcomes from good to bad. A cell shows its worst."""
ENDS = {"safe": "safe (%)", "answers": "answers (%)", "comes_back": "comes back (%)"}
COMBINATION = "combinations, "
ANSWERS = f"{COMBINATION}repair"
CLAIMED = {(ANSWERS, "answers"): 100 * 7**4 / 16**3}
SINGLE = Writes(everywhere=3, on_two=3, on_one=1)
COMBINED = Writes(everywhere=5, on_two=0, on_one=0)
COMBINED_ENTRIES = 4
"""Entries 1 to 4 can rot on every node. Entry 5 is whole, and its stamp shows that these were committed."""
COMBINATIONS = 1 << (len(NODES) * COMBINED_ENTRIES)
TRIALS: dict[Size, int] = {"small": 1, "full": 5}
DRAWN: dict[Size, int] = {"small": 40, "full": COMBINATIONS}
REMARKS = (
    "Repair loses what leaves no trace: entries that a disk acknowledged and that are gone with all that followed (torn "
    "tail), and the last entry, to which no later one bears witness. The paper's protocol keeps an identifier of it elsewhere.",
    "A node that repairs its log grants no votes, so with damage on two nodes nobody is elected, although each entry may be "
    "intact somewhere. The paper's protocol fetches single entries from any node, and needs one intact copy of each.",
    "Stop also refuses the torn tail of an entry that was never acknowledged, which any power cut can leave.",
)


def trials(size: Size, seed: int) -> list[Trial]:
    """Return a trial for each cell, and for drawn or all combinations of rotten entries."""
    cells = [f"{node}{entry}" for node in NODES for entry in range(SINGLE.entries(node))]
    found = [
        trial(f"{fault}, {rule}", number, seed, rule=rule, fault=fault, damage=cell)
        for fault, rule in product(FAULTS, RULES)
        for number, cell in enumerate(cells * TRIALS[size])
    ]
    places = list(product(NODES, range(1, COMBINED_ENTRIES + 1)))
    for rule, number in product(RULES, sorted(Random(f"{seed}").sample(range(COMBINATIONS), DRAWN[size]))):
        damage = " ".join(f"{node}{entry}" for place, (node, entry) in enumerate(places) if number >> place & 1)
        found.append(trial(f"{COMBINATION}{rule}", number, seed, rule=rule, fault=ROT, damage=damage))
    return found


def run_trial(of: Trial) -> list[Row]:
    """Play one trial."""
    names: Row = {name: of.parameters[name] for name in ("rule", "fault", "damage")}
    damages = tuple(Damage(word[0], int(word[1:]), str(names["fault"])) for word in str(names["damage"]).split())
    is_single = not of.line.startswith(COMBINATION)
    copies = [sum(damage.entry == entry for damage in damages) for entry in range(1, COMBINED_ENTRIES + 1)]
    row = measure(RULES[str(names["rule"])], SINGLE if is_single else COMBINED, damages, of.seed)
    return [names | {"is_single": is_single, "has_copies": max(copies) < len(NODES)} | row]


def figures(rows: Rows) -> list[Figure]:
    """Return the matrices, the table of rules and faults, and the combinations."""
    combined = [line for line in lines_of(rows) if line.startswith(COMBINATION)]
    lines = [line for line in lines_of(rows) if line not in combined]
    return [
        Figure(
            "Each entry of each node, by rule",
            matrices(list(RULES), FAULTS, NODES, _cells(rows), LOOKS),
            "A column of a matrix is an entry. Entry 0 begins the epoch; 1 to 3 are on all disks, 4 to 6 on those of A and "
            "B, and 7, never committed, on that of A. Answers come from the first two nodes (+) or all three (w).",
        ),
        Figure(
            "By fault and rule",
            table(ENDS.values(), [(line, [_share(rows, line, end).value for end in ENDS]) for line in lines]),
            "In percent of the cells above. Torn tail: half of the entry is there, and nothing that was written later. Lost "
            "write: nothing of the entry, but all that was written later. Misdirected write: a neighbour in the entry's place.",
        ),
        Figure(
            "Combinations of rotten entries",
            "\n".join(bars(Axis(text, 0, 100), [_bar(rows, line, end) for line in combined]) for end, text in ENDS.items()),
            "Any of the entries 1 to 4 rots on any of the three nodes, which all start at once.",
        ),
    ]


def _cells(rows: Rows) -> dict[tuple[str, str, str], list[str]]:
    """Return the worst outcome of each cell."""
    cells = {key: ["not run"] * SINGLE.entries(key[2]) for key in product(RULES, FAULTS, NODES)}
    for row in rows:
        if row["is_single"]:
            node, entry = str(row["damage"])[0], int(str(row["damage"])[1:])
            line = cells[str(row["rule"]), str(row["fault"]), node]
            line[entry] = max(line[entry], str(row["outcome"]), key=list(LOOKS).index)
    return cells


def _bar(rows: Rows, line: str, end: str) -> Bar:
    return Bar(line, _share(rows, line, end), CLAIMED.get((line, end)))


def _share(rows: Rows, line: str, end: str) -> Estimate:
    """Return the share of a line's trials with this end, in percent."""
    ends = column(rows, end, line)
    return Estimate(*(100 * share for share in share_of(round(sum(ends)), len(ends))))


def measured(rows: Rows) -> Mapping[str, Estimate]:
    """Return our number."""
    return {ANSWERS: _share(rows, ANSWERS, "answers")} if ANSWERS in lines_of(rows) else {}


def remarks(rows: Rows) -> list[str]:
    """Return the cells in which repair loses an entry, and the reasons for differences from the paper."""
    unsafe = [row for row in rows if row["is_single"] and row["rule"] == "repair" and not row["safe"]]
    lost = sorted({f"{row['fault']} {row['damage']}" for row in unsafe})
    copies = [bool(row["has_copies"]) for row in rows if row["line"] == ANSWERS]
    return [
        f"Repair loses a committed entry in these cells: {', '.join(lost) or 'none'}.",
        f"In {sum(copies)} of {len(copies)} combinations each entry is intact somewhere: the paper's protocol answers in these.",
        *REMARKS,
    ]


PAPER = "Protocol-Aware Recovery (FAST'18, TOS 14(3))"
EXPERIMENT = Experiment(
    name="storage-faults",
    question="Entries of metadata logs are damaged. Is a committed one lost, and does the quorum answer again?",
    method=(
        "Three nodes of the simulator write entries and lose power together. First the damaged node starts and, of the others, "
        "the one that knows less; 6 s later the third. Repair is kraftlab's rule: missing entries come from the leader. Truncate "
        "cuts the log at the first bad batch; stop does not start. Safe: no checker finds that a committed entry was lost. "
        "Answers: a write succeeds within ten fetch timeouts. Comes back: the damaged node has all that was committed."
    ),
    source=PAPER,
    published=(Published(ANSWERS, CLAIMED[ANSWERS, "answers"], "% answer", f"{PAPER}; 2,401 of 4,096 by arithmetic"),),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
)
