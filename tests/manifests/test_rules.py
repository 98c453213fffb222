"""The API's rules between fields that no single changed line shows, from both sides."""

from __future__ import annotations

import pytest

from modelplane_dagster.manifests.fleet import build_fleet
from modelplane_dagster.manifests.models import InferenceCluster, NodePool
from tests.manifests.texts import CLASS, DEPLOYMENT, changed

HEAD = "apiVersion: modelplane.ai/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec: "
DEVICES = "devices: [{name: gpu, driver: d, deviceClassName: d}]"


def found(kind: str, spec: str) -> list[tuple[str, str]]:
    fleet = build_fleet([("f.yaml", (HEAD.format(kind=kind) + spec + "\n").encode())])
    return [(f.code, f.message) for f in fleet.findings if f.code not in ("NotActedOn", "ClassNotFound")]


BLOCKS = [
    ("GKE", "gke", "{machineType: m}", "{region: r}"),
    ("EKS", "eks", "{instanceType: m}", "{region: r}"),
    ("AKS", "aks", "{vmSize: m}", "{location: r}"),
    ("Nebius", "nebius", "{platform: m, preset: p}", "{}"),
    ("Vultr", "vultr", "{plan: m}", "{region: r}"),
    ("Civo", "civo", "{size: m}", "{region: r}"),
]


@pytest.mark.parametrize(("source", "block", "provisioning", "cluster"), BLOCKS)
def test_every_provider_and_source_needs_its_own_block(source, block, provisioning, cluster):
    other = "vultr: {plan: x}" if block != "vultr" else "eks: {instanceType: x}"
    assert found("InferenceClass", f"{{provisioning: {{provider: {source}, {other}}}, {DEVICES}}}") == [
        ("RuleViolated", f"spec.provisioning: provider is {source}, so {block} must be set")
    ]
    assert (
        found("InferenceClass", f"{{provisioning: {{provider: {source}, {block}: {provisioning}}}, {DEVICES}}}") == []
    )
    assert found("InferenceCluster", f"{{cluster: {{source: {source}, existing: {{secretRef: {{name: s}}}}}}}}") == [
        ("RuleViolated", f"spec.cluster: source is {source}, so {block} must be set")
    ]
    assert found("InferenceCluster", f"{{cluster: {{source: {source}, {block}: {cluster}}}}}") == []


def test_an_existing_cluster_needs_its_block():
    assert found("InferenceCluster", "{cluster: {source: Existing, eks: {region: r}}}") == [
        ("RuleViolated", "spec.cluster: source is Existing, so existing must be set")
    ]


VERSIONS = [
    ("EKS", "region: r", ["1.36"], ["1.36.1", "v1.36", "latest", "2.0"]),
    ("GKE", "region: r", ["1.35", "1.35.2", "1.35.2-gke.100", "latest"], ["v1.35", "1", "1.35-gke.1"]),
    ("AKS", "location: r", ["1.34", "1.34.2"], ["v1.34", "latest"]),
    ("Nebius", "", ["1.34"], ["1.34.1"]),
    ("Vultr", "region: r", ["v1.36.1+3"], ["1.36.1+3", "v1.36.1", "v1.36"]),
    ("Civo", "region: r", ["1.34.1-k3s1"], ["1.34.1", "1.34"]),
]


@pytest.mark.parametrize(("source", "fields", "good", "bad"), VERSIONS)
def test_a_version_has_the_form_that_its_source_takes(source, fields, good, bad):
    def codes(version: str) -> list[str]:
        block = ", ".join(part for part in (fields, f'kubernetesVersion: "{version}"') if part)
        return [
            code
            for code, _ in found(
                "InferenceCluster", f"{{cluster: {{source: {source}, {source.lower()}: {{{block}}}}}}}"
            )
        ]

    assert {version: codes(version) for version in good} == {version: [] for version in good}
    assert {version: codes(version) for version in bad} == {version: ["InvalidVersion"] for version in bad}


