"""What an operator of a cluster may do to a stack of ours, and what the audit on that very cluster then says (R20, R21).

Every tagged component is hit at least once over the legs, each leg at least once. Each change is put back, and the
cluster must be found clean again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.kubernetes.legs.conftest import Fleet, loud
from tests.kubernetes.legs.fleet import AMD, BY_SOURCE, CPU, GPU, KEYS
from tests.kubernetes.legs.reading import Reading

pytestmark = pytest.mark.kubernetes

Json = dict[str, Any]
NVIDIA, AMDS, CPUS = ({"key": KEYS[p], "operator": "Exists", "effect": "NoSchedule"} for p in (GPU, AMD, CPU))
KEYLESS = {"operator": "Exists", "effect": "NoSchedule"}


def wrong(pool: str) -> Json:
    """The right key with a value that no node's taint has."""
    return {"key": KEYS[pool], "operator": "Equal", "value": "absent", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The tolerations of one DaemonSet, and what must be told: each code with a piece of its message. Where `of` is set
    they are those in the spec of that DeviceConfig, from which the operator makes the daemon."""

    source: str
    component: str
    namespace: str
    daemon: str
    tolerations: tuple[Json, ...]
    told: tuple[tuple[str, str], ...]
    pool: str
    of: str = ""


def _plugin(
    daemon: tuple[str, str, str],
    usual: str,
    source: str,
    *tolerations: Json,
    told: tuple[tuple[str, str], ...],
    pool: str = "",
) -> Change:
    """Of the component, namespace and name in `daemon`; on its usual pool where no other is named."""
    component, namespace, name = daemon
    return Change(
        source=source,
        component=component,
        namespace=namespace,
        daemon=name,
        tolerations=tolerations,
        told=told,
        pool=pool or usual,
    )


_driver = partial(_plugin, ("nvidia-dra-driver-gpu", "nvidia-dra-driver", "dra-driver-nvidia-gpu-kubelet-plugin"), GPU)
_cpus = partial(_plugin, ("dra-driver-cpu", "dra-driver-cpu", "mp-dra-driver-cpu"), CPU)

MISSED = ("PlanDisagrees", "expected on pool {pool}, and not seen there")
DRIVERLESS = ("DaemonMissing", "of pool {pool}, link daemon")
OPENED = ("PlanDisagrees", "not expected to tolerate the taints of pool {pool}, and seen to")

CHANGES = {
    "narrowed, NVIDIA's driver": _driver("EKS", told=(MISSED, DRIVERLESS)),
    "wrong value, NVIDIA's driver": _driver("Nebius", wrong(GPU), told=(MISSED, DRIVERLESS)),
    "widened, NVIDIA's driver": _driver("Vultr", NVIDIA, CPUS, told=(OPENED,), pool=CPU),
    "narrowed, the CPUs' driver": _cpus("GKE", NVIDIA, told=(MISSED, DRIVERLESS)),
    "keyless, the CPUs' driver": _cpus(
        "Civo",
        CPUS,
        KEYLESS,
        told=(("ToleratesEverything", "any key Exists NoSchedule names no key"), OPENED),
        pool=GPU,
    ),
    "wrong value, the CPUs' driver": _cpus("Existing", wrong(CPU), told=(MISSED, DRIVERLESS)),
    "narrowed, the labeller": Change(
        source="Existing",
        component="node-feature-discovery",
        namespace="node-feature-discovery",
        daemon="mp-node-feature-discovery-worker",
        tolerations=(NVIDIA,),
        told=(MISSED,),
        pool=AMD,
    ),
    "narrowed, an operand of NVIDIA's operator": Change(
        source="EKS",
        component="gpu-operator",
        namespace="gpu-operator",
        daemon="nvidia-dcgm-exporter",
        tolerations=(),
        told=(MISSED,),
        pool=GPU,
    ),
    "widened, a health monitor": Change(
        source="GKE",
        component="nvsentinel",
        namespace="nvsentinel",
        daemon="metadata-collector",
        tolerations=(NVIDIA, CPUS),
        told=(OPENED,),
        pool=CPU,
    ),
    "wrong value, AKS's toolkit": Change(
        source="AKS",
        component="gpu-operator-toolkit-hardening",
        namespace="gpu-operator",
        daemon="nvidia-toolkit-hardening",
        tolerations=(wrong(GPU),),
        told=(MISSED,),
        pool=GPU,
    ),
    "narrowed, AMD's driver by its DeviceConfig": Change(
        source="Existing",
        component="amd-gpu-operator",
        namespace="kube-amd-gpu",
        daemon="mp-amd-dra-driver",
        tolerations=(NVIDIA,),
        told=(MISSED, DRIVERLESS),
        pool=AMD,
        of="mp-amd",
    ),
}


@contextmanager
def changed(reading: Reading, change: Change) -> Iterator[None]:
    """As the cluster's operator changes it, and back."""
    before = _tolerations(reading, change)
    _set(reading, change, list(change.tolerations))
    try:
        yield
    finally:
        _set(reading, change, before)


def _tolerations(reading: Reading, change: Change) -> list[Json]:
    if change.of:
        found = reading.device_config(change.namespace, change.of)["spec"]["draDriver"].get("tolerations", [])
    else:
        daemon = reading.daemons()[change.namespace, change.daemon]
        found = daemon["spec"]["template"]["spec"].get("tolerations", [])
    return list(found)


def _set(reading: Reading, change: Change, tolerations: list[Json]) -> None:
    if change.of:
        reading.patch_device_config(change.namespace, change.of, {"draDriver": {"tolerations": tolerations}})
    else:
        spec = {"template": {"spec": {"tolerations": tolerations}}}
        reading.patch_daemon(change.namespace, change.daemon, spec)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_audit_names_the_component_and_the_pool(fleet: Fleet, change: Change) -> None:
    leg = BY_SOURCE[change.source]
    subjects = (f"component/{leg.name}/{change.component}", f"pool/{leg.name}/{change.pool}")

    def told(seen: Json) -> bool:
        found = [f for f in loud(seen) if f["subject"] in subjects]
        return all(
            any(f["code"] == code and text.format(pool=change.pool) in f["message"] for f in found)
            for code, text in change.told
        )

    with changed(fleet.read(leg), change):
        seen = fleet.until(leg, told)
        assert seen["state"] != "converged"
        assert {f["subject"].split("/")[1] for f in loud(seen)} == {leg.name}
    fleet.until_clean(leg)
