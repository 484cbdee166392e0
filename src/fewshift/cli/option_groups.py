"""Options that several commands share, as one value: a frozen dataclass whose fields are typer's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: a parameter of such a class gives way to the class's fields.

    They stand in its place in the help, and the command gets them back as one value. All parameters are
    passed by name, so their order is free.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    seen: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if parameter.name in groups:
            seen += _options(groups[parameter.name])
        else:
            seen.append(parameter.replace(annotation=hints[parameter.name]))

    @wraps(command)
    def spread(**given: Any) -> None:
        values = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **given)

    spread.__signature__ = signature(command).replace(parameters=seen)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    return spread


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
