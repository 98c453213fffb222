"""Kubernetes quantities ("1500m", "20Gi", "1e3") as exact decimals.

Source: the grammar and `ParseQuantity` of k8s.io/apimachinery's `resource` package. Two forms that Kubernetes reads as
zero by accident, a lone sign or dot and a suffix without digits, are refused here.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import Literal

from modelplane_dagster.errors import ConfigError

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))"
)

# The bounds keep a hostile manifest from asking for a number of a million digits; no real quantity comes near them.
MAX_LENGTH = 64
MAX_EXPONENT = 100
# Wide enough for 64 digits next to the largest exponent without rounding; the default context keeps 28 digits.
_CONTEXT = Context(prec=MAX_LENGTH + 2 * MAX_EXPONENT)
_NANO = Decimal("1e-9")
_MAX_BINARY = Decimal(2**63 - 1)


class QuantityError(ConfigError):
    """The text isn't a quantity; the message quotes it."""


def parse_quantity(text: str | float) -> Decimal:
    """The exact value, rounded away from zero to nano units and, with a binary suffix, capped at 2^63-1, as Kubernetes does.

    Numbers are read as JSON writes them. Raises QuantityError for anything else, bools included.
    """
    return _parse(_as_text(text))[0]


def is_quantity(text: str | float) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def canonical(text: str | float) -> str:
    """The form that the API server prints: the largest suffix that needs no fraction ("1.5Gi" becomes "1536Mi")."""
    value, form = _parse(_as_text(text))
    return format_quantity(value, form)


def format_quantity(value: Decimal, form: Format = "DecimalSI") -> str:
    """`value` in canonical form; binary suffixes are used only for whole numbers of at least 1024, as Kubernetes does."""
    if value == 0:
        return "0"
    whole = value == value.to_integral_value(context=_CONTEXT)
    if form == "BinarySI" and whole and abs(value) >= 1024:
        number, suffix = int(value), ""
        for name in _BINARY:
            if number % 1024:
                break
            number, suffix = number // 1024, name
        return f"{number}{suffix}"
    sign, digits, exponent = value.normalize(_CONTEXT).as_tuple()
    number, scale = int("".join(map(str, digits))), int(exponent)
    shift = scale % 3
    number, scale = number * 10**shift, scale - shift
    text = f"{'-' if sign else ''}{number}"
    if form != "DecimalExponent" and scale in _SUFFIX_OF:
        return f"{text}{_SUFFIX_OF[scale]}"
    return f"{text}e{scale}" if scale else text


def _as_text(text: object) -> str:
    if isinstance(text, str):
        return text
    if isinstance(text, int | float) and not isinstance(text, bool):
        return repr(text)
    raise QuantityError(f"{text!r} is not a quantity")


@lru_cache(maxsize=16384)
def _parse(text: str) -> tuple[Decimal, Format]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"{text[:MAX_LENGTH]!r} is not a quantity: expected a number with one of the suffixes "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent"
        )
    exponent = int(match["exponent"]) if match["exponent"] and len(match["exponent"]) <= 5 else 0
    if len(text) > MAX_LENGTH or abs(exponent) > MAX_EXPONENT or len(match["exponent"] or "") > 5:
        raise QuantityError(f"{text[:MAX_LENGTH]!r} is not a quantity: it has more digits than any real amount")
    number = Decimal(match["number"])
    form: Format
    if match["binary"]:
        scaled, form = _CONTEXT.multiply(number, _BINARY[match["binary"]]), "BinarySI"
    elif match["exponent"]:
        scaled, form = number.scaleb(exponent, _CONTEXT), "DecimalExponent"
    else:
        scaled, form = number.scaleb(_DECIMAL[match["decimal"]], _CONTEXT), "DecimalSI"
    value = scaled.quantize(_NANO, ROUND_UP, _CONTEXT)
    if form == "BinarySI" and abs(value) > _MAX_BINARY:
        value = _MAX_BINARY.copy_sign(value)
    return value, form
