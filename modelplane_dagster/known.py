"""Three states, never mixed: unknown (a read failed, or nobody looked), known to be none, known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from modelplane_dagster.findings import Finding

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """`why` is a sentence: what was read and what came back. `findings` says what to do about it; empty where the
    sentence is all that is known. `coming`: nothing failed, it is only not there yet, and `why` names what is waited for."""

    why: str
    findings: tuple[Finding, ...] = ()
    coming: bool = False


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What a read that succeeded gave; an empty value means "none", and None means "absent"."""

    value: T


Maybe = Known[T] | Unknown
