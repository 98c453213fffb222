"""Dagster reloads nothing by itself: `observe` compares the manifests' digest with the loaded one and asks the webserver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import httpx

from resources.files import load_fleet

if TYPE_CHECKING:
    from assets.common import Build

LOCATION = "modelplane"
_MUTATION = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) { __typename }
}
"""


def reload_when_changed(context: dg.OpExecutionContext, build: Build) -> bool:
    """True when a reload was asked for. Where no webserver's address is set, or it refuses, says so in the log."""
    now = load_fleet(build.settings.fleet).digest
    if now == build.fleet.digest:
        return False
    if not build.settings.webserver:
        context.log.warning(
            "ReloadNeeded: the manifests changed since the code location was loaded; reload it, or set "
            "MODELPLANE_WEBSERVER to the webserver's address."
        )
        return False
    address = f"{build.settings.webserver.rstrip('/')}/graphql"
    try:
        answer = httpx.post(address, json={"query": _MUTATION, "variables": {"name": LOCATION}}, timeout=30)
        answer.raise_for_status()
        kind = answer.json()["data"]["reloadRepositoryLocation"]["__typename"]
    except (httpx.HTTPError, KeyError, ValueError) as error:
        context.log.warning(f"ReloadNeeded: the webserver didn't reload the location ({type(error).__name__}).")
        return False
    context.log.info(f"asked the webserver to reload the location: {kind}")
    return True
