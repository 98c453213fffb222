"""CPU claims with consumable capacity off and on, as the real server and scheduler take them (R17, R18)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from resources.tools import helm_path
from tests.e2e.site import eventually
from tests.kubernetes.legs.conftest import Fleet, codes, loud
from tests.kubernetes.legs.fleet import BY_SOURCE, CPU, KEYS, LEGS, NAMESPACE, Leg
from tests.kubernetes.legs.reading import Reading

pytestmark = pytest.mark.kubernetes
Json = dict[str, Any]
NOWHERE = ("Insufficient cpu", "cannot allocate all claims")


def engines(reading: Reading, leg: Leg) -> list[Json]:
    return [
        p
        for p in reading.pods(NAMESPACE)
        if p["metadata"]["labels"].get("modelplane.ai/deployment") == f"{leg.name}-cpu"
    ]


def waits(pod: Json) -> str:
    """The scheduler's sentence; empty for a pod that has a node."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next(
        (c.get("message", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), ""
    )


@pytest.mark.parametrize("leg", LEGS, ids=lambda leg: leg.source)
def test_the_mode_follows_the_gate(fleet: Fleet, leg: Leg) -> None:
    """Off (1.34, 1.35): a device a CPU, as many in the claim as CPUs. On: one group with the amount. Mirrored in both."""
    reading = fleet.read(leg)
    devices = [d for s in reading.slices() if s["spec"]["driver"] == "dra.cpu" for d in s["spec"]["devices"]]
    assert {bool(d.get("allowMultipleAllocations")) for d in devices} == {leg.grouped}
    (pod,) = engines(reading, leg)
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == container["resources"]["limits"]["cpu"] == str(leg.cpus)
    (status,) = pod["status"]["resourceClaimStatuses"]
    claim = reading.claims(NAMESPACE)[status["resourceClaimName"]]
    (request,) = claim["spec"]["devices"]["requests"]
    asked = request["exactly"]
    amount = {"capacity": {"requests": {"dra.cpu/cpu": str(leg.cpus)}}} if leg.grouped else {}
    assert (asked["count"], {k: v for k, v in asked.items() if k == "capacity"}) == (
        1 if leg.grouped else leg.cpus,
        amount,
    )
    assert len(claim["status"]["allocation"]["devices"]["results"]) == (1 if leg.grouped else leg.cpus)


def test_grouped_mode_forced_on_a_server_that_drops_amounts_is_noticed(fleet: Fleet) -> None:
    leg = BY_SOURCE["Civo"]
    with forced(fleet, leg, "grouped"):
        seen = fleet.until(leg, lambda s: "FieldDropped" in codes(s))
        (found,) = [f for f in loud(seen) if f["code"] == "FieldDropped"]
        assert (found["severity"], found["subject"]) == ("error", f"pool/{leg.name}/{CPU}")
        assert seen["state"] != "converged"
    fleet.until_clean(leg)


@contextmanager
def forced(fleet: Fleet, leg: Leg, mode: str) -> Iterator[None]:
    """Somebody upgrades the driver's release to another mode, and rolls it back."""
    config = fleet.site.home / f"{leg.name}.kubeconfig"
    config.touch(mode=0o600)
    config.write_text(yaml.safe_dump(fleet.site.lab.kubeconfig(leg.name, "user")))
    (chart,) = (fleet.site.home / "lab" / "charts").glob("dra-driver-cpu-*.tgz")
    release = ["mp-dra-driver-cpu", "--namespace", "dra-driver-cpu"]

    def helm(*arguments: str) -> None:
        done = subprocess.run(
            [str(helm_path()), *arguments],
            env={**os.environ, "KUBECONFIG": str(config)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    helm(
        "upgrade",
        *release[:1],
        str(chart),
        *release[1:],
        "--reuse-values",
        "--set",
        f"driverConfig.cpuDeviceMode={mode}",
    )
    try:
        yield
    finally:
        helm("rollback", *release)


def test_each_claim_takes_a_group_of_its_own_and_the_next_one_waits(fleet: Fleet) -> None:
    """Two groups on the one node: a second engine gets the other, a third stays pending, and reconcile says why."""
    leg = BY_SOURCE["Existing"]
    reading = fleet.read(leg)
    with scaled(reading, leg, 3):
        eventually(lambda: sum(bool(waits(p)) for p in engines(reading, leg)) == 1, within=60)
        claims = reading.claims(NAMESPACE)
        held = []
        for pod in engines(reading, leg):
            (status,) = pod["status"].get("resourceClaimStatuses", [{"resourceClaimName": ""}])
            allocation = claims.get(status["resourceClaimName"], {}).get("status", {}).get("allocation")
            held += (
                [(r["device"], r["consumedCapacity"]) for r in allocation["devices"]["results"]] if allocation else []
            )
        assert sorted(held, key=lambda h: h[0]) == [
            ("cpudevnuma000", {"dra.cpu/cpu": "14"}),
            ("cpudevnuma001", {"dra.cpu/cpu": "14"}),
        ]
        ran = fleet.site.run("reconcile", str(fleet.folder(leg)), "--timeout", "20s", "--format", "json").clean()
        (told,) = [d for d in ran.json["deployments"] if d["name"] == f"{leg.name}-cpu"]
        (waiting,) = [waits(p) for p in engines(reading, leg) if waits(p)]
        assert (ran.status, told["state"]) == (4, "waiting")
        assert told["why"] == f"2 of 3 engine pods are ready; one waits: {waiting}"
        assert any(reason in waiting for reason in NOWHERE)
    eventually(lambda: len(engines(reading, leg)) == 1, within=60)


@contextmanager
def scaled(reading: Reading, leg: Leg, copies: int) -> Iterator[None]:
    """Somebody scales the engine's Deployment, and back."""
    found = reading.apps.list_namespaced_deployment(
        NAMESPACE, label_selector=f"modelplane.ai/deployment={leg.name}-cpu"
    )
    (name,) = [d.metadata.name for d in found.items]
    reading.apps.patch_namespaced_deployment(name, NAMESPACE, {"spec": {"replicas": copies}})
    try:
        yield
    finally:
        reading.apps.patch_namespaced_deployment(name, NAMESPACE, {"spec": {"replicas": 1}})


def test_a_pod_that_claims_and_requests_nothing_waits_for_the_devices_alone(fleet: Fleet) -> None:
    """On the node whose one group is taken: the claim itself keeps it off, not the CPUs that the scheduler counts."""
    leg = BY_SOURCE["EKS"]
    reading = fleet.read(leg)
    (engine,) = engines(reading, leg)
    (template,) = [c["resourceClaimTemplateName"] for c in engine["spec"]["resourceClaims"]]
    name = "second"
    reading.core.create_namespaced_pod(
        NAMESPACE,
        {
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"modelplane.ai/pool": CPU},
                "tolerations": [{"key": KEYS[CPU], "operator": "Exists", "effect": "NoSchedule"}],
                "resourceClaims": [{"name": "cpus", "resourceClaimTemplateName": template}],
                "containers": [{"name": "main", "image": "stand-in:1", "resources": {"claims": [{"name": "cpus"}]}}],
            },
        },
    )
    try:
        eventually(
            lambda: (
                "cannot allocate all claims"
                in next(waits(p) for p in reading.pods(NAMESPACE) if p["metadata"]["name"] == name)
            ),
            within=60,
        )
    finally:
        reading.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
