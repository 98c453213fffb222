"""What AICR 0.11.1 really wrote for the three sources."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from modelplane_dagster.audit.plan_audit import audit_plan
from modelplane_dagster.cluster import ClusterView, PoolView, Role
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.importer.imports import import_bundle
from modelplane_dagster.importer.listing import components_from
from modelplane_dagster.importer.tables import ALLOW, SOURCES
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources import SOURCES as SOURCE_MODULES
from resources.aicr import read_inputs
from tests.importer.bundles import ANY, EVERY_DRIVER, NVIDIA_ONLY, errors
from tests.shared import shared

GATEWAY = "the gateway is Envoy AI Gateway, from the common list"
CHARTS = {
    "cert-manager": ("cert-manager", "v1.17.2", (), ()),
    "kube-prometheus-stack": ("kube-prometheus-stack", "82.8.0", (), ()),
    "gpu-operator": (
        "gpu-operator",
        "v25.10.1",
        ("gpu.nvidia.com",),
        ("cert-manager", "kube-prometheus-stack", "node-feature-discovery"),
    ),
    "k8s-ephemeral-storage-metrics": ("k8s-ephemeral-storage-metrics", "1.19.2", (), ("kube-prometheus-stack",)),
    "nvidia-dra-driver-gpu": (
        "nvidia-dra-driver-gpu",
        "25.12.0",
        ("gpu.nvidia.com",),
        ("dra-driver-critical-pods-quota", "gpu-operator"),
    ),
    "nvsentinel": ("nvsentinel", "v1.1.0", ("gpu.nvidia.com",), ("cert-manager", "gpu-operator")),
    "prometheus-adapter": ("prometheus-adapter", "5.3.0", (), ("kube-prometheus-stack",)),
    "nodewright-operator": ("skyhook-operator", "v0.14.0", (), ()),
}
DROPPED = {
    "EKS": {
        "aws-ebs-csi-driver": "storage is the cloud's own",
        "aws-efa": "EFA comes as a DRA driver where a pool asks for the fabric",
    },
    "GKE": {},
    "AKS": {"network-operator": "installed where an AKS pool asks for InfiniBand"},
}
EVERYWHERE_DROPPED = {
    "kgateway": GATEWAY,
    "kgateway-crds": GATEWAY,
    "kai-scheduler": "a scheduler is the serving stack's choice",
}


def imported(source):
    root = shared("aicr", source.lower())
    inputs = read_inputs(root / "recipe.yaml", root / "bundle", sorted(root.glob("floor-*.yaml")))
    default = SOURCE_MODULES[source].record.default_version
    return import_bundle(source, inputs, default_version=default, shipped=components_for(source))


@pytest.mark.parametrize("source", SOURCES)
def test_every_component_is_classified(source):
    made = imported(source)
    assert errors(made) == []
    listed = {c.key: (c.chart, c.version, c.drivers, c.depends_on) for c in made.components}
    assert listed == CHARTS
    assert {d.name: d.reason for d in made.dropped} == {**EVERYWHERE_DROPPED, **DROPPED[source]}


@pytest.mark.parametrize(("source", "floor"), [("EKS", "1.32.4"), ("GKE", "1.32"), ("AKS", "1.32.4")])
def test_the_floor_is_that_of_the_strictest_accelerator(source, floor):
    assert imported(source).floor == floor


# Of untagged components 12 lists of controllers and one of a daemon, of NVIDIA's 9. On AKS the bundle names the key of
# three of these, with a value.
@pytest.mark.parametrize(("source", "keyless", "by_value"), [("EKS", 24, 0), ("GKE", 24, 0), ("AKS", 21, 3)])
def test_no_toleration_without_a_key_is_left(source, keyless, by_value):
    made = imported(source)
    narrowed = [c for c in made.changes if c.path.endswith("olerations")]
    assert Counter(c.before == ANY for c in narrowed) == Counter({True: keyless, False: by_value})
    for change in narrowed:
        tagged = change.component in {"gpu-operator", "nvidia-dra-driver-gpu", "nvsentinel"}
        exporter = change.path == "prometheus-node-exporter.tolerations"
        assert change.after == (NVIDIA_ONLY if tagged else EVERY_DRIVER if exporter else []), change
    assert list(keyless_in([c.as_dict() for c in made.components])) == []


@pytest.mark.parametrize("source", SOURCES)
def test_what_else_changes_is_listed(source):
    others = [c for c in imported(source).changes if not c.path.endswith("olerations")]
    assert [(c.component, c.path, c.before, c.after) for c in others] == [
        ("gpu-operator", "nfd.enabled", None, False),
        (
            "gpu-operator",
            "dependencyRefs",
            ["cert-manager", "kube-prometheus-stack"],
            ["cert-manager", "kube-prometheus-stack", "node-feature-discovery"],
        ),
        ("gpu-operator", "dcgm-exporter.yaml[0]: metadata.labels.helm.sh/chart", "gpu-operator-25.10.1", None),
        (
            "nvidia-dra-driver-gpu",
            "dependencyRefs",
            ["gpu-operator"],
            ["dra-driver-critical-pods-quota", "gpu-operator"],
        ),
    ]


def test_values_come_hydrated():
    components = {c.key: c for c in imported("GKE").components}
    assert components["nvidia-dra-driver-gpu"].values == {
        # The override's null takes nodeAffinity away.
        "controller": {"affinity": {}, "priorityClassName": "", "tolerations": NVIDIA_ONLY},
        "fullnameOverride": "nvidia-dra-driver-gpu",
        "gpuResourcesEnabledOverride": True,
        "kubeletPlugin": {"priorityClassName": "", "tolerations": NVIDIA_ONLY},
        "nvidiaDriverRoot": "/home/kubernetes/bin/nvidia",
        "resources": {"computeDomains": {"enabled": False}, "gpus": {"enabled": True}},
    }
    storage = components["kube-prometheus-stack"].values["prometheus"]["prometheusSpec"]["storageSpec"]
    assert set(storage) == {"volumeClaimTemplate"}


@pytest.mark.parametrize(
    ("source", "manifests"),
    [
        ("EKS", [("ConfigMap", "dcgm-exporter")]),
        ("GKE", [("ConfigMap", "dcgm-exporter"), ("ResourceQuota", "gcp-critical-pods")]),
        ("AKS", [("ConfigMap", "dcgm-exporter")]),
    ],
)
def test_manifests_are_carried(source, manifests):
    carried = [(c.key, m["kind"], m["metadata"]["name"]) for c in imported(source).components for m in c.manifests]
    assert carried == [("gpu-operator", kind, name) for kind, name in manifests]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("GKE", "gpu-operator: toolkit.enabled is false in the bundle and true in ours."),
        ("EKS", "nvidia-dra-driver-gpu: chart is nvidia-dra-driver-gpu in the bundle and dra-driver-nvidia-gpu in ours."),
        ("AKS", "gpu-operator: version is v25.10.1 in the bundle and v26.3.3 in ours."),
        ("EKS", "node-feature-discovery: the shipped list has node-feature-discovery 0.19.0, and the bundle hasn't."),
    ],
)  # fmt: skip
def test_differences_from_the_shipped_list_are_told(source, sentence):
    made = imported(source)
    key = sentence.partition(":")[0]
    told = {(f.subject, f.message) for f in made.findings if f.code == "PinDiffers"}
    assert (f"component/{source}/{key}", sentence) in told
    assert {(f.code, f.severity.value) for f in made.findings} == {("PinDiffers", "info")}


def test_the_toolkit_differs_on_gke_alone():
    told = {s: [f for f in imported(s).findings if "toolkit.enabled" in f.message] for s in SOURCES}
    assert {s: len(found) for s, found in told.items()} == {"EKS": 0, "GKE": 1, "AKS": 0}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("claimed", [(), ("gpu.nvidia.com",), ("dra.cpu",), ("dra.cpu", "gpu.nvidia.com")], ids=str)
def test_the_imported_list_joins(source, claimed):
    made = imported(source)
    listed = components_from(made, components_for(source), checked="2026-11-30")
    joined = join(view(source, claimed), listed)
    assert [(f.code, f.message) for f in joined.findings] == []
    # The stack of this version brings the CRDs itself.
    assert "prometheus-operator-crds" not in {c.key for c in joined.components}
    untagged = {key for key, row in CHARTS.items() if not row[2]}
    tagged = set(CHARTS) - untagged
    installed = {c.key for c in joined.installed}
    assert installed >= untagged
    assert installed & tagged == (tagged if "gpu.nvidia.com" in claimed else set())
    values = {c.key: outside(c.values) for c in made.components}
    assert {c.key: outside(c.values) for c in joined.installed if c.key in values} == {
        key: body for key, body in values.items() if key in installed
    }


# Where an imported component's pods go follows the cluster's pools.
PLACED = {"affinity", "tolerations", "systemNodeTolerations"}


def outside(node):
    """The values without what says where pods go, and without the maps that this empties."""
    if not isinstance(node, dict):
        return node
    made = {key: outside(child) for key, child in node.items() if key not in PLACED}
    return {key: child for key, child in made.items() if child != {}}


NV, NVCPU, CPU = (
    ("nv", ("gpu.nvidia.com",), {"modelplane.ai/gpu": "nvidia"}, "nvidia.com/gpu=present"),
    ("nvcpu", ("dra.cpu", "gpu.nvidia.com"), {"modelplane.ai/gpu": "nvidia", "modelplane.ai/cpu": "true"}, "nvidia.com/gpu=present"),
    ("cpu", ("dra.cpu",), {"modelplane.ai/cpu": "true"}, "modelplane.ai/cpu=true"),
)  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "pools", [(NV,), (CPU,), (NV, CPU), (NV, NVCPU, CPU)], ids=lambda p: "+".join(n for n, *_ in p)
)
def test_the_imported_list_reaches_its_pools_and_stays_off_the_others(source, pools):
    cluster = ClusterView(
        name="c",
        source=source,
        version="1.36",
        pools=tuple(pool_of(*row) for row in pools),
        claimed=frozenset(d for _, drivers, *_ in pools for d in drivers),
    )
    joined = join(cluster, components_from(imported(source), components_for(source), checked="2026-11-30"))
    audit = audit_plan(cluster, joined.components)
    assert [(f.code, f.subject, f.message) for f in (*joined.findings, *audit.findings)] == []
    gpus = tuple(name for name, drivers, *_ in pools if "gpu.nvidia.com" in drivers)
    rows = {r.name: r.reaches for r in audit.rows}
    names = ("dra-driver-nvidia-gpu-kubelet-plugin", "platform-connectors", "gpu-operator", "labeler")
    expected = dict(zip(names, (gpus, gpus, ("system",), ("system",)), strict=True)) if gpus else {}
    assert {name: rows[name] for name in names if name in rows} == expected


@pytest.mark.parametrize("source", SOURCES)
def test_what_the_joined_list_takes_from_controllers_is_told(source):
    told = {f.message for f in imported(source).findings}
    controller = "dra-driver-nvidia-gpu-controller"
    left = "tolerates nvidia.com/gpu in the bundle, and the joined list leaves it out:"
    assert {m for m in told if left in m} == {
        f"gpu-operator: operator.tolerations {left} Deployment gpu-operator needs one node, and no pool's.",
        f"nvidia-dra-driver-gpu: controller.tolerations {left} Deployment {controller} needs one node, and no pool's.",
        f"nvsentinel: global.systemNodeTolerations {left} Deployment labeler needs one node, and no pool's.",
    }
    follows = "nvidia-dra-driver-gpu: in the joined list these follow the cluster's pools: kubeletPlugin.affinity, "
    assert f"{follows}kubeletPlugin.tolerations." in told


def pool_of(name, drivers, labels, taint):
    key, _, value = taint.partition("=")
    return PoolView(
        cluster="c",
        name=name,
        class_name=f"{name}-class",
        role=Role.GPU if "gpu.nvidia.com" in drivers else Role.CPU,
        drivers=drivers,
        labels={"modelplane.ai/pool": name, **labels},
        taints=(Taint(key, value),),
    )


@pytest.mark.parametrize("source", SOURCES)
def test_an_imported_component_keeps_what_ours_declares(source):
    shipped = {c.key: c for c in components_for(source)}
    listed = {c.key: c for c in components_from(imported(source), tuple(shipped.values()), checked="2026-11-30")}
    for key in CHARTS:
        assert replace(listed[key], workloads=()) != replace(shipped[key], workloads=())
        assert (listed[key].release, listed[key].workloads) == (shipped[key].release, shipped[key].workloads)
    assert listed["nvidia-dra-driver-gpu"].publishes == "gpu.nvidia.com"
    assert listed["nvidia-dra-driver-gpu"].pin.version == "25.12.0"


@pytest.mark.parametrize("source", SOURCES)
def test_tags_and_node_daemons_agree_with_what_the_shipped_components_declare(source):
    """The importer's tables and the shipped components say the same thing twice; here they are held together."""
    shipped = {c.key: c for c in components_for(source)}
    for row in ALLOW.values():
        if row.key not in shipped:
            continue
        component = shipped[row.key]
        assert component.drivers == row.drivers, row.key
        everywhere = [w for w in component.workloads if w.reach is not None and w.reach.kind == "all"]
        paths = {w.tolerations.path for w in everywhere if w.tolerations.path}
        declared = {path.rpartition(".")[0] for path in paths}
        assert declared <= set(row.daemons), row.key


def keyless_in(node):
    if isinstance(node, dict):
        if node.get("operator") == "Exists" and not node.get("key"):
            yield node
        node = list(node.values())
    for child in node if isinstance(node, list) else ():
        yield from keyless_in(child)


def view(source, claimed):
    taints = (Taint("nvidia.com/gpu", "present"),) if "gpu.nvidia.com" in claimed else ()
    pool = PoolView(
        cluster="c",
        name="p",
        class_name="k",
        role=Role.GPU if taints else Role.NONE,
        drivers=claimed,
        labels={"modelplane.ai/pool": "p"},
        taints=taints,
    )
    return ClusterView(name="c", source=source, version="1.36", pools=(pool,), claimed=frozenset(claimed))
