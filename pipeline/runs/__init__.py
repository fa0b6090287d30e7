"""Runs of the commands on a lake: take logs in, build tables. Here the tables' pure functions meet files,
commits and sessions.
"""
