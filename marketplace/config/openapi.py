"""What the published API description holds: the public paths, and the errors that any of them may answer with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

PUBLIC_PREFIX: Final = "/api/v1/"
ERROR: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorView"}}}
METHODS_THAT_READ: Final = frozenset({"get", "head", "options"})
# Status -> the name of its answer, and what it means.
ANSWERS: Final = {
    "400": ("BadRequest", "The request is wrong; details say where."),
    "401": ("NotSignedIn", "The key or session is missing, unknown or expired."),
    "403": ("Forbidden", "This key, or this member, may not do it."),
    "404": ("NotFound", "No such thing, or not yours."),
    "409": ("Conflict", "Not possible in the present state; `code` says why."),
    "413": ("TooLarge", "The body is too large."),
    "415": ("UnknownType", "The body is of a type that is not read here."),
    "429": ("TooMany", "Too many requests; `Retry-After` says when to try again."),
    "503": ("Unavailable", "Not set up here, or out of reach at the moment."),
}


def keep_public_paths(endpoints: Sequence[tuple[str, str, str, Any]], **_: Any) -> list[tuple[str, str, str, Any]]:
    """Only the customers' and providers' API; a drf-spectacular preprocessing hook."""
    return [endpoint for endpoint in endpoints if endpoint[0].startswith(PUBLIC_PREFIX)]


def name_errors(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the errors that do not depend on what an operation does; a drf-spectacular postprocessing hook."""
    result["components"]["responses"] = {
        name: {"description": meaning, "content": ERROR} for name, meaning in ANSWERS.values()
    }
    for operations in result["paths"].values():
        for method, operation in operations.items():
            for status in _statuses(method, operation):
                answer = {"$ref": f"#/components/responses/{ANSWERS[status][0]}"}
                operation["responses"].setdefault(status, answer)
            operation["responses"] = dict(sorted(operation["responses"].items()))
    return result


def _statuses(method: str, operation: dict[str, Any]) -> list[str]:
    found = ["400", "401", "403", "404", "429", "503"]
    if method not in METHODS_THAT_READ:
        found.append("409")
    if "requestBody" in operation:
        found += ["413", "415"]
    return found
