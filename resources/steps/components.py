"""Components: charts through Helm and manifests of ours, each installed when what it depends on is healthy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from modelplane_dagster.actions import component_drift, release_drift
from modelplane_dagster.canonical import digest
from modelplane_dagster.cluster_plan import ClusterPlan, object_digests, values_digest
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.errors import ConflictError, HelmError, ModelplaneError
from modelplane_dagster.findings import Finding
from modelplane_dagster.observed import ObservedComponent
from modelplane_dagster.placement.workloads import DIGEST_ANNOTATION
from resources.helm import chart_ref
from resources.helm_records import clear_pending, pending_record
from resources.observe import COMPONENT_LABEL, CPU_COMPONENT, SHARED
from resources.obstacles import refused_pods, terminating, webhook_finding
from resources.steps.base_order import in_order
from resources.steps.cpu_probe import probe_grouped, probe_mode
from resources.steps.result import State, StepResult, pending, recorded, upstream

if TYPE_CHECKING:
    from modelplane_dagster.gate import Admission
    from resources.kubernetes import ClusterClient
    from resources.session import Session

# How long Helm waits for a chart that others depend on to become healthy.
HELM_WAIT = 120.0
# The field manager that the helm command writes under.
HELM = "helm"


def ensure_base(session: Session, name: str) -> StepResult:
    """Every untagged component, in order of dependence, four at a time. Raises RefusedError."""
    subject = f"component/{name}/serving-base"
    admission, plan = session.admit(name)
    return recorded(subject, lambda: _base(session, plan, admission))


def ensure_component(session: Session, name: str, key: str) -> StepResult:
    """One tagged or conditional component. Raises RefusedError."""
    subject = f"component/{name}/{key}"
    admission, plan = session.admit(name)
    return recorded(subject, lambda: _one(session, plan, admission, key))


def _base(session: Session, plan: ClusterPlan, admission: Admission) -> StepResult:
    subject = f"component/{plan.name}/serving-base"
    waits = session.until(lambda: session.api_waits(plan.name))
    if waits:
        return upstream(subject, waits)
    _hold(session, plan, admission, plan.base)
    seen = session.standing(plan.name).components
    done = in_order(plan.name, plan.base, lambda j: _safely(session, plan, admission, j, seen.get(j.key)))
    return _summary(session, plan, done)


def _safely(
    session: Session, plan: ClusterPlan, admission: Admission, joined: JoinedComponent, seen: ObservedComponent | None
) -> StepResult:
    subject = f"component/{plan.name}/{joined.key}"
    return recorded(subject, lambda: _ensure(session, plan, admission, joined, seen))


def _summary(session: Session, plan: ClusterPlan, done: Mapping[str, StepResult]) -> StepResult:
    subject = f"component/{plan.name}/serving-base"
    seen = session.standing(plan.name).components
    table = tuple(row(j, seen.get(j.key), done[j.key].state) for j in plan.base)
    findings = tuple(f for r in done.values() for f in r.findings)
    changed = any(r.changed for r in done.values())
    bad = [r for r in done.values() if r.state != "ready"]
    tables = {"Components": table}
    if not bad:
        text = f"{len(done)} components are installed"
        return StepResult(subject, "ready", text, findings, changed, tables)
    failed = [r for r in bad if r.state == "failed"]
    first = (failed or bad)[0]
    state: State = "failed" if failed else "pending"
    return StepResult(subject, state, f"{first.subject}: {first.sentence}", findings, changed, tables)


def row(joined: JoinedComponent, seen: ObservedComponent | None, state: str) -> Mapping[str, str | int]:
    pin = joined.component.pin
    return {
        "component": joined.key,
        "chart": pin.chart if pin else "manifests",
        "version": pin.version if pin else "-",
        "values": (values_digest(joined)[7:19] if pin else digest(list(object_digests(joined).values()))[7:19]),
        "revision": seen.revision if seen else 0,
        "state": seen.state if seen else "absent",
        "step": state,
    }


def _one(session: Session, plan: ClusterPlan, admission: Admission, key: str) -> StepResult:
    subject = f"component/{plan.name}/{key}"
    waits = session.until(lambda: session.api_waits(plan.name))
    if waits:
        return upstream(subject, waits)
    standing = session.standing(plan.name)
    findings: tuple[Finding, ...] = ()
    if key == CPU_COMPONENT and key not in standing.components:
        findings = probe_mode(session, plan)
    elif key == CPU_COMPONENT and standing.cpu_mode == "grouped":
        findings = probe_grouped(session, plan.name)
    plan = session.plan_standing(plan.name)
    joined = plan.component(key)
    waits = session.until(lambda: _missing(session, plan.name, joined.component.depends_on))
    if waits:
        return upstream(subject, waits)
    if _hold(session, plan, admission, (joined,)):
        plan = session.plan_standing(plan.name)
        joined = plan.component(key)
    result = _ensure(session, plan, admission, joined, session.standing(plan.name).components.get(key))
    seen = session.standing(plan.name).components.get(key)
    tables = {**result.tables, "Release": (row(joined, seen, result.state),)}
    notes = {**result.notes, "serves": ", ".join(joined.serves) or "-", "reason": joined.reason}
    return StepResult(
        subject, result.state, result.sentence, (*findings, *result.findings), result.changed, tables, notes
    )


def _missing(session: Session, name: str, needs: Iterable[str]) -> str:
    """Empty once every dependency stands and is healthy."""
    standing = session.standing(name)
    for key in needs:
        seen = standing.components.get(key)
        if seen is None or seen.state not in ("deployed", "applied"):
            return f"component {key}, which is {seen.state if seen else 'not installed'}"
    return ""


def _hold(session: Session, plan: ClusterPlan, admission: Admission, wanted: Iterable[JoinedComponent]) -> bool:
    """Takes the cluster's lease where one of these is to be changed, so that what is judged next is read under it: a writer
    that was waited for may have done what is missing. True where it was taken just now."""
    seen = session.standing(plan.name).components
    if session.holds(plan.name) or not any(_drift(j, seen.get(j.key)) for j in wanted):
        return False
    session.write(admission)
    return True


def _drift(joined: JoinedComponent, seen: ObservedComponent | None) -> str:
    return "it isn't installed" if seen is None else component_drift(joined, seen)


def _ensure(
    session: Session, plan: ClusterPlan, admission: Admission, joined: JoinedComponent, seen: ObservedComponent | None
) -> StepResult:
    subject = f"component/{plan.name}/{joined.key}"
    drift = _drift(joined, seen)
    changed = False
    if drift:
        session.write(admission)
        _install(session, plan, admission, joined, seen)
        changed = True
    waits = _workloads_wait(session.client(plan.name), joined)
    if waits:
        refused = refused_pods(session.client(plan.name), joined.component.namespace)
        text = f"{waits}; {refused}" if refused else waits
        return pending(subject, text, changed=changed, findings=webhook_finding(plan.name, text))
    return StepResult(subject, "ready", joined.reason, changed=changed, notes={"why": drift} if drift else {})


def _install(
    session: Session, plan: ClusterPlan, admission: Admission, joined: JoinedComponent, seen: ObservedComponent | None
) -> None:
    client = session.client(plan.name)
    apply_objects(client, SHARED, joined.prepares)
    if gone := terminating(client, joined.component.namespace):
        # Helm would record a failed revision for it.
        raise gone
    if joined.component.pin is not None and (seen is None or release_drift(joined, seen)):
        _release(session, plan, admission, joined, seen)
        session.write(admission)
    apply_objects(client, joined.key, joined.manifests)
    session.forget(plan.name)


def _release(
    session: Session, plan: ClusterPlan, admission: Admission, joined: JoinedComponent, seen: ObservedComponent | None
) -> None:
    """Helm, after the record of an attempt that never ended and the chart's newer CRDs."""
    component, client = joined.component, session.client(plan.name)
    assert component.pin is not None
    if seen is not None and seen.state.startswith("pending-"):
        # One of the two failed attempts of our own that are cleared; the lease is held, so no helm of ours still runs.
        record = pending_record(client, seen.release, seen.namespace)
        if record is not None:
            clear_pending(client, record)
    chart = chart_ref(component.pin, mirror=session.world.chart_mirror)
    if component.crds_need_apply and seen is not None and seen.chart and seen.version != component.pin.version:
        for crd in session.helm(plan.name).crds(chart):
            apply_crd(client, crd)
        session.write(admission)
    depended = any(component.key in other.component.depends_on for other in plan.installed)
    try:
        session.helm(plan.name).upgrade_install(
            component.release,
            chart,
            component.namespace,
            joined.values,
            wait="ready" if depended else "none",
            timeout=HELM_WAIT,
        )
    except HelmError:
        # It may have been ended because the lease is lost, which says more than how it ended.
        session.write(admission)
        if not _stored(session, plan.name, joined, seen.revision if seen else 0):
            raise


