"""A fleet: cross references, duplicates, kinds that aren't acted on, digests and places."""

from __future__ import annotations

import pytest

from modelplane_dagster.findings import Place, Severity
from modelplane_dagster.manifests.fleet import build_fleet
from modelplane_dagster.manifests.provider_configs import ProviderConfig, SecretRef
from tests.manifests.texts import CLASS, CLUSTER, DEPLOYMENT, EXISTING, changed

BYO_CLASS = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: byo}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com}
"""
EXISTING_POOL = EXISTING + "  nodePools:\n  - {name: gpu, className: l4}\n"
SERVICE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: qwen, namespace: ml}
spec:
  endpoints:
  - selector: {matchLabels: {app: qwen}}
"""
CONFIG = """\
apiVersion: gcp.m.upbound.io/v1beta1
kind: ClusterProviderConfig
metadata: {name: default}
spec:
  projectID: my-project
  credentials:
    source: Secret
    secretRef: {namespace: system, name: gcp, key: credentials}
"""


def fleet(*texts, names=None):
    return build_fleet([((names or {}).get(i, f"f{i}.yaml"), text.encode()) for i, text in enumerate(texts)])


def summary(found):
    return [(f.code, f.severity.value, f.subject, f.place) for f in found]


def test_every_kind_lands_in_its_mapping():
    built = fleet(CLASS, CLUSTER, EXISTING, DEPLOYMENT, CONFIG)
    assert list(built.classes) == ["l4"]
    assert list(built.clusters) == ["lab", "west"]
    assert list(built.deployments) == [("ml", "qwen")]
    assert built.provider_configs == (
        ProviderConfig("GKE", "default", project="my-project", secret=SecretRef("system", "gcp", "credentials"), source="Secret"),
    )  # fmt: skip
    assert built.findings == ()
    assert dict(built.broken) == {}


def test_a_missing_class_is_an_error_of_that_cluster_alone():
    built = fleet(
        CLASS, CLUSTER, changed(changed(CLUSTER, "name: west", "name: east"), "className: l4", "className: l40")
    )
    (found,) = built.findings
    assert summary([found]) == [("ClassNotFound", "error", "pool/east/gpu", Place("f2.yaml", 15, 5))]
    assert found.fix == "Write l4, or add the class l40."
    assert built.cluster_findings("east") == (found,)
    assert built.cluster_findings("west") == ()
    assert sorted(built.clusters) == ["east", "west"]
    assert dict(built.broken) == {}


def test_an_invalid_class_is_broken_and_its_cluster_says_so():
    built = fleet(changed(CLASS, "23034Mi", "a lot"), CLUSTER)
    assert summary(built.findings) == [
        ("InvalidQuantity", "error", "class/l4", Place("f0.yaml", 20, 16)),
        ("ClassInvalid", "error", "pool/west/gpu", Place("f1.yaml", 15, 5)),
    ]
    assert {key: [f.code for f in found] for key, found in built.broken.items()} == {
        ("InferenceClass", "l4"): ["InvalidQuantity"]
    }
    assert list(built.classes) == []


def test_a_broken_cluster_is_named_and_the_rest_loads():
    built = fleet(CLASS, changed(CLUSTER, "region:", "regoin:"), changed(CLUSTER, "name: west", "name: east"))
    assert list(built.clusters) == ["east"]
    assert [f.code for f in built.broken["InferenceCluster", "west"]] == ["MissingField", "UnknownField"]
    assert built.cluster_findings("west") == built.broken["InferenceCluster", "west"]


def test_a_duplicate_key_breaks_the_object_that_holds_it():
    built = fleet(CLASS, changed(CLUSTER, "    source: EKS\n", "    source: EKS\n    source: GKE\n"))
    assert [f.subject for f in built.broken["InferenceCluster", "west"]] == ["cluster/west"]
    assert list(built.clusters) == []


def test_a_class_of_another_provider_is_refused():
    gke = changed(
        CLUSTER,
        'source: EKS\n    eks:\n      region: us-west-2\n      kubernetesVersion: "1.36"',
        "source: GKE\n    gke: {region: a}",
    )
    built = fleet(CLASS, gke)
    assert summary(built.findings) == [("ProviderMismatch", "error", "pool/west/gpu", Place("f1.yaml", 13, 5))]


def test_an_existing_cluster_ignores_a_provisioning_block_with_a_warning():
    built = fleet(CLASS, EXISTING_POOL)
    assert summary(built.findings) == [("ProviderMismatch", "warning", "pool/lab/gpu", Place("f1.yaml", 15, 17))]
    assert list(built.clusters) == ["lab"]


def test_an_existing_cluster_takes_a_class_without_provisioning():
    assert fleet(BYO_CLASS, changed(EXISTING_POOL, "l4", "byo")).findings == ()


