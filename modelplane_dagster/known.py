"""Three states, never mixed: unknown (a read failed, or nobody looked), known to be none, known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """`why` is a sentence: what was read and what came back. `coming`: nothing failed, it is only not there yet, and `why`
    names what is waited for."""

    why: str
    coming: bool = False


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What a read that succeeded gave; an empty value means "none", and None means "absent"."""

    value: T


Maybe = Known[T] | Unknown
