"""What of a pool's labels and taints differs from what is asked for, leaving alone every key that isn't ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelplane_dagster.kube.objects import Taint


def missing_labels(wanted: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
    """The wanted labels that are absent or have another value. Labels beside them are left: ours shrink by prune alone."""
    return {key: value for key, value in wanted.items() if seen.get(key) != value}


def missing_taints(wanted: Iterable[Taint], seen: Iterable[Taint]) -> tuple[Taint, ...]:
    """The wanted taints that are absent. A taint is known by key and effect; another value is no drift."""
    there = {(t.key, t.effect) for t in seen}
    return tuple(t for t in wanted if (t.key, t.effect) not in there)
