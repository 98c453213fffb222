"""A small ASGI app for clouds that speak HTTP: routes, throttling and replies that get lost."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from resources.lab.clouds.state import CloudState, Fault, Kind

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `path` is below the mount point, `base` the URL of the mount point, `parts` the route's groups."""

    method: str
    path: str
    base: str
    query: dict[str, str]
    headers: dict[str, str]
    raw: bytes
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:  # noqa: ANN401 - a JSON value has no narrower type
        return json.loads(self.raw) if self.raw else {}

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.raw.decode(), keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is JSON unless it is bytes. `subject` names what a write acted on, for replies that get lost."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """`pattern` matches the whole path; `meaning` is what the counts show beside the method."""

    method: str
    pattern: re.Pattern[str]
    kind: Kind
    meaning: str
    handler: Callable[[Call], Reply]


class Wire:
    """An ASGI app over a list of routes. `throttled` and `missing` make the cloud's own error bodies."""

    def __init__(
        self,
        state: CloudState,
        *,
        throttled: Callable[[], Reply],
        missing: Callable[[Call], Reply],
    ) -> None:
        self.state = state
        self._routes: list[Route] = []
        self._throttled = throttled
        self._missing = missing

    def route(self, method: str, pattern: str, kind: Kind, meaning: str, handler: Callable[[Call], Reply]) -> None:
        self._routes.append(Route(method, re.compile(pattern), kind, meaning, handler))

    def classify(self, route: Route, call: Call) -> tuple[Kind, str]:
        """How a call counts; for protocols whose paths don't tell, a subclass looks into the call."""
        return route.kind, f"{call.method} {route.meaning}"

    def answer(self, call: Call) -> Reply:
        """Counts the call and runs it; a throttled one counts as asked and does nothing."""
        for route in self._routes:
            match = route.pattern.fullmatch(call.path) if route.method == call.method else None
            if match is None:
                continue
            self.state.count(*self.classify(route, call))
            if self.state.take_fault(f"cloud/{self.state.source}", Fault.THROTTLING):
                return self._throttled()
            self.state.settle()
            parts = {name: unquote(part or "") for name, part in match.groupdict().items()}
            with self.state.lock:
                return route.handler(Call(call.method, call.path, call.base, call.query, call.headers, call.raw, parts))
        return self._missing(call)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        raw = b""
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        root = scope.get("root_path", "")
        call = Call(
            method=scope["method"],
            path=scope["path"].removeprefix(root) or "/",
            base=f"{scope.get('scheme', 'http')}://{headers.get('host', '127.0.0.1')}{root}",
            query=dict(parse_qsl(scope.get("query_string", b"").decode(), keep_blank_values=True)),
            headers=headers,
            raw=raw,
        )
        await self._send(send, self.answer(call))

    async def _send(self, send: Send, reply: Reply) -> None:
        body = (
            reply.body
            if isinstance(reply.body, bytes)
            else b""
            if reply.body is None
            else json.dumps(reply.body).encode()
        )
        headers = {"content-type": "application/json", **reply.headers}
        lost = bool(reply.subject) and self.state.take_fault(reply.subject, Fault.LOST_REPLY)
        # A body shorter than announced makes the server drop the connection, so the caller can't tell what was done.
        headers["content-length"] = str(len(body) + (1000 if lost else 0))
        start = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": start})
        await send({"type": "http.response.body", "body": body, "more_body": lost})
