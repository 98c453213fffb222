"""Bad input: each case is a finding with code, subject, place and field path."""

from __future__ import annotations

from itertools import pairwise

import pytest

from modelplane_dagster.findings import Place, Severity
from modelplane_dagster.manifests.fleet import build_fleet
from tests.manifests.texts import CLASS, CLUSTER, DEPLOYMENT, EXISTING, changed

LONG = "p" * 41
LONG_SUBDOMAIN = "c" * 254
LONG_LABEL = "c" * 64

CLASS_CASES = [
    # old, new, code, subject, line, column, message starts with
    ("    provider: EKS", "    provider: EKS\n    provider: EKS", "DuplicateKey", "class/l4", 8, 5, "the key 'provider'"),
    ("spec:\n", "spec:\n  descripton: x\n", "UnknownField", "class/l4", 6, 3, "spec.descripton: there is no such field; the nearest is description"),
    ("spec:\n", "spec:\n  description: 5\n", "WrongType", "class/l4", 6, 3, "spec.description: expected a text, and got the number 5"),
    ("        count: 1\n", "        count: one\n", "WrongType", "class/l4", 12, 9, "spec.provisioning.eks.accelerator.count: expected an integer, and got the text 'one'"),
    ("        count: 1\n", "        count: 17\n", "InvalidValue", "class/l4", 12, 9, "spec.provisioning.eks.accelerator.count: expected at most 16"),
    ("      instanceType: g6.xlarge\n", "", "MissingField", "class/l4", 8, 5, "spec.provisioning.eks.instanceType: this field is required"),
    ("provider: EKS", "provider: Eks", "InvalidValue", "class/l4", 7, 5, "spec.provisioning.provider: expected one of GKE, EKS, AKS, Nebius, Vultr, Civo, and got 'Eks'"),
    ("provider: EKS", "provider: GKE", "RuleViolated", "class/l4", 6, 3, "spec.provisioning: provider is GKE, so gke must be set"),
    ("    deviceClassName: gpu.nvidia.com\n", "", "RuleViolated", "class/l4", 14, 5, "spec.devices[0]: device 'gpu' has claim DRA, so deviceClassName must be set"),
    ("23034Mi", "23GB", "InvalidQuantity", "class/l4", 20, 16, "spec.devices[0].capacity.memory.value: a Kubernetes quantity"),
    ('"8.9.0"', '"8.9"', "InvalidVersion", "class/l4", 18, 31, "spec.devices[0].attributes.cudaComputeCapability.version: a version attribute"),
    ('version: "8.9.0"', 'version: "8.9.0", int: 3', "RuleViolated", "class/l4", 18, 7, "spec.devices[0].attributes.cudaComputeCapability: set exactly one of string, version, bool and int; version and int is set"),
    ('{version: "8.9.0"}', "{}", "RuleViolated", "class/l4", 18, 7, "spec.devices[0].attributes.cudaComputeCapability: set exactly one of string, version, bool and int; none is set"),
    ("  - name: gpu\n", "  - name: gpu\n    driver: a\n    claim: Synthetic\n  - name: gpu\n", "RuleViolated", "class/l4", 17, 5, "spec.devices[1].name: the entry 'gpu' stands in the list twice"),
    ("  name: l4", "  name: L4", "InvalidName", "class/L4", 4, 3, "metadata.name: a name is lowercase letters"),
    ("  name: l4", f"  name: {LONG_SUBDOMAIN}", "InvalidName", f"class/{LONG_SUBDOMAIN}", 4, 3, "metadata.name: a name has at most 253 characters, and this one has 254"),
    ("  name: l4", "  name: l4\n  lables: {a: b}", "UnknownField", "class/l4", 5, 3, "metadata.lables: there is no such field; the nearest is labels"),
    ("kind: InferenceClass", "kind: InferenceClas", "UnknownKind", "InferenceClas/l4", 2, 1, "kind: modelplane.ai/v1alpha1 has no kind InferenceClas; the nearest is InferenceClass"),
    ("v1alpha1", "v1beta1", "UnknownKind", "InferenceClass/l4", 1, 1, "apiVersion: InferenceClass is of modelplane.ai/v1alpha1, and not of modelplane.ai/v1beta1"),
    ("modelplane.ai/", "modelplan.ai/", "UnknownKind", "InferenceClass/l4", 1, 1, "apiVersion: InferenceClass is of modelplane.ai/v1alpha1, and not of modelplan.ai/v1alpha1"),
    ("  name: l4", "  name: 4", "NotAnObject", "file/f.yaml", 4, 3, "metadata.name is missing or isn't a text"),
    ("kind: InferenceClass\n", "", "NotAnObject", "file/f.yaml", 1, 1, "kind is missing"),
    ("kind: InferenceClass", "kind: 7", "NotAnObject", "file/f.yaml", 2, 1, "kind: expected a text, and got 7"),
]  # fmt: skip