DEFAULT_VERSIONS = [
    ("EKS", "{region: r}", "1.36"),
    ("GKE", "{region: r}", "1.35"),
    ("AKS", "{location: r}", "1.34"),
    ("Nebius", "{}", "1.34"),
    ("Vultr", "{region: r}", "v1.36.1+3"),
    ("Civo", "{region: r}", None),
    ("Existing", "{secretRef: {name: s}}", None),
]


@pytest.mark.parametrize(("source", "block", "version"), DEFAULT_VERSIONS)
def test_a_cluster_without_a_version_has_its_source_s_default(source, block, version):
    text = HEAD.format(kind="InferenceCluster") + f"{{cluster: {{source: {source}, {source.lower()}: {block}}}}}\n"
    cluster = build_fleet([("f.yaml", text.encode())]).clusters["a"]
    assert cluster.kubernetes_version == version
    assert (cluster.credentials.type, cluster.credentials.name) == ("ClusterProviderConfig", "default")


INFINIBAND = [
    ("Nebius", "{}", "{type: InfiniBand}", ["RuleViolated"]),
    ("Nebius", "{}", "{type: InfiniBand, infiniband: {fabric: fabric-2}}", []),
    ("Nebius", "{}", "{type: None}", []),
    ("AKS", "{location: r}", "{type: InfiniBand}", []),
    ("AKS", "{location: r}", "{type: EFA, infiniband: {fabric: f}}", ["RuleViolated"]),
    ("EKS", "{region: r}", "{type: EFA}", []),
    ("EKS", "{region: r}", "{type: RoCE}", ["InvalidValue"]),
]


@pytest.mark.parametrize(("source", "block", "fabric", "codes"), INFINIBAND)
def test_the_fabric(source, block, fabric, codes):
    pool = f"{{name: gpu, className: c, fabric: {fabric}}}"
    spec = f"{{cluster: {{source: {source}, {source.lower()}: {block}}}, nodePools: [{pool}]}}"
    assert [code for code, _ in found("InferenceCluster", spec)] == codes


MEMBER = "          template: {spec: {containers: [{name: engine, image: 'a:1'}]}}\n"
ASKS = "          nodeSelector: {devices: [{name: gpu, selectors: [{cel: 'true'}]}]}\n"
ENGINES = [
    # members as (role, asks for devices), and the messages
    ([("Standalone", True)], []),
    ([("Leader", True), ("Worker", True)], []),
    ([("Leader", False), ("Worker", True)], []),
    ([("Leader", True)], ["an engine is a single Standalone member"]),
    ([("Leader", True), ("Leader", True)], ["an engine is a single Standalone member"]),
    ([("Worker", True), ("Worker", True)], ["an engine is a single Standalone member"]),
    ([("Leader", True), ("Standalone", True)], ["an engine is a single Standalone member"]),
    ([("Standalone", False)], ["at least one member of an engine must ask for devices"]),
    ([("Leader", False), ("Leader", False)], ["an engine is a single", "at least one member"]),
]


@pytest.mark.parametrize(("members", "messages"), ENGINES)
def test_the_members_of_an_engine(members, messages):
    rows = "".join(f"        - role: {role}\n{ASKS if asks else ''}{MEMBER}" for role, asks in members)
    text = DEPLOYMENT[: DEPLOYMENT.index("        - role")] + rows
    got = [f.message for f in build_fleet([("f.yaml", text.encode())]).findings]
    assert len(got) == len(messages)
    for message in messages:
        assert any(f"spec.template.spec.engines[0].members: {message}" in one for one in got), got


SERVING = [
    ("Unified", [None], 0),
    ("Unified", [None, None], 0),
    ("PrefillDecode", ["Prefill", "Decode"], 0),
    ("PrefillDecode", ["Prefill", "Prefill"], 2),
    ("PrefillDecode", ["Prefill", None], 1),
    ("PrefillDecode", ["Prefill", "Decode", None], 1),
    ("Unified", ["Prefill", "Decode"], 2),
]


