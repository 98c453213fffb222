"""The gate: refuses a change, never shortens the desired state. Pure: facts in, findings out.

Only `admit` makes an Admission, and every method that changes something demands one, so that no partial selection,
automation tick or earlier check can get round a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from modelplane_dagster.cluster import ClusterView, PoolView, Role
from modelplane_dagster.cpu import DRA_SINCE, MAX_DEVICES_PER_CLAIM, oversized
from modelplane_dagster.drivers import CPU, DRIVERS, GPU_LABEL, POOL_LABEL
from modelplane_dagster.errors import RefusedError
from modelplane_dagster.findings import Finding, Place, finding, has_errors, ordered
from modelplane_dagster.kube.versions import KubernetesVersion
from modelplane_dagster.roles import gpu_drivers, role_of

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet

Verdict = Literal["pass", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What a source can do, derived elsewhere: `supported` drivers; `fabrics` maps an external driver to the fabric
    that brings it; `floor` is the lowest version its lists accept, empty for none."""

    supported: tuple[str, ...]
    fabrics: Mapping[str, str]
    floor: str = ""
    gpu_through_accelerator: bool = False


@dataclass(frozen=True, slots=True)
class GateResult:
    verdict: Verdict
    findings: tuple[Finding, ...]


class Admission:
    """Leave to change one cluster, bound to the digest of its manifests. Made by `admit` alone."""

    __slots__ = ("cluster", "digest")
    _key = object()

    def __init__(self, cluster: str, digest: str, *, key: object) -> None:
        if key is not Admission._key:
            msg = "an Admission is made by the gate alone"
            raise TypeError(msg)
        self.cluster = cluster
        self.digest = digest


def admit(cluster: str, digest: str, result: GateResult) -> Admission:
    """Raises RefusedError with every reason unless the verdict is pass."""
    if result.verdict != "pass":
        raise RefusedError(refusal_sentence(cluster, result), findings=result.findings)
    return Admission(cluster, digest, key=Admission._key)


def admit_removal(cluster: str, fingerprint: str) -> Admission:
    """For prune alone, which is a gate of its own: nobody uses what goes, and its fingerprint was given back."""
    return Admission(cluster, fingerprint, key=Admission._key)


def refusal_sentence(cluster: str, result: GateResult) -> str:
    """One sentence for every channel: the first reason, and how many more there are."""
    errors = [f for f in result.findings if f.severity == "error"]
    if not errors:
        return f"Cluster {cluster} is {result.verdict}."
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0].code}: {errors[0].message}{more}"


def judge(
    view: ClusterView, facts: GateFacts, *, places: Fleet | None = None, extra: Iterable[Finding] = ()
) -> GateResult:
    """Every reason to refuse the cluster as its manifests declare it, and the warnings. `extra` holds what the account,
    the join, the source and the placement audit found; their errors refuse too."""
    found: list[Finding] = [*extra]
    for pool in view.pools:
        where = _Where(places, view, pool)
        found += _unsupported(view, pool, facts, where)
        found += _fabric(view, pool, facts, where)
        found += _vendors(view, pool, where)
        found += _accelerator(view, pool, facts, where)
        found += _role(pool, where)
        found += _claim_size(view, pool, where)
    found += _version(view, facts, places)
    found += _external(view, places)
    result = ordered(found)
    return GateResult("refused" if has_errors(result) else "pass", result)


@dataclass(frozen=True, slots=True)
class _Where:
    """Places of one pool, looked up only when a finding needs one: that reads the file's text again."""

    fleet: Fleet | None
    view: ClusterView
    at: PoolView

    @property
    def pool(self) -> Place | None:
        if self.fleet is None:
            return None
        index = next(i for i, p in enumerate(self.view.pools) if p.name == self.at.name)
        return self.fleet.place("InferenceCluster", self.view.name, ("spec", "nodePools", index))

    def device(self, index: int) -> Place | None:
        return self._class(("spec", "devices", index, "driver"))

    @property
    def provisioning(self) -> Place | None:
        return self._class(("spec", "provisioning"))

    def _class(self, path: tuple[str | int, ...]) -> Place | None:
        return self.fleet.place("InferenceClass", self.at.class_name, path) if self.fleet else None


def _subject(pool: PoolView) -> str:
    return f"pool/{pool.cluster}/{pool.name}"


