"""Defaults of built-in types: the fields that helm, kubectl and the controllers read. Objects are changed in place."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resources.lab.api.errors import bad_request
from resources.lab.api.schema import Json

Obj = dict[str, Any]

TEMPLATE_PATHS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (),
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}


def pod_template(key: tuple[str, str], obj: Obj) -> Obj | None:
    """The pod template of a workload, or the pod itself; None where the kind has none."""
    path = TEMPLATE_PATHS.get(key)
    if path is None:
        return None
    here: Any = obj
    for part in path:
        here = here.get(part)
        if not isinstance(here, dict):
            return None
    return here


def apply_defaults(key: tuple[str, str], obj: Obj) -> None:
    template = pod_template(key, obj)
    if template is not None and isinstance(template.get("spec"), dict):
        pod_spec(template["spec"])
    special = _BY_KEY.get(key)
    if special is not None:
        special(obj)


def _set(target: Obj, **values: Json) -> None:
    for name, value in values.items():
        if name not in target:
            target[name] = value


def pod_spec(spec: Obj) -> None:
    _set(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    if "serviceAccountName" in spec:
        _set(spec, serviceAccount=spec["serviceAccountName"])
    for container in _containers(spec):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _volume(volume)


def _containers(spec: Obj) -> Iterator[Obj]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _container(container: Obj, *, host_network: bool) -> None:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    always = "@" not in image and tag in {"", "latest"}
    _set(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if always else "IfNotPresent",
    )
    resources = container["resources"]
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        _set(port, protocol="TCP")
        if host_network:
            _set(port, hostPort=port.get("containerPort"))
    for entry in container.get("env") or ():
        reference = (entry.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            _set(reference, apiVersion="v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])


def _probe(probe: Obj) -> None:
    _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        _set(probe["httpGet"], path="/", scheme="HTTP")
    if "grpc" in probe:
        _set(probe["grpc"], service="")


def _volume(volume: Obj) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for name in ("configMap", "secret", "downwardAPI", "projected"):
        if name in volume:
            _set(volume[name], defaultMode=420)
    if "hostPath" in volume:
        _set(volume["hostPath"], type="")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            _set(source["serviceAccountToken"], expirationSeconds=3600)


def _daemon_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, updateStrategy={}, revisionHistoryLimit=10)
    strategy = spec["updateStrategy"]
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy, rollingUpdate={})
        _set(strategy["rollingUpdate"], maxUnavailable=1, maxSurge=0)


def _deployment(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, replicas=1, strategy={}, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec["strategy"]
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy, rollingUpdate={})
        _set(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")


def _replica_set(obj: Obj) -> None:
    _set(obj.setdefault("spec", {}), replicas=1)


def _stateful_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(
        spec,
        replicas=1,
        podManagementPolicy="OrderedReady",
        updateStrategy={"type": "RollingUpdate"},
        revisionHistoryLimit=10,
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
    )
    if spec["updateStrategy"].get("type") == "RollingUpdate":
        _set(spec["updateStrategy"], rollingUpdate={"partition": 0})


def _job(obj: Obj) -> None:
    _job_spec(obj.setdefault("spec", {}))


def _job_spec(spec: Obj) -> None:
    _set(spec, backoffLimit=6, completionMode="NonIndexed", suspend=False, podReplacementPolicy="TerminatingOrFailed")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _set(spec, parallelism=1)


def _cron_job(obj: Obj) -> None:
    _set(
        obj.setdefault("spec", {}),
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    )


def _service(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, sessionAffinity="None", type="ClusterIP", internalTrafficPolicy="Cluster")
    for port in spec.get("ports") or ():
        _set(port, protocol="TCP", targetPort=port.get("port"))


def _secret(obj: Obj) -> None:
    _set(obj, type="Opaque")
    for key, value in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()
    for value in (obj.get("data") or {}).values():
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise bad_request(
                'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
            ) from error


def _crd(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, conversion={"strategy": "None"})
    names = spec.setdefault("names", {})
    kind = str(names.get("kind", ""))
    _set(names, singular=kind.lower(), listKind=f"{kind}List")


def _binding(obj: Obj) -> None:
    _set(obj.get("roleRef") or {}, apiGroup="rbac.authorization.k8s.io")
    for subject in obj.get("subjects") or ():
        group = "" if subject.get("kind") == "ServiceAccount" else "rbac.authorization.k8s.io"
        if group:
            _set(subject, apiGroup=group)


def _device_requests(spec: Obj) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for exact in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(exact, dict):
                _set(exact, allocationMode="ExactCount")
                if exact["allocationMode"] == "ExactCount":
                    _set(exact, count=1)


def _claim(obj: Obj) -> None:
    _device_requests(obj.get("spec") or {})


def _claim_template(obj: Obj) -> None:
    _device_requests((obj.get("spec") or {}).get("spec") or {})


def _namespace(obj: Obj) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    _set(obj, spec={})
    _set(obj["spec"], finalizers=["kubernetes"])


def _priority_class(obj: Obj) -> None:
    _set(obj, preemptionPolicy="PreemptLowerPriority")


def _storage_class(obj: Obj) -> None:
    _set(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


_BY_KEY: Mapping[tuple[str, str], Callable[[Obj], None]] = {
    ("", "namespaces"): _namespace,
    ("", "secrets"): _secret,
    ("", "services"): _service,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ("apps", "daemonsets"): _daemon_set,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _replica_set,
    ("apps", "statefulsets"): _stateful_set,
    ("batch", "cronjobs"): _cron_job,
    ("batch", "jobs"): _job,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _binding,
    ("rbac.authorization.k8s.io", "rolebindings"): _binding,
    ("resource.k8s.io", "resourceclaims"): _claim,
    ("resource.k8s.io", "resourceclaimtemplates"): _claim_template,
    ("scheduling.k8s.io", "priorityclasses"): _priority_class,
    ("storage.k8s.io", "storageclasses"): _storage_class,
}
