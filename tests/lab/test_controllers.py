"""The controllers on a store without HTTP and without waiting: `run` goes on until nothing is due any more."""

from __future__ import annotations

import asyncio
import json

import pytest

from resources.lab.api.bootstrap import bootstrap
from resources.lab.api.storage import Storage
from resources.lab.api.store import Store
from resources.lab.api.switches import Switches
from resources.lab.controllers import _all
from resources.lab.controllers.engine import Engine


class Lab:
    def __init__(self, version="v1.36.3", **switches) -> None:
        self.store = Store(Switches(version, **switches), Storage())
        bootstrap(self.store)
        self.now = 0.0
        self.engine = Engine(self.store, _all, clock=lambda: self.now)

    def run(self, until=60.0) -> None:
        while True:
            while self.engine.work():
                pass
            self.store.lifecycle.drain()
            while self.engine.work():
                pass
            due = self.engine.next_due()
            if due is None or due > until:
                return
            self.now = max(self.now, due)

    def node(self, name, labels=None, taints=(), devices=(), cpu="8") -> None:
        hardware = {"lab.modelplane.ai/hardware": json.dumps({"devices": list(devices)})} if devices else {}
        body = {
            "metadata": {"name": name, "labels": labels or {}, "annotations": hardware},
            "spec": {"taints": [dict(zip(("key", "value", "effect"), taint, strict=True)) for taint in taints]},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.store.create("nodes", body)

    def workload(self, resource, name, spec=None, annotations=None, **more):
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels, "annotations": annotations or {}},
            "spec": {"containers": [{"name": "c", "image": "i"}], **(spec or {})},
        }
        body = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "template": template, **more},
        }
        if resource == "jobs.batch":
            del body["spec"]["selector"]
            template["spec"]["restartPolicy"] = "Never"
        return self.store.create(resource, body)

    def pods(self):
        """Name prefix (to the last dash), node and phase of every pod, sorted."""
        found = []
        for pod in self.store.list("pods", "default"):
            status = pod.get("status") or {}
            found.append(
                (
                    pod["metadata"]["labels"].get("app", pod["metadata"]["name"]),
                    pod["spec"].get("nodeName", ""),
                    status["phase"],
                )
            )
        return sorted(found)

    def status(self, resource, name):
        return self.store.get(resource, name, "default")["status"]


@pytest.fixture
def lab():
    made = Lab()
    made.node("sys-1")
    made.node("gpu-1", {"pool": "gpu"}, [("nvidia.com/gpu", "present", "NoSchedule")])
    return made


COUNTS = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberMisscheduled", "observedGeneration")


def daemon_counts(lab, name):
    status = lab.status("daemonsets.apps", name)
    return tuple(status[count] for count in COUNTS)


def tolerate(**toleration):
    return {"tolerations": [toleration]}


TOLERATED = [
    ({}, ["sys-1"]),
    (tolerate(key="nvidia.com/gpu", operator="Equal", value="true", effect="NoSchedule"), ["sys-1"]),
    (tolerate(key="nvidia.com/gpu", operator="Equal", value="present", effect="NoSchedule"), ["gpu-1", "sys-1"]),
    (tolerate(key="nvidia.com/gpu", operator="Exists") | {"nodeSelector": {"pool": "gpu"}}, ["gpu-1"]),
    ({"nodeSelector": {"pool": "none"}}, []),
]


@pytest.mark.parametrize(("spec", "nodes"), TOLERATED)
def test_a_daemon_lands_where_it_may_and_reports_ready_wherever_that_is(lab, spec, nodes):
    lab.workload("daemonsets.apps", "agent", spec)
    lab.run()
    assert lab.pods() == [("agent", node, "Running") for node in nodes]
    assert daemon_counts(lab, "agent") == (len(nodes), len(nodes), len(nodes), 0, 1)


def test_daemon_pods_carry_the_controllers_tolerations_and_their_nodes_name(lab):
    lab.workload("daemonsets.apps", "agent", {"nodeSelector": {"pool": "gpu"}, **tolerate(operator="Exists")})
    lab.run()
    (pod,) = lab.store.list("pods", "default")
    assert sum(t.get("key", "").startswith("node.kubernetes.io/") for t in pod["spec"]["tolerations"]) == 6
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}]


def test_a_daemon_follows_labels_and_leaves_at_once_when_its_affinity_shrinks(lab):
    lab.node("late-1")
    lab.workload("daemonsets.apps", "agent", {"nodeSelector": {"hw": "yes"}})
    lab.run()
    assert lab.pods() == []
    lab.store.patch("nodes", "late-1", {"metadata": {"labels": {"hw": "yes"}}})
    lab.run()
    assert lab.pods() == [("agent", "late-1", "Running")]
    lab.store.patch("nodes", "late-1", {"metadata": {"labels": {"hw": None}}})
    lab.run()
    assert lab.pods() == []


