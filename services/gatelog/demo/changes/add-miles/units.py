"""Conversions between units."""

VERSION = "1.1"


def celsius_to_fahrenheit(degrees):
    return degrees * 9 / 5 + 32


def kilometres_to_metres(kilometres):
    return kilometres * 1000


def miles_to_kilometres(miles):
    return miles * 1.609344
