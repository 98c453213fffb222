"""Why a replica isn't ready, in the scheduler's words, from what one observation read."""

from typing import Any

from modelplane_dagster.audit.live import LivePod
from modelplane_dagster.observed import ObservedReplica
from resources.observe import replicas_from

LABELS = {
    "modelplane.ai/deployment-namespace": "ml",
    "modelplane.ai/deployment": "qwen",
    "modelplane.ai/replica": "0",
    "modelplane.ai/engine": "engine",
}
ENGINE = {
    "metadata": {"labels": LABELS, "annotations": {"modelplane.ai/digest": "sha256:1"}},
    "spec": {"replicas": 2, "template": {"spec": {"nodeSelector": {"modelplane.ai/pool": "cpu"}}}},
    "status": {"readyReplicas": 1},
}
SENTENCE = "0/3 nodes are available: 1 cannot allocate all claims, 2 node(s) didn't match Pod's node affinity/selector."


class Api:
    """One engine's Deployment, and no LeaderWorkerSets."""

    def list(self, api_version: str, kind: str, *, labels: str = "", namespace: str = "") -> list[dict[str, Any]]:
        return [ENGINE] if kind == "Deployment" else []

    def serves(self, api_version: str, kind: str) -> bool:
        return False


def pod(**more: Any) -> LivePod:
    return LivePod(namespace="ml", name="p", **{"replica": ("ml", "qwen", "0"), "waits": SENTENCE, **more})


def replica(waits: str) -> tuple[ObservedReplica, ...]:
    pools = {"engine/Standalone": "cpu"}
    return (
        ObservedReplica(
            namespace="ml", deployment="qwen", pools=pools, ready=1, desired=2, digest="sha256:1", waits=waits
        ),
    )


def test_the_pod_that_no_node_takes_tells_why() -> None:
    assert replicas_from(Api(), [pod(replica=None), pod()]) == replica(SENTENCE)


def test_pods_with_a_node_of_others_or_on_their_way_out_tell_nothing() -> None:
    others = [pod(waits="", node="cpu-0"), pod(replica=("ml", "other", "0")), pod(terminating=True)]
    assert replicas_from(Api(), others) == replica("")


def test_without_pods_to_read_nothing_is_said() -> None:
    assert replicas_from(Api()) == replica("")
