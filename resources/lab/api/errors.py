"""Refusals of the API as `Status` bodies, worded as kube-apiserver words them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`: `reason` is such as FieldValueInvalid, `field` a dotted path."""

    reason: str
    message: str
    field: str = ""

    def as_dict(self) -> dict[str, str]:
        body = {"reason": self.reason, "message": self.message}
        return {**body, "field": self.field} if self.field else body


class ApiError(Exception):
    """A refusal. `status` is the HTTP status; `reason` defaults to the usual word for it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str = "",
        details: dict[str, Any] | None = None,
        causes: tuple[Cause, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or REASONS.get(status, "Unknown")
        self.details = details or {}
        self.causes = causes

    def body(self) -> dict[str, Any]:
        details = dict(self.details)
        details_sent = bool(details or self.causes) or self.status == 404
        if self.causes:
            details["causes"] = [cause.as_dict() for cause in self.causes]
        out: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }
        if details_sent:
            out["details"] = details
        return out


def _details(name: str, group: str, kind: str) -> dict[str, str]:
    parts = {"name": name, "group": group, "kind": kind}
    return {key: part for key, part in parts.items() if part}


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(404, f'{qualified(plural, group)} "{name}" not found', details=_details(name, group, plural))


def no_such_path() -> ApiError:
    return ApiError(404, "the server could not find the requested resource", details={})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=_details(name, group, plural))


_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def modified(plural: str, group: str, name: str, why: str = _MODIFIED) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, message, details=_details(name, group, plural))


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" is forbidden: {why}'
    return ApiError(403, message, details=_details(name, group, plural))


def invalid(kind: str, group: str, name: str, causes: tuple[Cause, ...]) -> ApiError:
    """422 with every cause; the message repeats them as `field: message`."""
    parts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    joined = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {joined}'
    return ApiError(422, message, details=_details(name, group, kind), causes=causes)


def bad_request(message: str) -> ApiError:
    return ApiError(400, message)
