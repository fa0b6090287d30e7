"""What the commands do to a lake: take logs in, build tables. Here the tables' pure functions meet files, commits and
sessions.
"""
