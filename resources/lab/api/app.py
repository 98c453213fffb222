"""The HTTP side: an ASGI application that serves every embedded cluster under `/clusters/NAME`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Generic, TypeVar

import orjson

from resources.lab.api import discovery, openapi
from resources.lab.api.clusters import Cluster, ClusterSet, LabCluster
from resources.lab.api.counts import LAB_USERS
from resources.lab.api.errors import ApiError, no_such_path
from resources.lab.api.objects import Objects, Stream
from resources.lab.api.request import Request, is_true
from resources.lab.api.switches import Switches

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PREFIX = "/clusters/"
JSON = b"application/json"
_REVIEWS = {"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews", "subjectaccessreviews"}
_HEALTH = {"healthz", "livez", "readyz"}


def unavailable() -> ApiError:
    return ApiError(503, "the server is currently unable to handle the request")


async def body_of(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(chunks)
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


async def answer(send: Send, status: int, body: bytes, content_type: bytes = JSON) -> None:
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def hang_up(send: Send) -> None:
    """Closes the socket without an answer. ASGI has no word for it, so this reaches for uvicorn's own transport."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is None:
        raise ConnectionAbortedError("the server closes the connection")
    transport.abort()
    # uvicorn answers 500 for an application that returns in silence, unless it knows the client is gone.
    for _ in range(3):
        await asyncio.sleep(0)


C = TypeVar("C", bound=LabCluster)


class Front(ABC, Generic[C]):
    """What stands before every cluster's API: the faults, who is asking, and the count. Other paths than
    `/clusters/NAME/` are not its business: 503, as from a load balancer with nothing behind it."""

    def __init__(self, clusters: ClusterSet[C]) -> None:
        self.clusters = clusters

    @abstractmethod
    async def respond(self, cluster: C, request: Request, receive: Receive, send: Send) -> None:
        """Answers a request that was let in. ApiError is answered by the caller while nothing was sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, _, path = scope["path"].removeprefix(PREFIX).partition("/")
        cluster = self.clusters.get(name) if scope["path"].startswith(PREFIX) else None
        raw = scope.get("raw_path") or scope["path"].encode()
        if b"%" in raw:
            path = raw.decode("latin-1").removeprefix(PREFIX).partition("/")[2]
        request = Request(scope["method"], path, scope["query_string"], dict(scope["headers"]))
        try:
            if cluster is None or not cluster.ready:
                raise unavailable()
            self._authenticate(cluster, request)
            if cluster.faults.slow and request.user not in LAB_USERS:
                await asyncio.sleep(cluster.faults.slow)
            if cluster.faults.drop_connections and request.user not in LAB_USERS:
                await hang_up(send)
                return
            if request.method not in {"GET", "HEAD"}:
                request.body = await body_of(receive)
            self._count(cluster, request)
            await self.respond(cluster, request, receive, send)
        except ApiError as error:
            await answer(send, error.status, orjson.dumps(error.body()))

    @staticmethod
    def _authenticate(cluster: LabCluster, request: Request) -> None:
        if request.parts[0] in _HEALTH:
            request.user = "anonymous"
            return
        token = request.header("authorization").removeprefix("Bearer ").strip()
        user = cluster.tokens.get(token)
        if user is None or (cluster.faults.unauthorized and user not in LAB_USERS):
            raise ApiError(401, "Unauthorized")
        request.user = user

    @staticmethod
    def _count(cluster: LabCluster, request: Request) -> None:
        if request.parts[0] in _HEALTH:
            return
        plural = plural_of(request.parts)
        dry = is_true(request.query.get("dryRun", "").replace("All", "true")) if request.raw_query else False
        cluster.meter.add(request.user, request.method, plural, dry_run=dry, review=plural in _REVIEWS)


def plural_of(parts: list[str]) -> str:
    """The resource that a path names; empty for a document such as discovery's."""
    if not ((parts[0] == "api" and len(parts) > 2) or (parts[0] == "apis" and len(parts) > 3)):
        return ""
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    return rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]


class KubeApp(Front[Cluster]):
    """Answers from the embedded clusters' stores."""

    async def respond(self, cluster: Cluster, request: Request, receive: Receive, send: Send) -> None:
        reply = self._route(cluster, request)
        if isinstance(reply, Stream):
            await _stream(cluster, reply, receive, send)
        else:
            await answer(send, *reply)

    def _route(self, cluster: Cluster, request: Request) -> tuple[int, bytes] | tuple[int, bytes, bytes] | Stream:
        if request.parts[0] in _HEALTH:
            return 200, b"ok", b"text/plain"
        plural = plural_of(request.parts)
        if plural in _REVIEWS and request.method == "POST":
            return 201, orjson.dumps(_review(request))
        if plural:
            return Objects(cluster, request).answer()
        if request.method not in {"GET", "HEAD"}:
            raise ApiError(405, "the server does not allow this method on the requested resource")
        return self._document(cluster, request)

    @staticmethod
    def _document(cluster: Cluster, request: Request) -> tuple[int, bytes] | tuple[int, bytes, bytes]:
        table, parts, accept = cluster.store.table, request.parts, request.header("accept")
        content_type = JSON
        found: dict[str, Any] | None = None
        match parts:
            case ["version"]:
                found = version_of(cluster.switches)
            case ["api" | "apis"] if discovery.wants_aggregated(accept):
                found = discovery.aggregated(table, core=parts == ["api"])
                content_type = discovery.AGGREGATED.encode()
            case ["api"]:
                found = discovery.api_versions(request.header("host"))
            case ["apis"]:
                found = discovery.group_list(table)
            case ["api", version]:
                found = discovery.resource_list(table, "", version)
            case ["apis", group]:
                found = discovery.group(table, group)
            case ["apis", group, version]:
                found = discovery.resource_list(table, group, version)
            case ["openapi", "v3"]:
                found = openapi.index(table)
            case ["openapi", "v3", "api", version]:
                found = openapi.document(table, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = openapi.document(table, group, version)
        if found is None:
            raise no_such_path()
        return 200, orjson.dumps(found), content_type


def version_of(switches: Switches) -> dict[str, Any]:
    """The document of `/version`."""
    git = switches.git_version
    major, minor, *_ = git.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def _review(request: Request) -> dict[str, Any]:
    """Every user may do everything: the lab has no authorization."""
    body = request.json() if request.body and not request.body.startswith(b"k8s\x00") else {}
    status: dict[str, Any] = {"allowed": True, "reason": "the lab allows everything"}
    if request.parts[-1] == "selfsubjectreviews":
        status = {"userInfo": {"username": request.user, "groups": ["system:authenticated"]}}
    return {"metadata": {}, **body, "status": status}


async def _stream(cluster: Cluster, stream: Stream, receive: Receive, send: Send) -> None:
    """Sends a watch until it ends, the client goes, or the cluster does."""
    headers = [(b"content-type", JSON), (b"transfer-encoding", b"chunked")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # Headers go out with the first chunk; an empty one makes clients see that the watch is on.
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    gone = asyncio.ensure_future(_disconnected(receive, stream.feed.close))
    cluster.watches.add(stream.feed.close)
    try:
        async for chunk in stream.feed.lines():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        cluster.watches.discard(stream.feed.close)
        gone.cancel()


async def _disconnected(receive: Receive, then: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    then()
