"""A running fleet whose manifests went bad: whatever is asked to reconcile it, nothing reaches a cloud or a cluster."""

from __future__ import annotations

import dagster as dg
import pytest

from assets.build import build_defs
from assets.converge import JOB
from assets.instance import open_instance
from resources.lease import NAME, NAMESPACE
from resources.world import open_world
from tests.e2e.site import Ran, Site, eventually, site

pytestmark = [pytest.mark.lab, pytest.mark.dagster]
RECIPE = "recipes/qwen2.5-0.5b-cpu-civo"
CLUSTER, DEPLOYMENT = "cluster/civo-london", "deployment/recipes/qwen2-5-0-5b-cpu"
AMD_CLASS = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: civo-cpu}
spec:
  provisioning:
    provider: Civo
    civo: {size: g4p.kube.medium}
  devices:
  - {name: gpu, driver: gpu.amd.com, deviceClassName: gpu.amd.com}
"""
NO_DRIVER = AMD_CLASS.replace("deviceClassName: gpu.amd.com", "deviceClassName: gpu.amd.com, claim: Synthetic")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with site(tmp_path_factory.mktemp("refused")) as made:
        made.copy(*(f"{RECIPE}/{name}.yaml" for name in ("classes", "cluster", "deployment")))
        ran = made.reconcile().clean()
        assert (ran.status, ran.json["verdict"]) == (0, "converged")
        yield made


def edit_class(fleet: Site) -> None:
    fleet.write("classes.yaml", AMD_CLASS)


def drop_driver(fleet: Site) -> None:
    fleet.write("classes.yaml", NO_DRIVER)


def delete(name):
    return lambda fleet: (fleet.folder / name).unlink()


def break_file(name):
    return lambda fleet: fleet.write(name, "kind: [unclosed\n")


def misspell(name, word):
    def edit(fleet: Site) -> None:
        text = (fleet.folder / name).read_text()
        assert word in text
        fleet.write(name, text.replace(word, f"{word}X"))

    return edit


def hide_folder(fleet: Site) -> None:
    """All manifests gone behind a link to nowhere: a folder that can't be read, for root as well."""
    away = fleet.folder.with_name("away")
    away.mkdir(exist_ok=True)
    for path in list(fleet.folder.iterdir()):
        path.rename(away / path.name)
    (fleet.folder / "site").symlink_to(away / "nowhere")


# What is edited: the edit, reconcile's exit status, a code that the command line names, and what is an orphan then.
EDITS = {
    "class claims what the cloud lacks": (
        edit_class,
        3,
        "UnsupportedDevices",
        ["component/civo-london/dra-driver-cpu"],
    ),
    "class loses its driver": (drop_driver, 3, "PoolRoleChanged", ["component/civo-london/dra-driver-cpu"]),
    "class deleted": (delete("classes.yaml"), 1, "ClassNotFound", []),
    "class broken": (break_file("classes.yaml"), 1, "InvalidYaml", []),
    "cluster deleted": (delete("cluster.yaml"), 4, "", [CLUSTER]),
    "cluster broken": (break_file("cluster.yaml"), 1, "InvalidYaml", [CLUSTER]),
    "cluster misspelt": (misspell("cluster.yaml", "nodePools"), 1, "UnknownField", []),
    "deployment deleted": (delete("deployment.yaml"), 0, "", [DEPLOYMENT]),
    "deployment misspelt": (misspell("deployment.yaml", "replicas"), 1, "UnknownField", []),
    "folder unreadable": (hide_folder, 0, "BrokenLink", [CLUSTER, DEPLOYMENT]),
}


# These take every path through the code; the others are the same by other edits.
EVERYDAY = ("class claims what the cloud lacks", "class deleted", "cluster deleted", "folder unreadable")
CASES = [pytest.param(*row, id=name, marks=() if name in EVERYDAY else pytest.mark.slow) for name, row in EDITS.items()]


@pytest.fixture
def edited(running, request):
    before = {p: p.read_bytes() for p in sorted(running.folder.iterdir())}
    request.param(running)
    yield running
    (running.folder / "site").unlink(missing_ok=True)
    for path, data in before.items():
        path.write_bytes(data)


def by_job(fleet: Site, instance: dg.DagsterInstance) -> None:
    defs = build_defs(fleet.fleet(), fleet.settings(), lambda: open_world(fleet.settings()))
    run_job(defs, instance, None)


def by_each_asset_alone(fleet: Site, instance: dg.DagsterInstance) -> None:
    """As from the UI, where one asset is picked and materialised."""
    defs = build_defs(fleet.fleet(), fleet.settings(), lambda: open_world(fleet.settings()))
    for key in defs.resolve_job_def(JOB).asset_layer.executable_asset_keys:
        run_job(defs, instance, [key])


def run_job(defs: dg.Definitions, instance: dg.DagsterInstance, keys: list[dg.AssetKey] | None) -> None:
    job = defs.resolve_job_def(JOB)
    config = {
        "resources": {"fleet": {"config": {"wait": 0.0}}},
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
    }
    result = job.execute_in_process(instance=instance, asset_selection=keys, raise_on_error=False, run_config=config)
    for event in result.all_events:
        if event.is_step_failure:
            # The gate's refusal and nothing else: a crash would write nothing either.
            failed = event.step_failure_data
            blocked = failed.error is not None and failed.error.cls_name == "DagsterAssetCheckFailedError"
            assert blocked or failed.user_failure_data is not None, failed.error


