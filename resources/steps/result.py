"""What a step saw: ready, pending with what it waits for, or failed with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from modelplane_dagster.errors import (
    AccessError,
    CloudBusyError,
    CloudCapacityError,
    CloudCredentialsError,
    CloudError,
    CloudInvalidError,
    CloudNameTakenError,
    CloudQuotaError,
    CloudRetryableError,
    ClusterBusyError,
    ConfigError,
    ConflictError,
    HelmError,
    KubernetesError,
    ModelplaneError,
    NotReadyError,
    RefusedError,
    UnreadableError,
)
from modelplane_dagster.findings import Finding, finding

State = Literal["ready", "pending", "failed"]
UNTOUCHED = "; nothing was changed"
Row = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """`sentence` says what it waits for or why it failed, or what is ready. `tables` are rows for people to read, by
    title; `notes` single values by name; neither ever holds a secret."""

    subject: str
    state: State
    sentence: str
    findings: tuple[Finding, ...] = ()
    changed: bool = False
    tables: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


def pending(subject: str, waits_for: str, **more: Any) -> StepResult:  # noqa: ANN401 - StepResult's other fields
    """Something is asked for and isn't there yet."""
    told = finding("Pending", subject, waits_for)
    return StepResult(subject, "pending", waits_for, findings=(*more.pop("findings", ()), told), **more)


def upstream(subject: str, waits_for: str) -> StepResult:
    """Nothing was asked for, because what it needs isn't ready."""
    return pending(subject, f"waits for {waits_for}{UNTOUCHED}")


# By what the caller can do: (state, code). A step that waits is asked again; one that failed is, with growing pauses.
_TELL: tuple[tuple[type[ModelplaneError], State, str], ...] = (
    (CloudBusyError, "pending", "Pending"),
    (CloudCapacityError, "pending", "NoCapacity"),
    (CloudQuotaError, "failed", "QuotaExceeded"),
    (CloudRetryableError, "pending", "Throttled"),
    (CloudCredentialsError, "failed", "CredentialsRefused"),
    (CloudInvalidError, "failed", "RequestRejected"),
    (CloudNameTakenError, "failed", "NameTaken"),
    (CloudError, "failed", "RequestRejected"),
    (NotReadyError, "pending", "Pending"),
    (AccessError, "failed", "CredentialsRefused"),
    (UnreadableError, "failed", "ReadFailed"),
    (HelmError, "failed", "InstallFailed"),
    (ConflictError, "failed", "ComponentsConflict"),
    (ConfigError, "failed", "ReadFailed"),
    (KubernetesError, "failed", "ReadFailed"),
)


def described(subject: str, error: ModelplaneError) -> StepResult:
    """The error as a result, where it can be described."""
    for kind, state, code in _TELL:
        if isinstance(error, kind):
            own = error.findings or (_told(subject, code, error),)
            return StepResult(subject, state, error.message, findings=own)
    raise error


def _told(subject: str, code: str, error: ModelplaneError) -> Finding:
    if isinstance(error, KubernetesError) and error.write:
        return finding("WriteRefused", subject, error.message)
    if isinstance(error, ConflictError) and error.owners:
        fix = (
            f"Have {' and '.join(error.owners)} let go of what is named, or give the component the same value in "
            "MODELPLANE_COMPONENTS; `kubectl get -o yaml --show-managed-fields` shows who owns what."
        )
        return finding(code, subject, error.message, fix=fix)
    return finding(code, subject, error.message)


def recorded(subject: str, step: Callable[[], StepResult]) -> StepResult:
    """Runs a step and records what it raised; a refusal and a busy lease go on being raised, for they end the run's part
    of this cluster, and so does what can't be described."""
    try:
        return step()
    except (RefusedError, ClusterBusyError):
        raise
    except ModelplaneError as error:
        return described(subject, error)
