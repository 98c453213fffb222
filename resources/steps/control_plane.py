"""The control plane: made or adopted on a cloud, required and checked on an Existing cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelplane_dagster.audit.existing import audit_existing
from modelplane_dagster.errors import ConfigError, UnreadableError
from modelplane_dagster.known import Unknown
from modelplane_dagster.sources import SOURCES
from resources.steps.result import StepResult, pending, recorded

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.gate import Admission
    from resources.session import Session


def ensure_control_plane(session: Session, name: str) -> StepResult:
    """Raises RefusedError when the gate refuses the cluster."""
    admission, plan = session.admit(name)
    subject = f"cluster/{name}"
    if plan.source == "Existing":
        return recorded(subject, lambda: _existing(session, plan))
    return recorded(subject, lambda: _provisioned(session, plan, admission))


def _provisioned(session: Session, plan: ClusterPlan, admission: Admission) -> StepResult:
    subject = f"cluster/{plan.name}"
    view = plan.view
    if view is None:
        raise UnreadableError(f"The manifests of cluster {plan.name} are unknown.")
    ref = session.ref(plan.name)
    seen = session.cloud_cluster(plan.name)
    changed = False
    if seen is None or not seen.ours or seen.state not in ("ready", "updating"):
        session.write(admission)
        progress = session.cloud(plan.name).ensure_control_plane(ref, SOURCES[view.source].control_plane_request(view))
        changed = progress.changed
        if progress.state == "pending":
            return pending(subject, progress.waits_for or "the control plane is being made", changed=changed)
        seen = session.cloud_cluster(plan.name)
    why = session.api_waits(plan.name)
    if why:
        return pending(subject, why, changed=changed)
    version = seen.version if seen else ""
    return StepResult(
        subject,
        "ready",
        f"{plan.source} runs {plan.name} at Kubernetes {version}",
        changed=changed,
        notes={"kubernetesVersion": version, "account": plan.account.name, "location": view.location or None},
    )


def _existing(session: Session, plan: ClusterPlan) -> StepResult:
    """An Existing cluster's requirements, read and never written."""
    subject = f"cluster/{plan.name}"
    if plan.view is None:
        raise UnreadableError(f"The manifests of cluster {plan.name} are unknown.")
    try:
        version = session.client(plan.name).server_version()
    except ConfigError as error:
        return StepResult(subject, "failed", error.message, findings=error.findings)
    observed = session.observe(plan.name)
    if observed.live is None or isinstance(observed.live.nodes, Unknown):
        raise UnreadableError("; ".join(observed.unread()) or f"The nodes of {plan.name} can't be read.")
    findings = audit_existing(
        plan.view, plan.join.components if plan.join else (), observed.live, grace=session.settings.grace
    )
    return StepResult(
        subject,
        "ready",
        f"{plan.name} answers at Kubernetes {version}",
        findings=findings,
        notes={"kubernetesVersion": version, "nodes": len(observed.live.nodes.value)},
    )
