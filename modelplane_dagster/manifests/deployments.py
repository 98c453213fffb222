"""ModelDeployment: a model, its engines and the devices they ask for, nested as in the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from modelplane_dagster.manifests import words
from modelplane_dagster.manifests.fields import (
    Label,
    Manifest,
    NamedSeq,
    Selector,
    Seq,
    ShortNamespacedMetadata,
    Text,
    Texts,
    Violation,
    refuse_any,
)

RESERVED_PREFIX = "modelplane.ai/"


class ClusterSelector(Manifest):
    """Which clusters are candidates; empty `match_labels` means all."""

    match_labels: Texts = Field(default_factory=dict)


class CacheRef(Manifest):
    name: Text


class Serving(Manifest):
    mode: Literal["Unified", "PrefillDecode"] = "Unified"


class Toleration(Manifest):
    """Of a cluster's taints. None for `key`, `value` or `effect` means it isn't given; no effect means all effects."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "NoExecute"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.operator == "Equal" and not self.key:
            refuse_any([Violation("RuleViolated", "a toleration with operator Equal must set key")])
        if self.operator == "Exists" and self.value is not None:
            message = "a toleration with operator Exists must not set value"
            refuse_any([Violation("RuleViolated", message, ("value",))])
        return self


class DeviceSelector(Manifest):
    """A CEL expression over one device; every selector of a request must hold."""

    cel: Selector | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.cel is None:
            message = "an empty selector would match every device; set cel"
            refuse_any([Violation("RuleViolated", message)])
        return self


class DeviceRequest(Manifest):
    name: Label
    count: Annotated[int, Field(ge=1, le=64)] = 1
    selectors: Annotated[Seq[DeviceSelector], Field(min_length=1, max_length=8)]


class NodeSelector(Manifest):
    devices: Annotated[NamedSeq[DeviceRequest], Field(min_length=1, max_length=16)]


class WorkerSettings(Manifest):
    nodes: Annotated[int, Field(ge=1, le=63)]


def _label_rules(labels: dict[str, str]) -> Iterator[Violation]:
    for key, value in labels.items():
        if key.startswith(RESERVED_PREFIX):
            message = f"label keys under {RESERVED_PREFIX} are reserved, and {key!r} is one"
            yield Violation("RuleViolated", message, ("labels", key), "Use a key under another prefix.")
        elif wrong := words.not_label_key(key):
            yield Violation("RuleViolated", wrong, ("labels", key))
        if wrong := words.not_label_value(value):
            yield Violation("RuleViolated", wrong, ("labels", key))


ShortTexts = Annotated[Texts, Field(max_length=32)]


class ReplicaMetadata(Manifest):
    """Labels for the replicas and their endpoints."""

    labels: ShortTexts = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_any(_label_rules(self.labels))
        return self


class PodMetadata(Manifest):
    labels: ShortTexts = Field(default_factory=dict)
    annotations: ShortTexts = Field(default_factory=dict)

    def _rules(self) -> Iterator[Violation]:
        yield from _label_rules(self.labels)
        for key, value in self.annotations.items():
            if wrong := words.not_label_key(key):
                yield Violation("RuleViolated", wrong, ("annotations", key))
            if len(value) > 8192:
                message = f"an annotation has at most 8192 characters, and this one has {len(value)}"
                yield Violation("InvalidValue", message, ("annotations", key))

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_any(self._rules())
        return self


class KeyRef(Manifest):
    name: str
    key: str
    optional: bool | None = None


class FieldRef(Manifest):
    field_path: str
    api_version: str | None = None


class EnvSource(Manifest):
    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None


class EnvVar(Manifest):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class Container(Manifest):
    name: Text
    image: Text
    command: Seq[str] = ()
    args: Seq[str] = ()
    env: Seq[EnvVar] = ()


class PullSecret(Manifest):
    name: str