def by_schedule_and_sensor(fleet: Site, instance: dg.DagsterInstance) -> None:
    defs = build_defs(fleet.fleet(), fleet.settings(), lambda: open_world(fleet.settings()))
    observed = defs.resolve_job_def("observe").execute_in_process(instance=instance)
    assert observed.success
    repository = defs.get_repository_def()
    context = dg.build_sensor_context(instance=instance, repository_def=repository)
    asked = repository.get_sensor_def("converge").evaluate_tick(context)
    assert [r.tags.get("modelplane/clusters") for r in asked.run_requests or ()] == []


@pytest.mark.parametrize(("edited", "status", "code", "orphans"), CASES, indirect=["edited"])
def test_no_route_changes_anything(edited, status, code, orphans):
    before, lease = edited.changes(), _lease(edited)
    reconciled = edited.reconcile("1s").clean()
    assert (reconciled.status, edited.changes()) == (status, before)
    instance = open_instance(edited.settings())
    try:
        routes = [by_job, by_each_asset_alone, by_schedule_and_sensor]
        for route in routes:
            if edited.fleet().clusters or edited.fleet().deployments or edited.fleet().classes:
                route(edited, instance)
            assert edited.changes() == before, route.__name__
    finally:
        instance.dispose()
    assert _lease(edited) == lease
    plan = edited.run("plan", str(edited.folder), "--observe", "--format", "json").clean()
    assert [o["subject"] for o in plan.json["orphans"]] == orphans
    assert not [a for a in plan.json["actions"] if a["op"] == "delete"]
    if code:
        command = ("validate",) if status == 1 else ("plan", "--observe")
        shown = edited.run(*command, str(edited.folder)).clean()
        assert (shown.status, code in shown.out) == (status, True)
    assert edited.changes() == before
    assert edited.clouds("Civo") == {"civo-london": {"cpu": 1, "system": 2}}


def _lease(fleet: Site) -> str:
    config = fleet.lab.kubeconfig("civo-london", "product")
    from resources.kubernetes import ClusterClient

    client = ClusterClient(config, name="civo-london")
    try:
        found = client.get("coordination.k8s.io/v1", "Lease", NAME, namespace=NAMESPACE)
    finally:
        client.close()
    return found["metadata"]["resourceVersion"]


@pytest.mark.slow
def test_a_renamed_cluster_is_another_one(running):
    """The new name is made, as its manifest asks, and gets a replica; the old one stays as it is, its replica with it."""
    before = running.changes()
    path = running.folder / "cluster.yaml"
    text = path.read_text()
    path.write_text(text.replace("civo-london", "civo-paris"))
    try:
        ran = running.reconcile().clean()
        assert (ran.status, ran.json["verdict"], ran.json["failures"]) == (0, "converged", [])
        assert [(d["state"], d["why"]) for d in ran.json["deployments"]] == [("serving", "1 replica serves")]
        assert [o["subject"] for o in ran.json["orphans"]] == [CLUSTER]
        instance = open_instance(running.settings())
        try:
            by_each_asset_alone(running, instance)
        finally:
            instance.dispose()
        after = running.changes()
        assert after["cluster civo-london"] == before["cluster civo-london"]
        assert after["cloud Civo"].deletes == before["cloud Civo"].deletes
        assert running.clouds("Civo") == {name: {"cpu": 1, "system": 2} for name in ("civo-london", "civo-paris")}
    finally:
        path.write_text(text)


def test_leaving_in_order(running):
    """Deployment, component, pool, cluster: each only by prune, by what prune itself printed, and when nobody uses it."""
    (running.folder / "cluster.yaml").unlink()
    assert prune(running, CLUSTER).status == 5
    told = prune(running, CLUSTER).json
    assert [u for u in told["users"] if u.startswith("pod recipes/")] != []
    before = running.changes()
    assert prune(running, CLUSTER, told["fingerprint"]).status == 5
    # A manifest still asks for it.
    assert prune(running, DEPLOYMENT).status == 5
    assert running.changes() == before
    (running.folder / "deployment.yaml").unlink()
    for subject, goes in (
        (DEPLOYMENT, "replica on civo-london"),
        ("component/civo-london/dra-driver-cpu", "release mp-dra-driver-cpu"),
        ("pool/civo-london/cpu", "pool cpu with 1 nodes"),
        (CLUSTER, "control plane civo-london on Civo"),
    ):
        before = running.changes()
        eventually(lambda s=subject: prune(running, s).status == 0)
        told = prune(running, subject).json
        assert any(line.startswith(goes) for line in told["goes"]), told
        stale = prune(running, subject, "sha256:0123456789abcdef")
        assert (stale.status, "it changed since" in stale.err) == (3, True)
        assert running.changes() == before
        done = prune(running, subject, told["fingerprint"])
        assert (done.status, done.json["done"]) == (0, True)
    eventually(lambda: "civo-london" not in running.clouds("Civo"))
    plan = running.run("plan", str(running.folder), "--observe", "--format", "json").clean()
    assert CLUSTER not in [o["subject"] for o in plan.json["orphans"]]


def prune(fleet: Site, subject: str, fingerprint: str = "") -> Ran:
    more = ("--fingerprint", fingerprint) if fingerprint else ()
    return fleet.run("prune", subject, "--fleet", str(fleet.folder), "--format", "json", *more).clean()