def test_a_provisioned_cluster_needs_the_provisioning_block():
    built = fleet(BYO_CLASS, changed(CLUSTER, "className: l4", "className: byo"))
    assert summary(built.findings) == [("ProvisioningMissing", "error", "pool/west/gpu", Place("f1.yaml", 15, 5))]


def test_a_count_that_is_not_given_starts_within_its_bounds():
    text = changed(changed(CLUSTER, "    nodeCount: 1\n", ""), "minNodeCount: 1", "minNodeCount: 3")
    built = fleet(CLASS, text)
    assert built.findings == ()
    pool = built.clusters["west"].pool("gpu")
    assert (pool.node_count, pool.start_count) == (1, 3)


def test_the_same_object_twice_is_one_however_it_is_written():
    other = changed(CLUSTER, "    nodeCount: 1\n    minNodeCount: 1\n", "    minNodeCount: 1\n    nodeCount: 1 # one\n")
    other = changed(other, "  nodePools:\n", "  taints:\n  nodePools:\n")
    built = fleet(CLASS, CLUSTER, other, CLASS)
    assert built.findings == ()
    assert built.digest == fleet(CLASS, CLUSTER).digest


def test_two_different_objects_of_one_name_are_both_left_alone_and_both_places_are_named():
    other = changed(CLUSTER, "nodeCount: 1\n    min", "nodeCount: 2\n    min")
    built = fleet(CLASS, CLUSTER, "# one line down\n" + other)
    (found,) = built.findings
    assert summary([found]) == [("DuplicateName", "error", "cluster/west", Place("f2.yaml", 5, 3))]
    assert found.message == "f1.yaml:4 and f2.yaml:5 describe it differently, so neither is acted on"
    assert list(built.clusters) == []
    assert dict(built.broken) == {("InferenceCluster", "west"): (found,)}


def test_one_name_in_two_namespaces_is_two_deployments():
    built = fleet(DEPLOYMENT, changed(DEPLOYMENT, "  namespace: ml\n", ""))
    assert sorted(built.deployments) == [("default", "qwen"), ("ml", "qwen")]


def test_broken_deployments_are_keyed_with_their_namespace():
    built = fleet(changed(DEPLOYMENT, "replicas: 1", "replicas: 0"))
    assert list(built.broken) == [("ModelDeployment", "ml/qwen")]


def test_kinds_that_are_not_acted_on_are_reported_once_a_kind():
    built = fleet(SERVICE, changed(SERVICE, "name: qwen", "name: other"))
    assert [(f.code, f.severity, f.message) for f in built.findings] == [
        ("NotActedOn", Severity.INFO, "2 objects of kind ModelService of modelplane.ai/v1alpha1: not acted on")
    ]


def test_kinds_that_are_not_acted_on_are_validated():
    built = fleet(changed(SERVICE, "matchLabels:", "matchLabel:"))
    assert [f.code for f in built.findings] == ["MissingField", "UnknownField", "NotActedOn"]


FOREIGN = [
    ("v1", "Namespace", "ForeignKind"),
    ("infrastructure.modelplane.ai/v1alpha1", "ServingStack", "ForeignKind"),
    ("modelplane.ai/v1alpha1", "ModelReplica", "ForeignKind"),
    ("modelplane.ai/v1alpha1", "MetricMapping", "NotActedOn"),
    ("helm.m.crossplane.io/v1beta1", "ClusterProviderConfig", "ForeignKind"),
]


@pytest.mark.parametrize(("api_version", "kind", "code"), FOREIGN)
def test_other_kinds_are_skipped_with_one_notice_a_kind(api_version, kind, code):
    text = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{anything: [1]}}\n"
    built = fleet(text, text.replace("name: a", "name: b"))
    assert summary(built.findings) == [(code, "info", f"{kind}/a", Place("f0.yaml", 1, 1))]


def test_the_items_of_a_list_are_objects_with_places_of_their_own():
    items = "".join("- " + text.replace("\n", "\n  ").rstrip() + "\n" for text in (CLASS, CLUSTER))
    built = fleet("apiVersion: v1\nkind: List\nitems:\n" + changed(items, "className: l4", "className: l5"))
    assert summary(built.findings) == [("ClassNotFound", "error", "pool/west/gpu", Place("f0.yaml", 38, 7))]


def test_status_and_what_a_server_sets_are_accepted():
    text = changed(CLUSTER, "  name: west\n", "  name: west\n  uid: x\n  generation: 3\n  managedFields: [{a: b}]\n")
    built = fleet(CLASS, text + "status: {gpuPools: 7, schedulablePools: []}\n")
    assert built.findings == ()
    assert built.digest == fleet(CLASS, CLUSTER).digest