CLUSTER_CASES = [
    ("  nodePools:\n", "  nodePools\n", "InvalidYaml", "file/f.yaml", 13, 3, "while scanning a simple key could not find expected ':'"),
    ("    className: l4\n", "", "MissingField", "pool/west/gpu", 14, 5, "spec.nodePools[0].className: this field is required"),
    ("    className: l4", "    classname: l4\n    className: l4", "UnknownField", "pool/west/gpu", 15, 5, "spec.nodePools[0].classname: there is no such field; the nearest is className"),
    ("    className: l4", "    class_name: l4\n    className: l4", "UnknownField", "pool/west/gpu", 15, 5, "spec.nodePools[0].class_name: there is no such field; the nearest is className"),
    ("nodeCount: 1\n    min", "nodeCount: -1\n    min", "InvalidValue", "pool/west/gpu", 16, 5, "spec.nodePools[0].nodeCount: expected at least 0"),
    ("nodeCount: 1\n    min", "nodeCount: 1.5\n    min", "WrongType", "pool/west/gpu", 16, 5, "spec.nodePools[0].nodeCount: expected an integer, and got the number 1.5"),
    ("nodeCount: 1\n    min", "nodeCount: yes\n    min", "WrongType", "pool/west/gpu", 16, 5, "spec.nodePools[0].nodeCount: expected an integer, and got true"),
    ("zones: [us-west-2a]", "zones: us-west-2a", "WrongType", "pool/west/gpu", 19, 5, "spec.nodePools[0].zones: expected a list, and got the text 'us-west-2a'"),
    ("[us-west-2a]", "[us-west-2a, 2]", "WrongType", "pool/west/gpu", 19, 25, "spec.nodePools[0].zones[1]: expected a text, and got the number 2"),
    ("  - name: gpu", f"  - name: {LONG}", "InvalidName", f"pool/west/{LONG}", 14, 5, "spec.nodePools[0].name: this name has at most 40 characters, and it has 41"),
    ("  - name: gpu", "  - name: gpu_1", "InvalidName", "pool/west/gpu_1", 14, 5, "spec.nodePools[0].name: this name is lowercase letters"),
    ("  - name: gpu", "  - name: system", "InvalidName", "pool/west/system", 14, 5, "spec.nodePools[0].name: 'system' is the name of the pool"),
    ("  name: west", f"  name: {LONG_LABEL}", "InvalidName", f"cluster/{LONG_LABEL}", 4, 3, "metadata.name: this name becomes a label value of at most 63 characters, and it has 64"),
    ("    tier: prod", "    tier: 1", "WrongType", "cluster/west", 6, 5, "metadata.labels.tier: expected a text, and got the number 1"),
    ('"1.36"', "1.36", "WrongType", "cluster/west", 12, 7, "spec.cluster.eks.kubernetesVersion: expected a text, and got the number 1.36"),
    ('"1.36"', '"1.36.1"', "InvalidVersion", "cluster/west", 12, 7, "spec.cluster.eks.kubernetesVersion: EKS takes a minor version such as 1.36, and not '1.36.1'"),
    ("source: EKS", "source: GKE", "RuleViolated", "cluster/west", 8, 3, "spec.cluster: source is GKE, so gke must be set"),
    ("    source: EKS\n", "", "MissingField", "cluster/west", 8, 3, "spec.cluster.source: this field is required"),
    ("    zones: [us-west-2a]", "    capacityBlock: {capacityReservationId: cr-xyz}", "InvalidValue", "pool/west/gpu", 19, 21, "spec.nodePools[0].capacityBlock.capacityReservationId: expected cr- and hexadecimal digits"),
    ("    zones: [us-west-2a]", "    fabric: {infiniband: {fabric: f}}", "RuleViolated", "pool/west/gpu", 19, 5, "spec.nodePools[0].fabric: infiniband goes with type InfiniBand only, and type is None"),
    ("  nodePools:\n", "  taints:\n  - {key: a, effect: NoSchedule}\n  - {key: a, effect: NoSchedule}\n  nodePools:\n", "RuleViolated", "cluster/west", 15, 6, "spec.taints[1].key: the taint a:NoSchedule stands in the list twice"),
    ("    className: l4", "    className: l5", "ClassNotFound", "pool/west/gpu", 15, 5, "spec.nodePools[0].className: no manifest holds the class 'l5'"),
    ("nodeCount: 1\n    min", "nodeCount: 5\n    min", "CountOutOfBounds", "pool/west/gpu", 16, 5, "spec.nodePools[0].nodeCount: the count 5 is over maxNodeCount 4"),
    ("nodeCount: 1\n    min", "nodeCount: 0\n    min", "CountOutOfBounds", "pool/west/gpu", 16, 5, "spec.nodePools[0].nodeCount: the count 0 is under minNodeCount 1"),
    ("minNodeCount: 1", "minNodeCount: 5", "CountOutOfBounds", "pool/west/gpu", 17, 5, "spec.nodePools[0].minNodeCount: the least count 5 is over the greatest, maxNodeCount 4"),
    ("source: EKS\n    eks:\n", "source: Civo\n    civo:\n", "InvalidVersion", "cluster/west", 12, 7, "spec.cluster.civo.kubernetesVersion: Civo takes the exact version such as 1.34.1-k3s1, and not '1.36'"),
]  # fmt: skip

