"""Before every plane's API server: the lab's faults and counts, and its one address. All else passes through unchanged."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import orjson
from yarl import URL

from resources.lab.api.app import Front, Receive, Send, answer, hang_up, unavailable, version_of
from resources.lab.api.clusters import ClusterSet
from resources.lab.api.request import Request
from resources.lab.plane.clusters import PlaneCluster

# Of this connection and not of the next one (RFC 9110, 7.6.1), and what uvicorn or aiohttp sets itself.
_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length"}
)
_CONNECTIONS = 256


class PlaneFront(Front[PlaneCluster]):
    """A reverse proxy. `/version` alone is the lab's own: a cluster is as old as its cloud made it, whatever runs behind."""

    def __init__(self, clusters: ClusterSet[PlaneCluster]) -> None:
        super().__init__(clusters)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def respond(self, cluster: PlaneCluster, request: Request, receive: Receive, send: Send) -> None:
        if not cluster.up:
            raise unavailable()
        if request.parts == ["version"]:
            await answer(send, 200, orjson.dumps(version_of(cluster.switches)))
            return
        asked = asyncio.ensure_future(self._pass(cluster, request, send))

        def cancel() -> None:
            asked.cancel()

        cluster.watches.add(cancel)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and not asked.cancelled():
                await asked
        finally:
            cluster.watches.discard(cancel)
            gone.cancel()
            asked.cancel()
            with suppress(asyncio.CancelledError, aiohttp.ClientError):
                await asked

    async def _pass(self, cluster: PlaneCluster, request: Request, send: Send) -> None:
        query = f"?{request.raw_query.decode('latin-1')}" if request.raw_query else ""
        url = URL(f"{cluster.plane.address}/{request.path}{query}", encoded=True)
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.items() if k not in _HOP]
        session = self._opened()
        context = cluster.plane.client_context
        try:
            async with session.request(
                request.method, url, headers=headers, data=request.body or None, ssl=context, allow_redirects=False
            ) as reply:
                raw = [(k.lower(), v) for k, v in reply.raw_headers if k.lower() not in _HOP]
                if reply.content_length is not None:
                    raw.append((b"content-length", str(reply.content_length).encode()))
                await send({"type": "http.response.start", "status": reply.status, "headers": raw})
                # An empty chunk sends the headers: a watch that has no event yet is on all the same.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
                async for chunk in reply.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (aiohttp.ClientError, ConnectionError):
            # As a client sees it that asks the API server itself: its connection breaks.
            await hang_up(send)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, limit_per_host=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=5),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
