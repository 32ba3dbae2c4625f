"""Tells how far it is."""

import units


def describe(kilometres):
    return f"{units.kilometres_to_metres(kilometres):.0f} m"