class PodSpec(Manifest):
    containers: Annotated[Seq[Container], Field(min_length=1, max_length=1)]
    image_pull_secrets: Seq[PullSecret] = ()

    @model_validator(mode="after")
    def _named_engine(self) -> Self:
        name = self.containers[0].name
        if name != "engine":
            message = f"the container must be named 'engine', and not {words.shown(name)}"
            refuse_any([Violation("RuleViolated", message, ("containers", 0, "name"))])
        return self


class PodTemplate(Manifest):
    """`spec` may be absent in the API; a member without one has no container to run."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec | None = None


class Member(Manifest):
    """One kind of pod of an engine. Without `node_selector` it claims no devices."""

    role: Literal["Standalone", "Leader", "Worker"] = "Standalone"
    node_selector: NodeSelector | None = None
    worker: WorkerSettings | None = None
    template: PodTemplate

    @property
    def nodes(self) -> int:
        """How many pods, each on a node of its own, the member has."""
        return self.worker.nodes if self.worker else 1

    @property
    def requests(self) -> tuple[DeviceRequest, ...]:
        return self.node_selector.devices if self.node_selector else ()

    @property
    def container(self) -> Container | None:
        return self.template.spec.containers[0] if self.template.spec else None

    @model_validator(mode="after")
    def _worker_only(self) -> Self:
        if self.worker is not None and self.role != "Worker":
            message = f"worker goes with role Worker only, and the role is {self.role}"
            refuse_any([Violation("RuleViolated", message, ("worker",))])
        return self


class Engine(Manifest):
    name: Label
    copies: Annotated[int, Field(ge=1, le=64)] = 1
    phase: Literal["Prefill", "Decode"] | None = None
    members: Annotated[Seq[Member], Field(min_length=1, max_length=2)]

    def _rules(self) -> Iterator[Violation]:
        roles = [member.role for member in self.members]
        gang = roles.count("Leader") == 1 and "Worker" in roles and "Standalone" not in roles
        if roles != ["Standalone"] and not gang:
            message = (
                "an engine is a single Standalone member, or one Leader and one or more Workers; "
                f"its roles are {', '.join(roles)}"
            )
            yield Violation("RuleViolated", message, ("members",))
        if all(member.node_selector is None for member in self.members):
            message = "at least one member of an engine must ask for devices with a nodeSelector"
            yield Violation("RuleViolated", message, ("members",))

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_any(self._rules())
        return self


class ReplicaSpec(Manifest):
    cluster_selector: ClusterSelector = ClusterSelector()
    model_cache_ref: CacheRef | None = None
    serving: Serving = Serving()
    tolerations: Seq[Toleration] = ()
    engines: Annotated[NamedSeq[Engine], Field(min_length=1, max_length=8)]

    def _rules(self) -> Iterator[Violation]:
        if self.serving.mode == "PrefillDecode":
            if len(self.engines) != 2:
                message = f"PrefillDecode takes two engines, one Prefill and one Decode; there are {len(self.engines)}"
                yield Violation("RuleViolated", message, ("engines",))
            phases = [engine.phase for engine in self.engines]
            for phase in ("Prefill", "Decode"):
                if phases.count(phase) != 1:
                    message = f"PrefillDecode takes one engine of phase {phase}; there are {phases.count(phase)}"
                    yield Violation("RuleViolated", message, ("engines",))
            return
        for index, engine in enumerate(self.engines):
            if engine.phase is not None:
                message = "phase goes with serving.mode PrefillDecode only"
                yield Violation("RuleViolated", message, ("engines", index, "phase"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_any(self._rules())
        return self


class ReplicaTemplate(Manifest):
    metadata: ReplicaMetadata = ReplicaMetadata()
    spec: ReplicaSpec


class DeploymentSpec(Manifest):
    replicas: Annotated[int, Field(ge=1, le=10)]
    template: ReplicaTemplate


class ModelDeployment(Manifest):
    metadata: ShortNamespacedMetadata
    spec: DeploymentSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def engines(self) -> tuple[Engine, ...]:
        return self.spec.template.spec.engines
