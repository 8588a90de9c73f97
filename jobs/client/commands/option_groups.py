"""Options that many commands share, written once: a frozen dataclass, whose fields Typer sees as the command's own.

@dataclass(frozen=True, kw_only=True)
class Way:
    rpc_url: Annotated[str, typer.Option("--rpc-url")]
    as_json: Annotated[bool, typer.Option("--json")] = False

def show(job: str, *, way: Way) -> None: ...

app.command("show")(with_groups(show))
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command for Typer: in place of each parameter that is a dataclass, its fields, in their order."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    seen: list[Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if dataclasses.is_dataclass(hint):
            groups[parameter.name] = hint
            seen += _options(hint)
        else:
            seen.append(parameter.replace(annotation=hint))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    as_typer_sees: Any = call
    as_typer_sees.__signature__ = inspect.Signature(seen)
    as_typer_sees.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    return call


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
