"""Resource quantities in the canonical form that the API stores: "1000m" becomes "1", 0.5 becomes "500m"."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LARGEST_FIRST = ("E", "P", "T", "G", "M", "k", "", "m", "u", "n")


def canonical(text: str) -> str | None:
    """None where the text isn't a quantity."""
    found = _FORM.match(text)
    if found is None:
        return None
    number, suffix = Decimal(found.group(1)), found.group(2) or ""
    if suffix in _BINARY:
        return _binary(number * Decimal(1024) ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return _decimal(number * Decimal(10) ** _DECIMAL[suffix])
    return _exponent(number * Decimal(10) ** int(suffix[1:]))


def _binary(value: Decimal) -> str:
    # Below 1024 the binary format has no suffix to offer and falls back to the decimal one.
    if abs(value) < 1024 or value != value.to_integral_value():
        return _decimal(value)
    whole = int(value)
    for suffix, power in reversed(_BINARY.items()):
        if whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)


def _decimal(value: Decimal) -> str:
    nano = int((value * 10**9).to_integral_value(rounding=ROUND_CEILING))
    if nano == 0:
        return "0"
    for suffix in _LARGEST_FIRST:
        unit = 10 ** (9 + _DECIMAL[suffix])
        if nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return f"{nano}n"


def _exponent(value: Decimal) -> str:
    nano = int((value * 10**9).to_integral_value(rounding=ROUND_CEILING))
    if nano == 0:
        return "0"
    for power in range(18, -12, -3):
        unit = 10 ** (9 + power) if power >= -9 else 0
        if unit and nano % unit == 0:
            return f"{nano // unit}e{power}" if power else str(nano // unit)
    return f"{nano}e-9"