EXISTING_CASES = [
    ("        kind: GPU\n", "        kind: GPU\n      - driver: gpu.example.com\n        kind: CPU\n", "ExternalDriverClash", "cluster/lab", 13, 9, "spec.cluster.existing.externalDrivers[1].driver: the driver 'gpu.example.com' is declared external twice"),
    ("kind: GPU", "kind: TPU", "InvalidValue", "cluster/lab", 12, 9, "spec.cluster.existing.externalDrivers[0].kind: expected one of GPU, CPU, Other, and got 'TPU'"),
    ("taint: example.com/gpu", "taint: example.com/gpu=x:NoSchedule", "InvalidValue", "cluster/lab", 13, 9, "spec.cluster.existing.externalDrivers[0].taint: give the taint's key alone"),
    ("      secretRef: {name: lab-kubeconfig}\n", "", "MissingField", "cluster/lab", 8, 5, "spec.cluster.existing.secretRef: this field is required"),
]  # fmt: skip

DEPLOYMENT_CASES = [
    ("replicas: 1", "replicas: 11", "InvalidValue", "deployment/ml/qwen", 7, 3, "spec.replicas: expected at most 10"),
    ("  replicas: 1\n", "", "MissingField", "deployment/ml/qwen", 6, 1, "spec.replicas: this field is required"),
    ("device.driver ==", "device.driver =", "InvalidSelector", "deployment/ml/qwen", 18, 17, "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel: the selector"),
    ('cel: device.driver == "gpu.nvidia.com"', "{}", "RuleViolated", "deployment/ml/qwen", 18, 17, "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors[0]: an empty selector"),
    ("openai:v0.23.0", "openai", "ImageWithoutTag", "deployment/ml/qwen", 23, 17, "spec.template.spec.engines[0].members[0].template.spec.containers[0].image: 'vllm/vllm-openai' has neither tag nor digest"),
    ("role: Standalone", "role: Standalone\n          worker: {nodes: 1}", "RuleViolated", "deployment/ml/qwen", 14, 11, "spec.template.spec.engines[0].members[0].worker: worker goes with role Worker only"),
    ("role: Standalone", "role: Leader", "RuleViolated", "deployment/ml/qwen", 12, 9, "spec.template.spec.engines[0].members: an engine is a single Standalone member"),
    ("- name: engine", "- name: vllm", "RuleViolated", "deployment/ml/qwen", 22, 17, "spec.template.spec.engines[0].members[0].template.spec.containers[0].name: the container must be named 'engine'"),
    ("image: vllm/vllm-openai:v0.23.0", "image: vllm/vllm-openai:v0.23.0\n                env: [{name: TOKEN, value: 1234}]", "WrongType", "deployment/ml/qwen", 24, 37, "spec.template.spec.engines[0].members[0].template.spec.containers[0].env[0].value: expected a text, and got a number"),
    ("    spec:\n      engines", "    metadata: {labels: {modelplane.ai/pool: x}}\n    spec:\n      engines", "RuleViolated", "deployment/ml/qwen", 9, 25, 'spec.template.metadata.labels["modelplane.ai/pool"]: label keys under modelplane.ai/ are reserved'),
    ("    spec:\n      engines", "    metadata: {labels: {-a: x}}\n    spec:\n      engines", "RuleViolated", "deployment/ml/qwen", 9, 25, "spec.template.metadata.labels.-a: a key is an optional DNS prefix"),
    ("    spec:\n      engines", "    metadata: {labels: {a: x y}}\n    spec:\n      engines", "RuleViolated", "deployment/ml/qwen", 9, 25, "spec.template.metadata.labels.a: a label value is up to 63 letters"),
    ("      engines:\n", "      serving: {mode: PrefillDecode}\n      engines:\n", "RuleViolated", "deployment/ml/qwen", 11, 7, "spec.template.spec.engines: PrefillDecode takes two engines"),
    ("      - name: qwen\n", "      - name: qwen\n        phase: Decode\n", "RuleViolated", "deployment/ml/qwen", 12, 9, "spec.template.spec.engines[0].phase: phase goes with serving.mode PrefillDecode only"),
    ("      engines:\n", "      tolerations: [{operator: Exists, value: x}]\n      engines:\n", "RuleViolated", "deployment/ml/qwen", 10, 40, "spec.template.spec.tolerations[0].value: a toleration with operator Exists must not set value"),
    ("      engines:\n", "      tolerations: [{value: x}]\n      engines:\n", "RuleViolated", "deployment/ml/qwen", 10, 21, "spec.template.spec.tolerations[0]: a toleration with operator Equal must set key"),
]  # fmt: skip

