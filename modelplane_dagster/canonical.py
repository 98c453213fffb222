"""One canonical form for digests and fingerprints, and nothing secret ever goes in."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson


def canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Compact JSON with sorted keys, so that equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """`sha256:` and the hex digest of the canonical form."""
    return f"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"
