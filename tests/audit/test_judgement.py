"""All audits of one cluster together: what couldn't be read is told once for each reason, however many audits missed it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelplane_dagster.cluster_plan import ClusterPlan
from modelplane_dagster.judgement import judge_live
from modelplane_dagster.known import Unknown
from modelplane_dagster.observed import ObservedCluster
from modelplane_dagster.plan import plan_fleet
from tests.audit.worlds import live, node
from tests.made import cls, cluster, fleet, nvidia, pool

DOWN = Unknown("Cluster c: the API doesn't answer (TimeoutError).")


def planned() -> ClusterPlan:
    return plan_fleet(fleet(cls("k", nvidia()), cluster("c", "Existing", pool("p", "k")))).clusters[0]


@pytest.mark.parametrize(
    ("unread", "told"),
    [
        (
            {part: DOWN for part in ("nodes", "workloads", "pods", "slices", "device_classes", "quotas")},
            [
                (
                    "The nodes, workloads, pods, slices and device classes of cluster c are unknown: Cluster c: the API "
                    "doesn't answer (TimeoutError)."
                )
            ],
        ),
        ({"nodes": DOWN}, ["The nodes of cluster c are unknown: Cluster c: the API doesn't answer (TimeoutError)."]),
        (
            {"nodes": DOWN, "pods": Unknown("forbidden")},
            [
                "The nodes of cluster c are unknown: Cluster c: the API doesn't answer (TimeoutError).",
                "The pods of cluster c are unknown: forbidden.",
            ],
        ),
    ],
)
def test_each_reason_is_told_once(unread: dict[str, Unknown], told: list[str]) -> None:
    reading = replace(live((node("n"),)), **unread)
    judged = judge_live(planned(), ObservedCluster(name="c", live=reading), grace=0.0)
    for found in (judged.findings, judged.of_pool("p")):
        assert [(f.subject, f.message) for f in found if f.code == "ReadFailed"] == [
            ("cluster/c", text) for text in told
        ]


def test_what_was_read_tells_none() -> None:
    judged = judge_live(planned(), ObservedCluster(name="c", live=live((node("n"),))), grace=0.0)
    assert [f for f in judged.findings if f.code == "ReadFailed"] == []
