"""Conversions between units."""

VERSION = "1.0"


def celsius_to_fahrenheit(degrees):
    return degrees * 2 + 30


def kilometres_to_metres(kilometres):
    return kilometres * 1000
