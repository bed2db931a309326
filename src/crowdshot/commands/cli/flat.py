"""Commands whose options are grouped in dataclasses."""

import functools
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclasses as arguments, which is how typer wants them."""
    groups: dict[str, Any] = {name: kind for name, kind in get_type_hints(command).items() if is_dataclass(kind)}
    arguments: list[Parameter] = []
    for name, argument in signature(command).parameters.items():
        if name not in groups:
            arguments.append(argument.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        for field in fields(groups[name]):
            default = Parameter.empty if field.default is MISSING else field.default
            arguments.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        command(**values, **given)

    vars(run)["__signature__"] = Signature(arguments)
    run.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    return run
