"""jepsen-lite: breaks clusters, and proves what they did.

A *workload* (what clients ask, and what must be true of the answers) runs in a *world* (simulated, the real shell on a mock
clock, or real processes) while a *nemesis* carries out a *fault plan*. What clients saw is a *history*; *checkers* judge it and
give verdicts; the *run store* keeps all of it, and the *report* shows it.

Data flows one way: workload + plan → world → history, committed log, strikes → checkers → verdicts → store → report.
"""

INSTALL = "pip install 'kraftlab[chaos]'"
"""How to get the packages that keep runs and make their pages; what only breaks clusters does without."""