CASES = [
    *((CLASS, *case) for case in CLASS_CASES),
    *((CLUSTER, *case) for case in CLUSTER_CASES),
    *((EXISTING, *case) for case in EXISTING_CASES),
    *((DEPLOYMENT, *case) for case in DEPLOYMENT_CASES),
]


@pytest.mark.parametrize(
    ("text", "old", "new", "code", "subject", "line", "column", "message"),
    CASES,
    ids=[f"{case[3]}-{case[4][:40]}-{number}" for number, case in enumerate(CASES)],
)
def test_one_wrong_line_is_one_finding_at_its_place(text, old, new, code, subject, line, column, message):
    files = [("f.yaml", changed(text, old, new).encode())]
    if text is CLUSTER:
        files.append(("class.yaml", CLASS.encode()))
    found = build_fleet(files).findings

    first = next((f for f in found if f.code == code and f.subject == subject and f.message.startswith(message)), None)
    assert first is not None, found
    assert first.place == Place("f.yaml", line, column)
    assert first.fix


@pytest.mark.parametrize("text", [CLASS, CLUSTER, EXISTING, DEPLOYMENT])
def test_the_manifests_that_the_cases_change_are_clean(text):
    files = [("f.yaml", text.encode())] + ([("class.yaml", CLASS.encode())] if text is CLUSTER else [])
    assert build_fleet(files).findings == ()


WHOLE_FILES = [
    # bytes, code, line, column
    (b"a: 1\nb: [1\n", "InvalidYaml", 3, 1),
    (b"a: *b\n", "InvalidYaml", 1, 4),
    (b"a: &a [*a]\n", "InvalidYaml", 1, 8),
    (b"a: \x00\n", "InvalidYaml", 1, 4),
    (b"a: \xc3\xa9\nb: \xc3\xa9\x07\n", "InvalidYaml", 2, 5),
    (b"a: !thing 1\n", "InvalidYaml", 1, 4),
    (b"a: !!int x\n", "InvalidYaml", 1, 4),
    (b"[a]: 1\n", "InvalidYaml", 1, 1),
    (b"~: 1\n", "InvalidYaml", 1, 1),
    (b"<<: 1\n", "InvalidYaml", 1, 5),
    (b"a: 1\nb: 2\na: 3\n", "DuplicateKey", 3, 1),
    (b"1: a\n'1': b\n", "DuplicateKey", 2, 1),
    (b"a: {b: .nan}\n", "InvalidValue", 1, 8),
    (b"a: 1e999\n", "InvalidValue", 1, 4),
    (b"a: " + b"[" * 101 + b"]" * 101 + b"\n", "NestedTooDeep", 1, 103),
    (b"[" * 5000, "NestedTooDeep", 1, 1001),
    (b"ok: 1\nbad: \xff\n", "NotUtf8", 2, 6),
    (b"\xff\xfea\x00", "NotUtf8", 1, 1),
    (b"---\na: b\n---\nb: '" + b"x" * 4 * 1024 * 1024 + b"'\n", "ManifestTooLarge", 3, 1),
    (b"- a\n- b\n", "NotAnObject", 1, 1),
    (b"# only a word\nword\n", "NotAnObject", 2, 1),
    (b"kind: InferenceClass\n", "NotAnObject", 1, 1),
    (b"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n", "NotAnObject", 4, 3),
]


