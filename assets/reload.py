"""Dagster reloads nothing by itself: `observe` compares the manifests' digest with the loaded one and asks the webserver.

A run's own process reads the manifests anew, so what the code location has loaded is told by its jobs' tag, which every
run that it launches carries.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httpx

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import Finding, finding
from resources.files import load_fleet

if TYPE_CHECKING:
    from resources.settings import Settings

log = logging.getLogger("modelplane")
LOCATION = "modelplane"
DIGEST_TAG = "modelplane/manifests"
_MUTATION = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
    ... on PythonError { message }
  }
}
"""


def reload_when_changed(loaded: str, settings: Settings) -> tuple[Finding, ...]:
    """Asks the webserver to reload the location where the manifests aren't the `loaded` ones (by digest). Empty where they
    are or it did; else why the graph lags behind."""
    try:
        behind = lag(loaded, load_fleet(settings.fleet).digest)
    except ConfigError as error:
        return (_needed(f"The manifests can't be read: {error.message}."),)
    if not behind or not settings.webserver:
        return behind
    address = f"{settings.webserver.rstrip('/')}/graphql"
    try:
        answer = httpx.post(address, json={"query": _MUTATION, "variables": {"name": LOCATION}}, timeout=50)
        answer.raise_for_status()
        said = answer.json()["data"]["reloadRepositoryLocation"]
    except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
        return (_needed(f"The webserver didn't reload the changed location ({type(error).__name__})."),)
    entry = said.get("locationOrLoadError") or said
    if entry["__typename"] != "RepositoryLocation":
        return (_needed(f"The changed location didn't load: {entry.get('message', entry['__typename'])}"),)
    log.info("the webserver reloaded the location: the manifests had changed")
    return ()


def lag(loaded: str, on_disk: str) -> tuple[Finding, ...]:
    """Empty where the graph is of the manifests on disk, by their digests."""
    return () if loaded == on_disk else (_needed("The manifests changed since the code location was loaded."),)


def _needed(message: str) -> Finding:
    return finding("ReloadNeeded", "fleet", message)
