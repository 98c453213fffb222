"""Validation of what ConfigMaps and Secrets hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from resources.lab.api.errors import Cause

_LIMIT = 1048576
_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def data_rules(obj: Mapping[str, Any]) -> Iterator[Cause]:
    held = {**(obj.get("data") or {}), **(obj.get("binaryData") or {})}
    # Secrets count decoded, three bytes for every four characters.
    size = sum(map(len, held.values()))
    if (size * 3 // 4 if obj.get("kind") == "Secret" else size) > _LIMIT:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {_LIMIT} bytes", "data")
    for key in held:
        if len(key) > 253 or not _KEY.match(key) or key in {".", ".."}:
            yield Cause("FieldValueInvalid", f'Invalid value: "{key}": {_KEY_RULE}', f"data[{key}]")
