"""Durations on the command line."""

import re
from datetime import timedelta

import click

#: units of a duration: minutes, hours and days
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration(_: click.Context, __: click.Parameter, words: str | None) -> timedelta | None:
    """How long something is valid: 30m, 12h, 7d."""
    if words is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,6})([mhd])", words.strip())
    if match is None:
        raise click.BadParameter("Write a whole number with its unit: 30m, 12h or 7d.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
