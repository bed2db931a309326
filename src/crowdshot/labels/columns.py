"""Which columns of a table hold the item, the annotator and the label."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.wording import listing


class Columns(NamedTuple):
    """What a table calls its three columns; tables that go out use the names that came in."""

    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"


GivenColumns = Columns | Mapping[str, str] | Sequence[str] | None

# For each column three ranks of names; the first rank that any column of the table matches decides.
ALIASES: dict[str, tuple[str, str, str]] = {
    "item": (
        "item",
        "task image file filename filepath imagepath imagefile imagename picture photo example sample instance"
        " object question unit document text url uri hit",
        "id name path index key",
    ),
    "annotator": (
        "annotator",
        "worker user labeler labeller rater coder labeledby labelledby annotatedby judge reviewer expert"
        " participant contributor performer",
        "person who by email username",
    ),
    "label": (
        "label",
        "answer class annotation choice category response vote rating judgment judgement verdict",
        "value target y",
    ),
}

# Columns of tables that have more than labels; what a wide table calls so is no annotator.
TRUTH = {"truth", "gold", "true", "truelabel", "goldlabel", "groundtruth", "correct", "correctlabel", "goldstandard"}
NO_ANNOTATOR = {
    *("note", "notes", "comment", "comments", "remark", "remarks", "description", "caption", "tags", "width", "height"),
    *("size", "split", "fold", "set", "source", "url", "link", "date", "time", "timestamp", "created", "updated"),
    *("consensus", "majority", "confidence", "agreement"),
}


def plain(name: Any) -> str:
    """A column's name without case, spaces and the like: ``True Label`` is truelabel."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def find_columns(found: Iterable[Any], columns: GivenColumns = None, source: str = "the table") -> Columns:
    """The names of the three columns: those given, the others by their aliases.

    ``columns`` may be ``Columns``, three names in its order, or a mapping that names some of the three. Case, spaces,
    ``_`` and a final ``id`` or ``name`` do not matter to an alias: ``Worker ID`` is a worker.
    """
    found = list(found)
    given = _given(columns)
    free = [name for name in found if name not in given.values()]
    names = Columns(*(given[role] if role in given else _match(role, free, source) for role in Columns._fields))
    for role, name in zip(Columns._fields, names, strict=True):
        if found.count(name) != 1:
            times = "more than one" if name in found else "no"
            raise CrowdshotError(
                f"{source} has {times} column {name!r} for the {role} among {listing(found)}, expected one."
            )
    if len(set(names)) < len(names):
        raise CrowdshotError(f"columns names {listing(names)}, expected three different ones.")
    return names


def _given(columns: GivenColumns) -> dict[str, str]:
    roles = Columns._fields
    if columns is None:
        return {}
    if isinstance(columns, Mapping) and set(columns) <= set(roles):
        return dict(columns)
    if isinstance(columns, tuple | list) and len(columns) == len(roles):
        return dict(zip(roles, columns, strict=True))
    raise CrowdshotError(f"columns is {columns!r}, expected three names or a mapping with keys among {listing(roles)}.")


def _match(role: str, found: list[Any], source: str) -> Any:
    exact = {name: plain(name) for name in found}
    without_id = {name: word.removesuffix("id").removesuffix("name") for name, word in exact.items()}
    for aliases in ALIASES[role]:
        for words in (exact, without_id):
            matches = [name for name, word in words.items() if word in aliases.split()]
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise CrowdshotError(
                    f"{source} has {len(matches)} columns that could be the {role}, {listing(matches)}, expected one;"
                    f" columns={{{role!r}: …}} says which."
                )
    known = " ".join(ALIASES[role][:2]).split()[:7]
    among = f" among {listing(found)}" if found else ""
    raise CrowdshotError(
        f"{source} has no column for the {role}{among}, expected one called"
        f" {', '.join(known)} or the like; columns={{{role!r}: …}} names another."
    )
