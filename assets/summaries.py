"""The observations that `observe` writes and the sensor reads: one a cluster, one a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

SUMMARY = "summary"
FINGERPRINT = "fingerprint"
OBSERVED_AT = "observed at"
LAGGING = "records lag"


@dataclass(frozen=True, slots=True)
class Seen:
    """`body` is the summary; `at` when its reading began, in seconds since the epoch; `lagging` whether the last
    materialisations say something else than what was observed."""

    body: Mapping[str, Any]
    fingerprint: str
    at: float
    lagging: bool

    @property
    def mark(self) -> tuple[Any, ...]:
        """What differs, without its sentences: an error's request ids and times aren't progress."""
        changes = sorted(str(c).split(":", 1)[0] for c in self.body.get("changes", ()))
        found = sorted((f["code"], f["subject"]) for f in self.body.get("findings", ()))
        pools = sorted(self.body.get("pools", {}).items())
        ready = sorted(self.body.get("ready_pools", ()))
        return (self.body["state"], self.body.get("manifests", ""), changes, pools, found, ready, self.lagging)


def observation(key: dg.AssetKey, seen: Seen) -> dg.AssetObservation:
    return dg.AssetObservation(
        asset_key=key,
        description=f"{seen.body['state']}: {seen.body['why']}",
        metadata={
            SUMMARY: dg.MetadataValue.json(dict(seen.body)),
            FINGERPRINT: seen.fingerprint,
            OBSERVED_AT: dg.MetadataValue.timestamp(seen.at),
            LAGGING: seen.lagging,
        },
    )


def last_seen(instance: dg.DagsterInstance, key: dg.AssetKey) -> Seen | None:
    """The newest observation; None before the first."""
    for record in instance.fetch_observations(key, limit=1).records:
        told = record.asset_observation
        if told is None or SUMMARY not in told.metadata or LAGGING not in told.metadata:
            continue
        values: dict[str, Any] = {n: told.metadata[n].value for n in (SUMMARY, FINGERPRINT, OBSERVED_AT, LAGGING)}
        return Seen(values[SUMMARY], str(values[FINGERPRINT]), float(values[OBSERVED_AT]), bool(values[LAGGING]))
    return None


def lags(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]) -> bool:
    """An asset was never materialised, or its last materialisation says something else than ready."""
    return any(_lags(instance, key) for key in keys)


def _lags(instance: dg.DagsterInstance, key: dg.AssetKey) -> bool:
    event = instance.get_latest_materialization_event(key)
    if event is None or event.asset_materialization is None:
        return True
    state = event.asset_materialization.metadata.get("state")
    return state is not None and state.value != "ready"
