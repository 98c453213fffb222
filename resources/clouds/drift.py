"""What an adapter has to change on a pool, by the same rules on every cloud.

Reconciling adds and corrects; it takes nothing away. A key that isn't in the request belongs to the cloud, to a user,
or to an earlier plan, and only prune takes such things away. Taints are judged by key and effect: their values differ
between clouds that set them themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelplane_dagster.errors import CloudCredentialsError, CloudError, CloudNameTakenError, CloudRetryableError
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import CLUSTER_TAG, OWNER_TAG
from resources.clouds.seam import ClusterRef

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
ATTEMPTS = 3


class AbsentError(CloudError):
    """The cloud knows no such thing. Adapters turn it into None, or into ready for a deletion."""


class LostReplyError(CloudRetryableError):
    """The request may have been acted on: a create reads again before it says so."""


def labels_to_set(want: Mapping[str, str], have: Mapping[str, str]) -> dict[str, str]:
    """The wanted labels that are absent or have another value; empty when nothing is to be done."""
    return {key: value for key, value in want.items() if have.get(key) != value}


def taints_to_add(want: Iterable[Taint], have: Iterable[Taint]) -> tuple[Taint, ...]:
    """The wanted taints whose key and effect are absent."""
    there = {(t.key, t.effect) for t in have}
    return tuple(t for t in want if (t.key, t.effect) not in there)


def is_ours(tags: Mapping[str, str] | None, ref: ClusterRef) -> bool:
    """By our mark and the cluster's name, never by the name alone."""
    marks = tags or {}
    return marks.get(OWNER_TAG) == ref.owner and marks.get(CLUSTER_TAG) == ref.name


def demand_ours(what: str, *, ours: bool) -> None:
    """`what` begins the sentence of the CloudNameTakenError, such as "cluster demo"."""
    if not ours:
        raise CloudNameTakenError(
            f"{what[0].upper()}{what[1:]} exists and doesn't carry our ownership mark, so it isn't touched."
        )


def demand_account(ref: ClusterRef, account: str) -> None:
    """Before the first write: the credentials must lead where the cluster belongs."""
    if ref.account and ref.account != account:
        raise CloudCredentialsError(
            f"Cluster {ref.name} belongs to the {ref.source} account {ref.account}, and the credentials lead to {account}."
        )
