"""Every refusal that manifests alone can cause, once: the examples against a table written out by hand."""

from __future__ import annotations

from pathlib import Path

from modelplane_dagster.codes import CODES
from modelplane_dagster.findings import Finding
from modelplane_dagster.plan import FleetPlan, plan_fleet
from modelplane_dagster.plan_json import plan_document
from resources.files import load_fleet

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

REFUSED = (
    ("AcceleratorRequired", "pool/gpus-never-attached/l4", "accelerator.yaml", 7),
    ("AcceleratorUnclaimed", "pool/gpu-nobody-claims/cpu", "accelerator.yaml", 34),
    ("CapacityBlockUnsupported", "pool/not-on-this-cloud/block", "cloud-lacks-it.yaml", 31),
    ("ClaimTooLarge", "pool/groups-over-32-cpus/cpu", "claim-too-large.yaml", 27),
    ("CountNotSpread", "pool/three-nodes-in-two-zones/l4", "cloud-lacks-it.yaml", 60),
    ("CredentialsUnmapped", "cluster/account-unknown", "credentials-unmapped.yaml", 27),
    ("ExternalDriverClash", "cluster/gpu-driver-called-cpu", "external-driver-clash.yaml", 22),
    ("FabricRequired", "pool/network-without-fabric/h100", "fabric-required.yaml", 29),
    ("FabricUnsupported", "pool/not-on-this-cloud/fabric", "cloud-lacks-it.yaml", 27),
    ("InstanceMismatch", "pool/plan-without-gpus/gpu", "instance-mismatch.yaml", 24),
    ("InstanceMismatch", "pool/platform-with-gpus/cpu", "instance-mismatch.yaml", 52),
    ("InstanceMismatch", "pool/size-for-plain-machines/cpu", "instance-mismatch.yaml", 80),
    ("MinNodesUnsupported", "pool/pool-of-no-nodes/cpu", "min-nodes.yaml", 26),
    ("MixedGpuVendors", "pool/two-vendors-in-a-class/both", "mixed-gpu-vendors.yaml", 9),
    ("UnsupportedDevices", "pool/amd-on-aks/mi300x", "unsupported-devices.yaml", 15),
    ("UnsupportedDevices", "pool/driver-nobody-brings/gaudi", "unsupported-devices.yaml", 40),
    ("UnsupportedKubernetesVersion", "cluster/below-the-lists-floor", "kubernetes-version.yaml", 52),
    ("UnsupportedKubernetesVersion", "cluster/too-old-for-claims", "kubernetes-version.yaml", 24),
    ("ZonesRequired", "pool/block-in-two-zones/h100", "zones-required.yaml", 54),
    ("ZonesRequired", "pool/gpus-in-no-zone/l4", "zones-required.yaml", 26),
)

INVALID = (
    ("ClusterInvalid", "cluster/driver-declared-twice", "external-driver-twice.yaml", 23),
    ("CountOutOfBounds", "pool/more-than-the-most/l4", "count-out-of-bounds.yaml", 29),
    ("ExternalDriverClash", "cluster/driver-declared-twice", "external-driver-twice.yaml", 23),
)

# What exists decides these; by the declared requests of the daemons no set of manifests fills the driver's two CPUs.
NEEDS_MORE_THAN_MANIFESTS = {"PoolRoleChanged", "AccountChanged", "CpuNotAllocatable"}


def _plan(folder: str) -> FleetPlan:
    return plan_fleet(load_fleet([EXAMPLES / folder]))


def _errors(plan: FleetPlan) -> list[tuple[str, str, str, int]]:
    """Not as a set: a refusal that is told twice stands here twice."""
    found: list[Finding] = []
    for cluster in plan.clusters:
        found += cluster.gate.findings
        found += cluster.audit.findings if cluster.audit else ()
    return sorted(
        (f.code, f.subject, Path(f.place.file).name if f.place else "", f.place.line if f.place else 0)
        for f in found
        if f.severity == "error"
    )


def test_each_refusal_is_told_once_at_its_line() -> None:
    assert _errors(_plan("refused")) == list(REFUSED)


def test_a_contradictory_manifest_leaves_its_cluster_unknown() -> None:
    plan = _plan("invalid")
    assert _errors(plan) == list(INVALID)
    assert {c.name: c.gate.verdict for c in plan.clusters} == {
        "driver-declared-twice": "unknown",
        "more-than-the-most": "unknown",
    }


def test_a_deployment_whose_claim_is_too_large_is_refused() -> None:
    (deployment,) = plan_document(_plan("refused"))["deployments"]
    assert (deployment["name"], deployment["verdict"]) == ("both-groups", "refused")
    assert [(f["code"], f["subject"]) for f in deployment["findings"]] == [
        ("ClaimTooLarge", "deployment/refused/both-groups")
    ]


def test_no_refused_cluster_has_an_action() -> None:
    plan = _plan("refused")
    assert [c.name for c in plan.clusters if c.gate.verdict == "pass"] == ["two-groups-of-20"]
    assert {a.subject.split("/")[1] for a in plan.actions if a.op != "none"} == {"two-groups-of-20"}


def test_no_error_of_the_gate_lacks_an_example() -> None:
    errors = {code for code, row in CODES.items() if row.area == "Gate" and row.severity == "error"}
    assert {code for code, *_ in (*REFUSED, *INVALID)} - {"ClusterInvalid"} == errors - NEEDS_MORE_THAN_MANIFESTS
