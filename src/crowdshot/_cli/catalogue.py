"""``crowdshot encoders`` and ``crowdshot methods``: list the shipped encoders and the methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import print_json
from crowdshot._cli.options import AsJson
from crowdshot.io.json_text import OPTIONAL

if TYPE_CHECKING:
    from crowdshot.methods import Method


DEFAULT_FOR = {
    "glyphs-protonet": "; the default for grey images",
    "photo-lite0-protonet": "; the default for colour images",
    "photo-protonet": "; the default for colour images where the extra images is missing",
}
TRAINED_BY = {
    "mixture": " through the paper's mixture",
    "prototypical": " as a prototypical network",
    "maml": " by MAML",
    "lnl": " for LNL",
}


def describe_encoders() -> dict[str, str]:
    """Return a line of text for each encoder."""
    from crowdshot.encoders.shipped import LIBRARIES, describe_input, shipped_encoders, weights_file
    from crowdshot.io.cards import read_card

    lines = {
        "identity": "feature vectors, unchanged; the default for feature vectors",
        "table": "numbers, categories and missing cells, scaled and one-hot encoded; the default for such tables",
        "texts": "texts, by TF-IDF and a sentence network (which needs the extra texts); the default for texts",
        "lite0": "photographs; a frozen EfficientNet-Lite0, trained on ImageNet (needs the extra images)",
        "lite0-fast": "lite0 at 128×128 pixels: three times as fast, slightly less accurate (needs the extra images)",
    }
    for name in shipped_encoders():
        card = read_card(weights_file(name), "encoder")
        input_text = describe_input(card["input"])
        recipe = card.get("recipe", {})
        how = TRAINED_BY.get(recipe.get("objective"), "")
        if recipe.get("pseudo_annotation"):
            how += ", with simulated annotators"
        extra = " (needs the extra images)" if card["architecture"] == "lite0" else ""
        learned_from = card.get("source", {}).get("learned_from")  # the other classes were for validation and test
        data = f"{learned_from:,} of {card.get('trained_on')}" if learned_from else card.get("trained_on")
        lines[name] = f"{input_text}, trained on {data}{how}{DEFAULT_FOR.get(name, '')}{extra}"
    for library, entry in LIBRARIES.items():
        lines[f"{library}:…"] = f"{entry.summary} (needs the extra {entry.extra})"
    return lines


@dataclass(frozen=True)
class MethodDescription:
    """A method as `crowdshot methods` lists it.

    Attributes
    ----------
    name, summary : str
        The name, and a line about the method.
    needs, train : str or None
        The meta-training that the method needs, and the command that does it; None for none.
    encoders : list of str
        The default encoders of images.
    default : mapping
        The default settings.
    candidates : mapping
        The values of each setting that the paper compares.
    documentation : str or None
        The documentation, if one method is described.
    """

    name: str
    summary: str
    needs: str | None
    train: str | None
    encoders: list[str]
    default: Mapping[str, Any]
    candidates: Mapping[str, list[Any]]
    documentation: str | None = field(default=None, metadata=OPTIONAL)


def describe_methods() -> list[MethodDescription]:
    from crowdshot.methods import METHODS

    return [_describe(one) for one in METHODS.values()]


def describe_method(name: str) -> MethodDescription:
    """Describe a method with its documentation."""
    from crowdshot.methods import find

    one = find({"auto": "combined", "paper": "Ours"}.get(name.lower(), name))
    return replace(_describe(one), documentation=one.documentation)


def _describe(one: Method) -> MethodDescription:
    from crowdshot.encoders.shipped import shipped_encoders
    from crowdshot.methods import encoder_names, training_command

    values_of: dict[str, list[Any]] = {}
    for candidate in one.candidates:
        for setting, value in candidate.items():
            values_of.setdefault(setting, []).append(value)
    return MethodDescription(
        name=one.name,
        summary=one.summary,
        needs=None if one.needs is None else str(one.needs),
        train=None if one.needs is None else training_command(one.needs),
        encoders=[name for name in encoder_names(one.needs) if name in shipped_encoders()] if one.needs else [],
        default=dict(one.default),
        candidates={setting: sorted(set(values)) for setting, values in values_of.items()},
    )


def methods_as_text(found: Sequence[MethodDescription]) -> str:
    """Return a line for each method, and the documentation below it if there is one."""
    return "\n".join(_line(one) + (f"\n\n{one.documentation}" if one.documentation else "") for one in found)


def _line(one: MethodDescription) -> str:
    encoder = " or ".join(one.encoders) or (f"your own, from {one.train}" if one.needs else "none")
    settings = [_setting(name, value, one.candidates.get(name, [])) for name, value in one.default.items()]
    text = f"; settings: {', '.join(settings)}" if settings else ""
    return f"{one.name}: {one.summary}; encoder: {encoder}{text}"


def _setting(name: str, default: Any, candidates: list[Any]) -> str:
    """Return the default and the values that the paper compares, such as "C=1 (0.0001 0.001 …)"."""
    return f"{name}={_value(default)}" + (f" ({' '.join(map(_value, candidates))})" if candidates else "")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


EXAMPLES = """\b
Examples:
  crowdshot methods
  crowdshot methods MCL
"""


def encoders(as_json: AsJson = False) -> None:
    """List the encoders, which embed items."""
    lines = describe_encoders()
    typer.echo(json.dumps(lines) if as_json else "\n".join(f"{name}: {line}" for name, line in lines.items()))


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A method, to print its documentation.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods of `adapt --method` and their settings."""
    found = describe_methods() if name is None else [describe_method(name)]
    if as_json:
        print_json(found if name is None else found[0])
    else:
        typer.echo(methods_as_text(found))