def _unsupported(view: ClusterView, pool: PoolView, facts: GateFacts, where: _Where) -> list[Finding]:
    supported = ", ".join(facts.supported) or "no driver"
    found = []
    for index, device in enumerate(pool.devices):
        if device.claim != "DRA" or device.driver in facts.supported:
            continue
        brings = facts.fabrics.get(device.driver)
        if brings:
            continue
        found.append(
            finding(
                "UnsupportedDevices",
                _subject(pool),
                f"Class {pool.class_name} claims the device {device.name} of driver {device.driver}, which {view.source} "
                f"doesn't support; {view.source} supports {supported}.",
                place=where.device(index),
            )
        )
    return found


def _fabric(view: ClusterView, pool: PoolView, facts: GateFacts, where: _Where) -> list[Finding]:
    return [
        finding(
            "FabricRequired",
            _subject(pool),
            f"Class {pool.class_name} claims {driver}, which {view.source} brings with the fabric {fabric}; pool "
            f"{pool.name} has the fabric {pool.fabric}.",
            fix=f"Set fabric.type: {fabric} on pool {pool.name}.",
            place=where.pool,
        )
        for driver, fabric in sorted(facts.fabrics.items())
        if driver in pool.drivers and pool.fabric != fabric
    ]


def _vendors(view: ClusterView, pool: PoolView, where: _Where) -> list[Finding]:
    gpus = gpu_drivers(pool.drivers, view.external)
    if len(gpus) < 2:
        return []
    names = " and ".join(d.name for d in gpus)
    return [
        finding(
            "MixedGpuVendors",
            _subject(pool),
            f"Class {pool.class_name} claims {names}; one node carries GPUs of one vendor.",
            place=where.device(0),
        )
    ]


def _accelerator(view: ClusterView, pool: PoolView, facts: GateFacts, where: _Where) -> list[Finding]:
    gpus = gpu_drivers(pool.drivers, view.external)
    if gpus and pool.accelerator is None and facts.gpu_through_accelerator:
        return [
            finding(
                "AcceleratorRequired",
                _subject(pool),
                f"Class {pool.class_name} claims {gpus[0].name} without an accelerator, and {view.source} attaches GPUs "
                "through it.",
                fix=f"Add spec.provisioning.{view.source.lower()}.accelerator with its type and count to class {pool.class_name}.",
                place=where.provisioning,
            )
        ]
    if pool.accelerator is None or view.source == "Existing":
        return []
    # An accelerator's type names its vendor first (nvidia-l4); the table's vendors are compared whole, up to the dash.
    foreign = {d.vendor for d in DRIVERS.values() if d.vendor} - {d.vendor for d in gpus}
    vendor = pool.accelerator.type.split("-", 1)[0]
    if gpus and vendor not in foreign:
        return []
    claims = ", ".join(pool.drivers) or "no driver"
    return [
        finding(
            "AcceleratorUnclaimed",
            _subject(pool),
            f"Class {pool.class_name} has the accelerator {pool.accelerator.type}, and claims {claims}: no claimed GPU "
            "driver serves it.",
            place=where.provisioning,
        )
    ]


def _role(pool: PoolView, where: _Where) -> list[Finding]:
    if pool.role is not Role.NONE:
        return []
    drivers = ", ".join(pool.drivers)
    what = f"only what {drivers} publishes" if drivers else "nothing"
    return [
        finding(
            "RoleNone",
            _subject(pool),
            f"Class {pool.class_name} claims neither a GPU driver nor {CPU}, so {what} can be scheduled on pool {pool.name}.",
            place=where.pool,
        )
    ]


def _claim_size(view: ClusterView, pool: PoolView, where: _Where) -> list[Finding]:
    needed = oversized(pool, view.cpu_mode)
    if needed is None:
        return []
    return [
        finding(
            "ClaimTooLarge",
            _subject(pool),
            f"Class {pool.class_name} declares {needed} CPUs a group, and on Kubernetes {view.version} a claim counts "
            f"single CPUs; one claim holds {MAX_DEVICES_PER_CLAIM} devices.",
            place=where.pool,
        )
    ]


