"""jepsen-lite: break clusters and check what their clients saw.

A *workload* (operations of clients, and the properties that their results must have) runs in a *world* (the simulator, the real
runtime on a mock clock, or real processes) while a *fault plan* is applied. The results form a *history*; *checkers* judge
the history and return verdicts; the *store* keeps the run, and the *report* shows it.

Data flows in one direction: workload + plan → world → history, committed log, strikes → checkers → verdicts → store → report.
"""
