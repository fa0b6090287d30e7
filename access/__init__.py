"""Users, rules, and the rights that calls need."""

NOT_ASKED = -(2**31)
"""Kafka's number in the place of authorized operations that a request did not ask for."""