@pytest.mark.parametrize(("data", "code", "line", "column"), WHOLE_FILES, ids=[str(c[0][:20]) for c in WHOLE_FILES])
def test_a_file_that_is_no_manifest_is_a_finding_at_its_place(data, code, line, column):
    found = [f for f in build_fleet([("f.yaml", data)]).findings if f.code == code]
    assert [(f.subject, f.place) for f in found] == [("file/f.yaml", Place("f.yaml", line, column))]


def test_aliases_that_explode_are_refused():
    names = "abcdefgh"
    rows = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    rows += [f"{b}: &{b} [{','.join(['*' + a] * 10)}]" for a, b in pairwise(names)]
    found = build_fleet([("bomb.yaml", "\n".join(rows).encode())]).findings
    # Line 4 stands for ten lists of 1,111 nodes; lines 2 and 3 have used 110 and 1,110 of the 10,000.
    assert [(f.code, f.place) for f in found] == [("TooManyAliases", Place("bomb.yaml", 4, 29))]


def test_long_texts_behind_aliases_count_by_their_length():
    data = b"a: &a " + b"x" * 1_000_000 + b"\nb: [" + b",".join([b"*a"] * 1000) + b"]\n"
    assert [f.code for f in build_fleet([("f.yaml", data)]).findings] == ["TooManyAliases"]


def test_a_syntax_error_costs_its_own_document_alone():
    data = (CLASS + "---\na: [1\n---\n" + changed(CLASS, "name: l4", "name: l5")).encode()
    fleet = build_fleet([("f.yaml", data)])
    assert sorted(fleet.classes) == ["l4", "l5"]
    # The error shows where the next marker cuts the document off.
    assert [(f.code, f.place) for f in fleet.findings] == [("InvalidYaml", Place("f.yaml", 23, 1))]


def test_all_errors_of_an_object_are_reported():
    text = changed(CLUSTER, "    nodeCount: 1\n", "    nodeCount: x\n    node: 1\n")
    text = changed(text, "  name: west", "  name: West")
    found = build_fleet([("f.yaml", text.encode())]).findings
    assert sorted((f.code, f.subject, f.place.line) for f in found) == [
        ("InvalidName", "cluster/West", 4),
        ("UnknownField", "pool/West/gpu", 17),
        ("WrongType", "pool/West/gpu", 16),
    ]


def test_an_object_of_countless_errors_reports_two_hundred_and_how_many_more():
    text = changed(CLUSTER, "[us-west-2a]", f"[{', '.join(['1'] * 1000)}]")
    found = build_fleet([("f.yaml", text.encode())]).findings
    assert len(found) == 201
    assert [f.message for f in found if f.code == "InvalidValue"] == [
        "spec.nodePools[0].zones[200]: 800 more findings of this object aren't shown"
    ]


def test_an_image_warning_leaves_the_deployment_in_the_fleet():
    fleet = build_fleet([("f.yaml", changed(DEPLOYMENT, "openai:v0.23.0", "openai").encode())])
    assert [f.severity for f in fleet.findings] == [Severity.WARNING]
    assert list(fleet.deployments) == [("ml", "qwen")]
    assert dict(fleet.broken) == {}


@pytest.mark.parametrize(
    "image", ["vllm:1", "host:5000/vllm:1", "vllm@sha256:0123456789abcdef", "host:5000/a/vllm@sha256:0123456789abcdef"]
)
def test_an_image_with_a_tag_or_digest_is_fine(image):
    text = changed(DEPLOYMENT, "vllm/vllm-openai:v0.23.0", image)
    assert build_fleet([("f.yaml", text.encode())]).findings == ()


def test_a_port_is_no_tag():
    text = changed(DEPLOYMENT, "vllm/vllm-openai:v0.23.0", "host:5000/vllm")
    assert [f.code for f in build_fleet([("f.yaml", text.encode())]).findings] == ["ImageWithoutTag"]
