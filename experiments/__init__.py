"""Measurements of published papers, made again on kraftlab: one file per experiment, listed in catalogue.py."""
