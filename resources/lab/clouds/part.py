"""The simulated clouds in the lab's daemon: five over plain HTTP on one loopback port, Nebius over gRPC on its own."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from resources.lab.clouds import aks, civo, eks, gke, vultr
from resources.lab.clouds.nebius import NebiusSim
from resources.lab.clouds.state import CloudState, Delays, Endpoint, Fault, Hooks, Traits

if TYPE_CHECKING:
    from resources.lab.daemon import Lab

T = TypeVar("T")
_HTTP: Mapping[str, tuple[Callable[[CloudState], Any], Any, Traits | None]] = {
    "EKS": (eks.EksSim, eks.dress, None),
    "GKE": (gke.GkeSim, gke.dress, gke.TRAITS),
    "AKS": (aks.AksSim, aks.dress, None),
    "Vultr": (vultr.VultrSim, vultr.dress, None),
    "Civo": (civo.CivoSim, civo.dress, None),
}
# What admission refuses on each cloud's clusters, as the real ones do.
_SWITCHES: Mapping[str, dict[str, bool]] = {
    "GKE": {"critical_pods_quota": True},
    "AKS": {"refuse_keyless_tolerations": True},
}


class CloudsPart:
    """`states` holds each cloud's; `endpoints` is known once started."""

    def __init__(self) -> None:
        self.states: dict[str, CloudState] = {}
        self.endpoints: dict[str, str] = {}
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._nebius: NebiusSim | None = None

    async def start(self, lab: Lab) -> None:
        loop = asyncio.get_running_loop()
        thread = threading.get_ident()
        delays = Delays.from_env(os.environ)
        folder = lab.home / "clouds"
        folder.mkdir(parents=True, exist_ok=True)

        def on_loop(work: Callable[[], T]) -> T:
            """Stores belong to the loop's thread; Nebius's calls come from its own."""
            if threading.get_ident() == thread:
                return work()

            async def run() -> T:
                return work()

            return asyncio.run_coroutine_threadsafe(run(), loop).result(timeout=10)

        def hooks(source: str) -> Hooks:
            return Hooks(
                ready=lambda name, version: on_loop(lambda: _ready(lab, source, name, version)),
                gone=lambda name: on_loop(lambda: lab.clusters.remove_cluster(name)),
                # Called while a state's lock is held, for which the loop may be waiting: it only reads, so it needs no hop.
                endpoint=lambda name: _endpoint(lab, name),
            )

        apps = []
        for source, (make, dress, traits) in _HTTP.items():
            state = CloudState(source, folder, delays=delays, traits=traits, hooks=hooks(source), dress=dress)
            self.states[source] = state
            apps.append(Mount(f"/clouds/{source.lower()}", app=make(state)))
        nebius = CloudState("Nebius", folder, delays=delays, traits=NebiusSim.traits, hooks=hooks("Nebius"))
        self.states["Nebius"] = nebius
        self._nebius = NebiusSim(nebius)
        self.endpoints["Nebius"] = self._nebius.start()
        await self._serve(Starlette(routes=apps))

    async def _serve(self, app: Starlette) -> None:
        # asyncio turns Nagle's delay (40 ms an answer) off for sockets that name their protocol, and for no others.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.bind(("127.0.0.1", 0))
        sock.listen(256)
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self.endpoints |= {source: f"{address}/clouds/{source.lower()}" for source in _HTTP}
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", http="httptools", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        # The lab's own server handles the signals.
        self._serving = asyncio.ensure_future(self._server._serve([sock]))

    async def stop(self) -> None:
        if self._nebius is not None:
            await asyncio.to_thread(self._nebius.stop)
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving

    def status(self) -> dict[str, Any]:
        """By source: where it answers, and how many reads, writes and deletes it took."""
        return {
            source: {"endpoint": self.endpoints.get(source, ""), **_totals(state), "faults": _faults(state)}
            for source, state in sorted(self.states.items())
        }

    def cloud_of(self, cluster: str) -> CloudState | None:
        """The cloud that holds a cluster of this name; None for none."""
        return next((s for s in self.states.values() if s.cluster(cluster) is not None), None)

    def set_fault(self, subject: str, kind: str, *, on: bool) -> bool:
        """Of `cloud/SOURCE`, of the cloud that holds the subject's cluster, or of every cloud while none does: it may not be
        made yet. Cleared everywhere. False for a cloud that isn't there; raises ValueError for a kind that clouds don't
        have."""
        fault = Fault(kind)
        whole, _, name = subject.partition("/")
        if whole == "cloud":
            states = [self.states[name]] if name in self.states else []
        else:
            owner = self.cloud_of(name.split("/")[0]) if on else None
            states = [owner] if owner is not None else list(self.states.values())
        for state in states:
            if on:
                state.set_fault(subject, fault)
            else:
                state.clear_fault(subject, fault)
        return bool(states)


def _totals(state: CloudState) -> dict[str, int]:
    """Under the same words as a cluster's."""
    return {f"{kind}s": count for kind, count in state.totals().items()}


def _faults(state: CloudState) -> list[str]:
    return sorted(f"{subject} {kind.value}" for subject, kind in state.faults())


def _ready(lab: Lab, source: str, name: str, version: str) -> None:
    lab.clusters.add_cluster(name, server_version(version), **_SWITCHES.get(source, {}))


def server_version(declared: str) -> str:
    """The version as a server writes it: a minor alone gets a patch, a leading v is added."""
    text = declared.removeprefix("v")
    head, plus, tail = text.partition("+")
    if head.count(".") == 1:
        head += ".0"
    return f"v{head}{plus}{tail}"


def _endpoint(lab: Lab, name: str) -> Endpoint:
    if lab.clusters.get(name) is None:
        return Endpoint("")
    config = lab.clusters.kubeconfig(name, "product")
    user = config["users"][0]["user"]
    return Endpoint(f"{lab.clusters.address}/clusters/{name}", lab.clusters.authority.decode(), user["token"])
