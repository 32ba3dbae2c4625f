"""Conversions between units."""

VERSION = "1.0.1"


def celsius_to_fahrenheit(degrees):
    return degrees * 9 / 5 + 32


def kilometres_to_metres(kilometres):
    return kilometres * 1000