@pytest.mark.parametrize(("mode", "phases", "count"), SERVING)
def test_prefill_and_decode_go_in_pairs(mode, phases, count):
    engines = ""
    for index, phase in enumerate(phases):
        line = f"        phase: {phase}\n" if phase else ""
        engines += f"      - name: e{index}\n{line}        members:\n        - role: Standalone\n{ASKS}{MEMBER}"
    text = (
        DEPLOYMENT[: DEPLOYMENT.index("      engines")] + f"      serving: {{mode: {mode}}}\n      engines:\n{engines}"
    )
    assert [f.code for f in build_fleet([("f.yaml", text.encode())]).findings] == ["RuleViolated"] * count


OTHERS = [
    ("ModelCache", "{source: HuggingFace}", "spec: source is HuggingFace, so huggingFace must be set"),
    ("InferenceGateway", "{backend: Traefik}", "spec: backend is Traefik, so traefik must be set"),
    (
        "InferenceGateway",
        "{backend: Traefik, traefik: {version: '1', loadBalancer: MetalLB}}",
        "spec.traefik: loadBalancer is MetalLB, so metallb must be set",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "message"), OTHERS)
def test_rules_of_kinds_that_are_not_acted_on(kind, spec, message):
    assert found(kind, spec) == [("RuleViolated", message)]


QUANTITIES = {
    "16Gi": True, "500m": True, "1e3": True, "1.5": True, "2": True, "100k": True,
    "16GB": False, "Gi": False, "1 Gi": False, "0x10": False, "16gi": False, "1e": False,
}  # fmt: skip


@pytest.mark.parametrize(("text", "good"), sorted(QUANTITIES.items()))
def test_quantities(text, good):
    built = build_fleet([("f.yaml", changed(CLASS, "23034Mi", f'"{text}"').encode())])
    assert [f.code for f in built.findings] == ([] if good else ["InvalidQuantity"])


VERSIONS_OF_ATTRIBUTES = {
    "9.0.0": True, "1.2.3-rc.1+b5": True, "0.0.0": True,
    "9.0": False, "v9.0.0": False, "09.0.0": False, "9.0.0.0": False, "": False,
}  # fmt: skip


@pytest.mark.parametrize(("text", "good"), sorted(VERSIONS_OF_ATTRIBUTES.items()))
def test_version_attributes(text, good):
    built = build_fleet([("f.yaml", changed(CLASS, "8.9.0", text).encode())])
    assert [f.code for f in built.findings] == ([] if good else ["InvalidVersion"])


def test_code_builds_models_by_attribute_names_and_copies_are_free():
    pool = NodePool(name="gpu", class_name="l4", node_count=2)
    assert (pool.class_name, pool.model_fields_set) == ("l4", {"name", "class_name", "node_count"})
    bounded = pool.model_copy(update={"max_node_count": 4})
    assert bounded.model_fields_set == {"name", "class_name", "node_count", "max_node_count"}
    assert pool.model_fields_set == {"name", "class_name", "node_count"}
    assert NodePool(name="cpu", class_name="c", node_count=1).model_fields_set == {"name", "class_name", "node_count"}


def test_a_device_attribute_has_one_value():
    text = changed(CLASS, '{version: "8.9.0"}', "{int: 0}\n      fast: {bool: false}\n      name: {string: ''}")
    device = build_fleet([("f.yaml", text.encode())]).classes["l4"].spec.devices[0]
    assert {name: attribute.value for name, attribute in device.attributes.items()} == {
        "cudaComputeCapability": 0,
        "fast": False,
        "name": "",
    }


def test_a_cluster_needs_no_pools_but_not_an_empty_list_of_them():
    base = "{cluster: {source: Nebius, nebius: {}}"
    assert found("InferenceCluster", base + "}") == []
    assert found("InferenceCluster", base + ", nodePools: []}") == [
        ("InvalidValue", "spec.nodePools: expected at least 1 entries, and got 0")
    ]
    assert InferenceCluster.model_fields.keys() == {"metadata", "spec"}
