"""Builds a fleet from the bytes of its files. Nothing in the input raises: what is wrong is a finding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from modelplane_dagster.findings import Finding, finding, has_errors, ordered
from modelplane_dagster.manifests.fleet_facts import Fleet, Key, digest_of
from modelplane_dagster.manifests.models import (
    API_VERSION,
    GROUP,
    InferenceClass,
    InferenceCluster,
    ModelDeployment,
)
from modelplane_dagster.manifests.objects import (
    KINDS,
    RawObject,
    ReadObject,
    not_an_object,
    raw_objects,
    validate,
)
from modelplane_dagster.manifests.problems import nearest, subject
from modelplane_dagster.manifests.provider_configs import ProviderConfig, provider_of, read_provider_config
from modelplane_dagster.manifests.reader import read
from modelplane_dagster.manifests.references import cluster_references, image_warnings
from modelplane_dagster.manifests.source import Document, Origin, documents

__all__ = ["Fleet", "build_fleet"]

_ACTED_ON = ("InferenceClass", "InferenceCluster", "ModelDeployment")
# Kinds of our group that the public definitions don't describe, so nothing about them can be checked.
_UNDESCRIBED = ("MetricMapping",)
# Made by a control plane for itself, never written by hand.
_INTERNAL = ("ModelReplica",)


def build_fleet(files: Iterable[tuple[str, bytes]], extra: Iterable[Finding] = ()) -> Fleet:
    """The fleet of these files (display name and content). `extra` is what reading them found, and is passed on."""
    builder = _Builder()
    builder.findings.extend(extra)
    for name, data in files:
        builder.add_file(name, data)
    return builder.fleet()


@dataclass(slots=True)
class _Notice:
    """Objects of one kind that are passed over: the first of them, and how many."""

    about: str
    api_version: str
    origin: Origin
    count: int = 0


class _Builder:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._objects: dict[Key, ReadObject] = {}
        self._clashes: dict[Key, list[ReadObject]] = {}
        self._configs: dict[Key, tuple[ProviderConfig, Origin]] = {}
        self._broken: dict[tuple[str, str], list[Finding]] = {}
        self._unread: list[str] = []
        self._notices: dict[tuple[str, str, str], _Notice] = {}

    def add_file(self, name: str, data: bytes) -> None:
        parts, refused = documents(name, data)
        self.findings.extend(refused)
        if refused:
            self._unread.append(hashlib.sha256(data).hexdigest())
        for document in parts:
            self._add_document(document)

    def _add_document(self, document: Document) -> None:
        value, wrong = read(document)
        if value is None:
            if wrong:
                self._unread.append(hashlib.sha256(document.text.encode()).hexdigest())
            self.findings.extend(wrong)
            return
        found = list(raw_objects(document, value))
        named = len(found) == 1 and isinstance(found[0], RawObject) and self._add(found[0], wrong)
        if not named:
            self.findings.extend(wrong)
            for item in found if len(found) != 1 or isinstance(found[0], Finding) else ():
                if isinstance(item, Finding):
                    self.findings.append(item)
                else:
                    self._add(item, wrong)

    def _add(self, raw: RawObject, wrong: tuple[Finding, ...]) -> bool:
        """Files an object; whether the findings of its YAML were filed with it."""
        provider = provider_of(raw.group, raw.kind)
        if provider is None and raw.group != GROUP:
            return self._foreign(raw)
        if raw.group == GROUP and raw.kind in _INTERNAL:
            return self._notice("ForeignKind", raw)
        if raw.group == GROUP and (raw.api_version != API_VERSION or raw.kind not in (*KINDS, *_UNDESCRIBED)):
            return self._unknown(raw)
        name = raw.name
        if name is None:
            message = "metadata.name is missing or isn't a text"
            self.findings.append(not_an_object(raw.origin.document, (*raw.origin.base, "metadata", "name"), message))
            return False
        if provider is not None:
            config = read_provider_config(provider, raw.kind, raw.data)
            self._add_config(config, raw)
            return False
        if raw.kind in _UNDESCRIBED:
            return self._notice("NotActedOn", raw)
        self._add_object(validate(raw, name), wrong)
        return True

    def _foreign(self, raw: RawObject) -> bool:
        near = nearest(raw.group, (GROUP,)) if raw.kind in KINDS else None
        return self._unknown(raw) if near else self._notice("ForeignKind", raw)

    def _unknown(self, raw: RawObject) -> bool:
        name = raw.name
        about = f"{raw.kind}/{name}" if name else raw.origin.document.subject
        if raw.kind in KINDS:
            message = f"apiVersion: {raw.kind} is of {API_VERSION}, and not of {raw.api_version}"
            place, fix = raw.origin.place(("apiVersion",)), f"Write apiVersion: {API_VERSION}."
        else:
            near = nearest(raw.kind, KINDS)
            message = f"kind: {API_VERSION} has no kind {raw.kind}" + (f"; the nearest is {near}" if near else "")
            place, fix = raw.origin.place(("kind",)), f"Write kind: {near}." if near else ""
        self.findings.append(finding("UnknownKind", about, message, fix=fix or None, place=place))
        return False

    def _notice(self, code: str, raw: RawObject) -> bool:
        name = raw.name
        about = subject(raw.kind, name, raw.namespace) if name else raw.origin.document.subject
        notice = _Notice(about, raw.api_version, raw.origin)
        self._notices.setdefault((code, raw.group, raw.kind), notice).count += 1
        return False

    def _add_config(self, config: ProviderConfig, raw: RawObject) -> None:
        key = (raw.kind, config.namespace, f"{config.provider}/{config.name}")
        known = self._configs.get(key)
        if known is None:
            self._configs[key] = (config, raw.origin)
        elif known[0] != config:
            self._clash(subject(*_about(key)), known[1], raw.origin, broken=(raw.kind, _joined(key)))

    def _add_object(self, item: ReadObject, wrong: tuple[Finding, ...]) -> None:
        about = subject(item.kind, item.name, item.namespace)
        if wrong:
            mine = tuple(replace(found, subject=about) for found in wrong)
            item = replace(item, model=None, findings=(*mine, *item.findings))
        key = (item.kind, item.namespace, item.name)
        self.findings.extend(item.findings)
        if has_errors(item.findings):
            self._broken.setdefault((item.kind, _joined(key)), []).extend(item.findings)
        known = self._objects.setdefault(key, item)
        if known is item:
            return
        if known.digest != item.digest or (known.model is None) != (item.model is None):
            self._clashes.setdefault(key, [known]).append(item)
            self._clash(about, known.origin, item.origin, broken=(item.kind, _joined(key)))

    def _clash(self, about: str, first: Origin, second: Origin, *, broken: tuple[str, str]) -> None:
        name = ("metadata", "name")
        places = sorted((first.place(name), second.place(name)))
        one, two = (f"{place.file}:{place.line}" for place in places)
        message = f"{one} and {two} describe it differently, so neither is acted on"
        clash = finding("DuplicateName", about, message, place=places[1])
        self.findings.append(clash)
        self._broken.setdefault(broken, []).append(clash)

    def fleet(self) -> Fleet:
        """The fleet of everything added. Called once."""
        whole = {key: item for key, item in self._objects.items() if (item.kind, _joined(key)) not in self._broken}
        classes = _models(whole, InferenceClass)
        clusters = _models(whole, InferenceCluster)
        deployments = _models(whole, ModelDeployment)
        by_cluster = self._references(clusters, classes)
        for key, deployment in deployments.items():
            self.findings.extend(image_warnings(deployment, whole[key].origin))
        self._report_notices()
        configs = [config for key, (config, _) in self._configs.items() if (key[0], _joined(key)) not in self._broken]
        digests = {key: self._digest(key, item) for key, item in self._objects.items()}
        sources = {key: item.origin for key, item in self._objects.items()}
        return Fleet(
            classes=MappingProxyType({key[2]: model for key, model in classes.items()}),
            clusters=MappingProxyType({key[2]: model for key, model in clusters.items()}),
            deployments=MappingProxyType({(key[1], key[2]): model for key, model in deployments.items()}),
            provider_configs=tuple(sorted(configs, key=lambda c: (c.provider, c.kind, c.namespace, c.name))),
            broken=MappingProxyType({key: ordered(self._broken[key]) for key in sorted(self._broken)}),
            findings=ordered(self.findings),
            digest=digest_of(self._content(digests, configs)),
            _sources=MappingProxyType(sources),
            _digests=MappingProxyType(digests),
            _by_cluster=MappingProxyType(by_cluster),
        )

    def _references(
        self, clusters: dict[Key, InferenceCluster], classes: dict[Key, InferenceClass]
    ) -> dict[str, tuple[Finding, ...]]:
        names = {key[2]: model for key, model in classes.items()}
        broken = {name for kind, name in self._broken if kind == "InferenceClass"}
        by_cluster: dict[str, tuple[Finding, ...]] = {}
        for key, cluster in clusters.items():
            origin = self._objects[key].origin
            found = tuple(cluster_references(cluster, origin, classes=names, broken=broken))
            if found:
                by_cluster[cluster.name] = ordered(found)
                self.findings.extend(found)
        for (kind, name), found_broken in self._broken.items():
            if kind == "InferenceCluster":
                by_cluster[name] = ordered(found_broken)
        return by_cluster

    def _report_notices(self) -> None:
        for key, item in self._objects.items():
            if item.kind not in _ACTED_ON and key not in self._clashes:
                about = subject(item.kind, item.name, item.namespace)
                notice = _Notice(about, API_VERSION, item.origin)
                self._notices.setdefault(("NotActedOn", GROUP, item.kind), notice).count += 1
        for (code, _, kind), notice in self._notices.items():
            many = "1 object" if notice.count == 1 else f"{notice.count} objects"
            what = "skipped" if code == "ForeignKind" else "not acted on"
            if kind in _UNDESCRIBED:
                what = "neither validated nor acted on"
            message = f"{many} of kind {kind} of {notice.api_version}: {what}"
            self.findings.append(finding(code, notice.about, message, place=notice.origin.place()))

    def _digest(self, key: Key, item: ReadObject) -> str:
        """Of two that clash, over both."""
        clashing = self._clashes.get(key)
        return digest_of(sorted(one.digest for one in clashing)) if clashing else item.digest

    def _content(self, digests: dict[Key, str], configs: list[ProviderConfig]) -> list[str]:
        lines = [f"{kind}/{namespace}/{name} {digest}" for (kind, namespace, name), digest in digests.items()]
        return sorted([*lines, *map(repr, configs), *self._unread])


def _models(items: dict[Key, ReadObject], kind: type[Any]) -> dict[Key, Any]:
    """The models of one kind, sorted by key, so that nothing later depends on the order of files."""
    return {key: item.model for key, item in sorted(items.items()) if isinstance(item.model, kind)}


def _joined(key: Key) -> str:
    return f"{key[1]}/{key[2]}" if key[1] else key[2]


def _about(key: Key) -> tuple[str, str, str]:
    kind, namespace, name = key
    return kind, name, namespace
