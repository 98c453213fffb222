"""Plain scalars as Kubernetes reads them: YAML 1.1 by the rules of goyaml v2, which `kubectl` and API servers use.

Dates stay texts. Quoted scalars never come here: they are texts.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

# A plain scalar that starts with none of these is a text. The empty text, which is null, has no first character.
HINTS = frozenset("+-.0123456789nNtTfFoOyY~<")

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INTEGERS = (
    (re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), 10),
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile(r"[-+]?0[bB][01]+"), 2),
    (re.compile(r"[-+]?0[oO]?[0-7]+"), 8),
)
_MAX_DIGITS = 40
_EXACT = 2**53


def plain(text: str) -> Scalar:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    return _number(text.replace("_", "") if text[0] != "." else text, text)


def _number(digits: str, text: str) -> int | float | str:
    """The number in `digits`, or `text` where it is none. An integral float that JSON would write as one is an int."""
    if len(digits) <= _MAX_DIGITS:
        for pattern, base in _INTEGERS:
            if pattern.fullmatch(digits):
                return int(digits.lower().replace("0o", "0") if base == 8 else digits, base)
    if not _FLOAT.fullmatch(digits):
        return text
    value = float(digits)
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def key(value: Scalar, text: str) -> str | None:
    """A mapping key as JSON has it: always a text. None where it can't be one (a null key)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return text
    return value