def test_a_null_counts_as_absent_where_the_field_exists():
    text = changed(CLUSTER, "    zones: [us-west-2a]", "    zones:\n    fabric: null\n    fabrik: null")
    built = fleet(CLASS, text)
    assert [(f.code, f.message) for f in built.findings] == [
        ("UnknownField", "spec.nodePools[0].fabrik: there is no such field; the nearest is fabric")
    ]
    assert fleet(CLASS, changed(text, "    fabrik: null\n", "")).clusters["west"].pool("gpu").zones == ()


def test_the_digest_depends_on_content_alone():
    one = fleet(CLASS, CLUSTER, DEPLOYMENT)
    other = fleet(DEPLOYMENT, CLUSTER + "---\n" + CLASS, names={0: "z.yaml", 1: "a.yaml"})
    assert one.digest == other.digest
    assert one.digest.startswith("sha256:")
    assert len(one.digest) == 71
    assert one.digest != fleet(CLASS, CLUSTER).digest
    assert one.digest != fleet(changed(CLASS, "count: 1", "count: 2"), CLUSTER, DEPLOYMENT).digest


def test_broken_content_counts_in_the_digest():
    broken = changed(CLUSTER, "region:", "regoin:")
    assert fleet(broken).digest != fleet(changed(broken, "tier: prod", "tier: dev")).digest
    assert fleet("a: [1\n").digest != fleet("a: [2\n").digest


def test_a_cluster_digest_covers_the_cluster_and_its_classes_and_no_other_cluster():
    east = changed(CLUSTER, "name: west", "name: east")
    one = fleet(CLASS, CLUSTER, east)
    assert one.cluster_digest("west") == fleet(CLASS, CLUSTER).cluster_digest("west")
    assert one.cluster_digest("west") != one.cluster_digest("east")
    wider = fleet(changed(CLASS, "count: 1", "count: 2"), CLUSTER)
    assert one.cluster_digest("west") != wider.cluster_digest("west")
    assert one.cluster_digest("west") != fleet(CLUSTER).cluster_digest("west")


def test_a_cluster_digest_covers_its_own_account_alone():
    aws = CONFIG.replace("gcp.m", "aws.m")
    without = fleet(CLASS, CLUSTER).cluster_digest("west")
    assert fleet(CLASS, CLUSTER, CONFIG).cluster_digest("west") == without
    assert fleet(CLASS, CLUSTER, aws).cluster_digest("west") != without


def test_places_of_objects_and_their_fields():
    built = fleet(CLASS, CLUSTER, DEPLOYMENT)
    assert built.place("InferenceCluster", "west") == Place("f1.yaml", 1, 1)
    assert built.place("InferenceCluster", "west", ("spec", "nodePools", 0)) == Place("f1.yaml", 14, 5)
    assert built.place("InferenceClass", "l4", ("spec", "devices", 0, "driver")) == Place("f0.yaml", 15, 5)
    assert built.place("ModelDeployment", "qwen", namespace="ml") == Place("f2.yaml", 1, 1)
    assert built.place("ModelDeployment", "qwen") is None
    assert built.place("InferenceCluster", "east") is None


CONFIGS = [
    ("aws.m.upbound.io/v1beta1", "EKS"),
    ("gcp.m.upbound.io/v1beta1", "GKE"),
    ("azure.m.upbound.io/v1beta1", "AKS"),
    ("nebius.m.upbound.io/v1beta1", "Nebius"),
    ("vultr.m.upbound.io/v1beta1", "Vultr"),
    ("civo.m.upbound.io/v1beta1", "Civo"),
    ("civo.crossplane.io/v1alpha1", "Civo"),
]


@pytest.mark.parametrize(("api_version", "provider"), CONFIGS)
def test_provider_configs_are_read_leniently(api_version, provider):
    text = f"""\
apiVersion: {api_version}
kind: ProviderConfig
metadata: {{name: prod, namespace: team, finalizers: [x]}}
spec:
  anything: [1]
  subscriptionID: s-1
  credentials: {{source: Environment}}
"""
    built = fleet(text)
    assert built.findings == ()
    assert built.provider_configs == (
        ProviderConfig(provider, "prod", subscription="s-1", source="Environment", kind="ProviderConfig", namespace="team"),
    )  # fmt: skip


def test_two_different_provider_configs_of_one_name_are_both_left_alone():
    built = fleet(CONFIG, changed(CONFIG, "my-project", "other"))
    assert summary(built.findings) == [
        ("DuplicateName", "error", "ClusterProviderConfig/GKE/default", Place("f1.yaml", 3, 12))
    ]
    assert built.provider_configs == ()


def test_what_reading_found_is_passed_on():
    found = fleet(CLASS, changed(CLUSTER, "region:", "regoin:")).findings[0]
    assert build_fleet([], [found]).findings == (found,)