def _version(view: ClusterView, facts: GateFacts, places: Fleet | None) -> list[Finding]:
    subject = f"cluster/{view.name}"
    path = ("spec", "cluster", view.source.lower(), "kubernetesVersion")

    def place() -> Place | None:
        return places.place("InferenceCluster", view.name, path) if places is not None else None

    version = KubernetesVersion.parse(view.version) if view.version else None
    if version is None:
        if not view.claimed:
            return []
        text = f"Cluster {view.name} declares no Kubernetes version; what depends on it is decided on the cluster."
        return [finding("VersionUnknown", subject, text, place=place())]
    if _below(version, facts.floor):
        text = f"Cluster {view.name} declares Kubernetes {view.version}; the component list of {view.source} needs {facts.floor} or newer."
        return [finding("UnsupportedKubernetesVersion", subject, text, place=place())]
    if view.claimed and version < DRA_SINCE:
        text = (
            f"Cluster {view.name} declares Kubernetes {view.version} and claims {', '.join(sorted(view.claimed))}; "
            f"DRA claims need {DRA_SINCE} or newer."
        )
        return [finding("UnsupportedKubernetesVersion", subject, text, place=place())]
    return []


def _external(view: ClusterView, places: Fleet | None) -> list[Finding]:
    """The driver table decides a known driver's kind, and so its pools' role; a declaration that says otherwise would be
    ignored without a word."""
    found = []
    for index, row in enumerate(view.external):
        known = DRIVERS.get(row.driver)
        if known is None or known.kind.value == row.kind:
            continue
        place = None
        if places is not None:
            path = ("spec", "cluster", "existing", "externalDrivers", index, "kind")
            place = places.place("InferenceCluster", view.name, path)
        text = (
            f"Cluster {view.name} declares the external driver {row.driver} as of kind {row.kind}, and it is of kind "
            f"{known.kind.value}."
        )
        fix = f"Write kind: {known.kind.value}."
        found.append(finding("ExternalDriverClash", f"cluster/{view.name}", text, fix=fix, place=place))
    return found


def _below(version: KubernetesVersion, floor: str) -> bool:
    """A version without a patch stands for the newest patch of its minor, which is what every cloud makes of it."""
    lowest = KubernetesVersion.parse(floor)
    if lowest is None:
        return False
    if version.patch == 0 and version.text.count(".") < 2:
        return (version.major, version.minor) < (lowest.major, lowest.minor)
    return version < lowest


@dataclass(frozen=True, slots=True)
class RunningPool:
    """What is known of a pool that exists: the drivers it was made for, from its record or read off its labels."""

    name: str
    drivers: frozenset[str]


def judge_running(
    view: ClusterView, running: Iterable[RunningPool], *, recorded_account: str | None, places: Fleet | None = None
) -> tuple[Finding, ...]:
    """Reasons that only what exists can give: a pool that would lose a driver or change its role, and a known cluster
    that would be looked for in another account. `recorded_account` is None for a cluster never seen."""
    found: list[Finding] = []
    wanted = {p.name: p for p in view.pools}
    for pool in running:
        desired = wanted.get(pool.name)
        if desired is None:
            continue
        lost = pool.drivers - set(desired.drivers)
        role = role_of(pool.drivers, view.external)
        if not lost and role is desired.role:
            continue
        why = f"no longer claims {', '.join(sorted(lost))}" if lost else f"would make it a {desired.role} pool"
        found.append(
            finding(
                "PoolRoleChanged",
                _subject(desired),
                f"Pool {pool.name} runs as a {role} pool for {', '.join(sorted(pool.drivers)) or 'no driver'}, and class "
                f"{desired.class_name} {why}; a running pool neither loses a driver nor changes its role.",
                place=_Where(places, view, desired).pool,
            )
        )
    if recorded_account is not None and recorded_account != view.account:
        found.append(
            finding(
                "AccountChanged",
                f"cluster/{view.name}",
                f"Cluster {view.name} was made in the account {recorded_account}, and its credentials now lead to {view.account}.",
                place=places.place("InferenceCluster", view.name) if places else None,
            )
        )
    return ordered(found)


def drivers_from_labels(labels: Mapping[str, str], taint_keys: Iterable[str]) -> frozenset[str]:
    """The drivers that a running pool was made for, as far as its labels and taints tell: what our labels and the
    drivers' taint keys say, never the hardware's own labels."""
    keys = set(taint_keys)
    by_taint = {d.name for d in DRIVERS.values() if d.taint and d.taint.key in keys and d.vendor}
    if labels.get("modelplane.ai/cpu") == "true":
        by_taint.add(CPU)
    if GPU_LABEL not in labels and POOL_LABEL in labels:
        by_taint -= {d.name for d in DRIVERS.values() if d.vendor}
    return frozenset(by_taint)