def test_a_running_daemon_stays_under_a_new_noschedule_taint_and_goes_under_noexecute(lab):
    lab.workload("daemonsets.apps", "agent")
    lab.run()
    lab.store.patch("nodes", "sys-1", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    lab.run()
    assert lab.pods() == [("agent", "sys-1", "Running")]
    assert daemon_counts(lab, "agent")[:4] == (0, 0, 0, 1)
    lab.store.patch("nodes", "sys-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    lab.run()
    assert lab.pods() == []


def test_a_changed_template_replaces_the_pods(lab):
    lab.workload("daemonsets.apps", "agent")
    lab.run()
    (before,) = lab.store.list("pods", "default")
    change = {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
    lab.store.patch("daemonsets.apps", "agent", change, namespace="default")
    lab.run()
    (after,) = lab.store.list("pods", "default")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["annotations"] == {"v": "2"}
    assert daemon_counts(lab, "agent") == (1, 1, 1, 0, 2)
    assert lab.status("daemonsets.apps", "agent")["updatedNumberScheduled"] == 1


def test_a_daemon_waits_for_its_hardware(lab):
    gpu = [{"driver": "gpu.amd.com"}]
    lab.node("amd-1", {"amd": "yes"}, devices=gpu)
    lab.node("none-1", {"amd": "yes"})
    lab.workload(
        "daemonsets.apps", "driver", {"nodeSelector": {"amd": "yes"}}, {"lab.modelplane.ai/needs": "gpu.amd.com"}
    )
    lab.run()
    assert lab.pods() == [("driver", "amd-1", "Running"), ("driver", "none-1", "Pending")]
    assert daemon_counts(lab, "driver")[:3] == (2, 2, 1)


def test_two_daemons_with_one_host_port_clash_at_scheduling(lab):
    ports = {
        "hostNetwork": True,
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 8080, "hostPort": 8080}]}],
    }
    lab.workload("daemonsets.apps", "first", ports)
    lab.run()
    lab.workload("daemonsets.apps", "second", ports)
    lab.run()
    assert lab.pods() == [("first", "sys-1", "Running"), ("second", "", "Pending")]
    pod = next(p for p in lab.store.list("pods", "default") if p["metadata"]["labels"]["app"] == "second")
    (condition,) = pod["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == (
        "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


def test_a_pods_node_goes_and_the_pod_with_it(lab):
    lab.workload("daemonsets.apps", "agent", tolerate(operator="Exists"))
    lab.run()
    lab.store.delete("nodes", "gpu-1")
    lab.run()
    assert lab.pods() == [("agent", "sys-1", "Running")]


def test_a_deployment_rolls_out_and_scales(lab):
    lab.workload("deployments.apps", "web", replicas=2)
    lab.run()
    assert lab.pods() == [("web", "sys-1", "Running")] * 2
    status = lab.status("deployments.apps", "web")
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status.pop("conditions")}
    assert status == {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
    }
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    lab.store.patch("deployments.apps", "web", {"spec": {"replicas": 1}}, namespace="default")
    change = {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
    lab.store.patch("deployments.apps", "web", change, namespace="default")
    lab.run()
    assert [p["metadata"]["annotations"] for p in lab.store.list("pods", "default")] == [{"v": "2"}]
    assert sorted(r["spec"]["replicas"] for r in lab.store.list("replicasets.apps")) == [0, 1]


def test_a_deployment_that_fits_nowhere_waits_and_says_why(lab):
    lab.workload(
        "deployments.apps",
        "big",
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]},
    )
    lab.run()
    assert lab.pods() == [("big", "", "Pending")]
    assert lab.status("deployments.apps", "big")["unavailableReplicas"] == 1
    (event,) = lab.store.list("events", "default")
    assert (event["reason"], event["message"]) == (
        "FailedScheduling",
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {nvidia.com/gpu: present}.",
    )
    lab.node("sys-2", cpu="16")
    lab.run()
    assert lab.pods() == [("big", "sys-2", "Running")]


def test_a_stateful_set_makes_its_pods_in_order(lab):
    lab.workload("statefulsets.apps", "db", replicas=2, serviceName="db")
    lab.run()
    assert [p["metadata"]["name"] for p in lab.store.list("pods", "default")] == ["db-0", "db-1"]
    status = lab.status("statefulsets.apps", "db")
    assert (status["readyReplicas"], status["updatedReplicas"], status["currentReplicas"]) == (2, 2, 2)


