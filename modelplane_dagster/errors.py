"""Errors by what the caller can do about them. Callers branch on these types, never on text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelplane_dagster.findings import Finding


class ModelplaneError(Exception):
    """The root. Its text is one sentence a person can act on; it never holds a secret."""

    def __init__(self, message: str, *, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.findings = findings


class ConfigError(ModelplaneError):
    """The user edits something: a manifest, a setting, an argument."""


class RefusedError(ModelplaneError):
    """The gate refuses the change; `findings` holds every reason. Nothing was written."""


class UnreadableError(ModelplaneError):
    """A read failed. Never to be taken for an empty answer."""


class AccessError(UnreadableError):
    """A cluster's API can't be used as the kubeconfig says: the user mends it, its plugin or its certificates. `findings`
    says what to mend. Nothing was read and nothing written."""


class NotReadyError(ModelplaneError):
    """Wait: what was asked for exists or is being made, and isn't usable yet."""


class ConflictError(ModelplaneError):
    """Two owners: another writer, field manager, or account holds what we would change. `owners` names the field managers,
    empty where it isn't about fields."""

    def __init__(self, message: str, *, findings: tuple[Finding, ...] = (), owners: tuple[str, ...] = ()) -> None:
        super().__init__(message, findings=findings)
        self.owners = owners


class ClusterBusyError(ConflictError):
    """Another writer holds the cluster's lease; the message names the holder."""


class CloudError(ModelplaneError):
    """A cloud said no. `retry_after` is in seconds; None where the cloud gave none."""

    def __init__(self, message: str, *, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class CloudBusyError(CloudError):
    """Wait: another operation on the same object is running."""


class CloudRetryableError(CloudError):
    """Retry: throttled, a 5xx, or the network."""


class CloudCapacityError(CloudError):
    """Retry later or elsewhere: the cloud has no such machine now."""


class CloudQuotaError(CloudError):
    """Raise the quota named in the message; retrying alone doesn't help."""


class CloudCredentialsError(CloudError):
    """Fix the credentials or their permissions."""


class CloudInvalidError(CloudError):
    """Edit the manifest: the cloud rejects the request as written."""


class CloudNameTakenError(CloudError):
    """The name exists and isn't ours."""


class KubernetesError(ModelplaneError):
    """The cluster's API said no. `status` is the HTTP status, `reason` the API's own word; `write` says whether a change
    was asked for."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        findings: tuple[Finding, ...] = (),
        write: bool = False,
    ) -> None:
        super().__init__(message, findings=findings)
        self.status = status
        self.reason = reason
        self.write = write


class HelmError(ModelplaneError):
    """Helm failed; the message holds its last lines without values."""