def _stored(session: Session, name: str, joined: JoinedComponent, revision: int) -> bool:
    """The release is recorded as deployed with what it was given, whatever helm heard of it: an answer that was lost makes
    helm fail after the server stored its success. An older revision than the one that stood is no success of this helm."""
    try:
        seen = session.standing(name).components.get(joined.key)
    except ModelplaneError:
        return False
    return seen is not None and seen.revision >= revision and not release_drift(joined, seen)


def apply_crd(client: ClusterClient, body: dict[str, Any]) -> None:
    """A chart's CRD, which Helm installs once and never upgrades. Where nobody but Helm holds what changes, it holds it from
    that first install of ours, and so it is taken over. Raises ConflictError for any other owner."""
    try:
        client.apply(body)
    except ConflictError as error:
        if error.owners != (HELM,):
            raise
        client.apply(body, force=True)


def apply_objects(client: ClusterClient, key: str, bodies: Iterable[Mapping[str, Any]]) -> None:
    """Our own manifests, marked with their component and the digest that they are applied with."""
    for body in bodies:
        metadata = dict(body["metadata"])
        metadata["labels"] = {**(metadata.get("labels") or {}), COMPONENT_LABEL: key}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), DIGEST_ANNOTATION: digest(dict(body))}
        client.apply({**body, "metadata": metadata})


def _workloads_wait(client: ClusterClient, joined: JoinedComponent) -> str:
    """Empty once the chart's own Deployments and StatefulSets are available; DaemonSets are judged by their pools."""
    component = joined.component
    if component.pin is None:
        return ""
    for kind in ("Deployment", "StatefulSet"):
        for body in client.list("apps/v1", kind, namespace=component.namespace):
            annotations = body["metadata"].get("annotations") or {}
            if annotations.get("meta.helm.sh/release-name") != component.release:
                continue
            wanted = int((body.get("spec") or {}).get("replicas", 1))
            ready = int((body.get("status") or {}).get("readyReplicas") or 0)
            if ready < wanted:
                return f"{kind} {body['metadata']['name']} has {ready} of {wanted} replicas ready"
    return ""