def test_a_job_runs_to_its_end(lab):
    lab.workload("jobs.batch", "hook")
    lab.run()
    assert lab.pods() == [("hook", "sys-1", "Succeeded")]
    status = lab.status("jobs.batch", "hook")
    assert status["succeeded"] == 1
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [
        ("SuccessCriteriaMet", "True"),
        ("Complete", "True"),
    ]


def test_pods_refused_by_the_quota_come_when_it_is_there():
    lab = Lab(critical_pods_quota=True)
    lab.node("sys-1")
    lab.workload("daemonsets.apps", "agent", {"priorityClassName": "system-node-critical"})
    lab.run(until=0.5)
    assert lab.pods() == []
    (event,) = lab.store.list("events", "default")
    assert event["reason"] == "FailedCreate"
    scope = {"operator": "Exists", "scopeName": "PriorityClass"}
    quota = {
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"scopeSelector": {"matchExpressions": [scope]}},
    }
    lab.store.create("resourcequotas", quota)
    lab.run(until=10)
    assert lab.pods() == [("agent", "sys-1", "Running")]


def cpu_slice(node, devices):
    return {
        "metadata": {"name": f"{node}-cpu"},
        "spec": {
            "driver": "dra.cpu",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def claim_template(name, exactly):
    requests = [{"name": "cpus", "exactly": {"deviceClassName": "dra.cpu", **exactly}}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": {"devices": {"requests": requests}}}}


def cpu_class():
    return {
        "metadata": {"name": "dra.cpu"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
    }


CLAIMING = {"resourceClaims": [{"name": "cpus", "resourceClaimTemplateName": "cpus"}]}


@pytest.mark.parametrize(
    ("devices", "exactly", "results"),
    [
        (
            [{"name": "cpudevnuma000", "allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": "6"}}}],
            {"count": 1, "capacity": {"requests": {"dra.cpu/cpu": "4"}}},
            [("cpudevnuma000", {"dra.cpu/cpu": "4"})],
        ),
        ([{"name": f"cpudev{n:03}"} for n in range(6)], {"count": 4}, [(f"cpudev{n:03}", None) for n in range(4)]),
    ],
    ids=["grouped", "individual"],
)
def test_a_cpu_claim_is_allocated_and_a_second_one_waits_for_room(lab, devices, exactly, results):
    for body, resource in (
        (cpu_class(), "deviceclasses.resource.k8s.io"),
        (cpu_slice("sys-1", devices), "resourceslices.resource.k8s.io"),
        (claim_template("cpus", exactly), "resourceclaimtemplates.resource.k8s.io"),
    ):
        lab.store.create(resource, body)
    lab.workload("deployments.apps", "one", CLAIMING)
    lab.run()
    lab.workload("deployments.apps", "two", CLAIMING)
    lab.run()
    assert lab.pods() == [("one", "sys-1", "Running"), ("two", "", "Pending")]
    allocated = [
        c["status"] for c in lab.store.list("resourceclaims.resource.k8s.io") if c.get("status", {}).get("allocation")
    ]
    assert len(allocated) == 1
    found = allocated[0]["allocation"]["devices"]["results"]
    assert [(r["device"], r.get("consumedCapacity")) for r in found] == results
    lab.store.delete("deployments.apps", "one", namespace="default")
    lab.run()
    assert lab.pods() == [("two", "sys-1", "Running")]


def test_a_claim_waits_for_the_slice_that_is_published_later(lab):
    lab.store.create("deviceclasses.resource.k8s.io", cpu_class())
    lab.store.create("resourceclaimtemplates.resource.k8s.io", claim_template("cpus", {"count": 1}))
    lab.workload("deployments.apps", "one", CLAIMING)
    lab.run()
    assert lab.pods() == [("one", "", "Pending")]
    lab.store.create("resourceslices.resource.k8s.io", cpu_slice("sys-1", [{"name": "a"}]))
    lab.run()
    assert lab.pods() == [("one", "sys-1", "Running")]


def test_nothing_is_written_while_nothing_changes(lab):
    lab.workload("daemonsets.apps", "agent")
    lab.workload("deployments.apps", "big", {"nodeSelector": {"no": "where"}})
    lab.run()
    version = lab.store.storage.version
    lab.engine = Engine(lab.store, _all, clock=lambda: lab.now)
    lab.run()
    assert lab.store.storage.version == version


def test_a_wake_at_once_gives_way_to_none(lab):
    """On the loop that the daemon runs on, a wake without a delay is a handle that knows no time."""
    uvloop = pytest.importorskip("uvloop")

    async def run():
        lab.engine.start()
        lab.workload("deployments.apps", "soon")
        lab.engine.cluster.at(60.0, lambda: None)
        await asyncio.sleep(0.2)
        lab.engine.stop()

    uvloop.run(run())
    assert [name.split("-")[0] for name, _, _ in lab.pods()] == ["soon"]
