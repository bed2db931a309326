"""Read boxes and spans of several annotators.

Tables have a row for each box or span: item, annotator, label and ``x, y, width, height``, or ``xmin, ymin, xmax,
ymax``, or ``start, end``. A row without coordinates says that the annotator looked at the item and marked nothing.
Exports of Label Studio (rectangles and text spans), CVAT (boxes), doccano (spans) and COCO are read too. A file of CVAT
is of its assignee; a file of doccano or COCO, or of CVAT without an assignee, is of one annotator, whom its name names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_record, as_records
from crowdshot.io.tables import Record, Table
from crowdshot.labels.columns import find_columns, plain
from crowdshot.labels.formats import cvat
from crowdshot.labels.formats.label_file import LabelFile, distinct_names
from crowdshot.labels.formats.label_studio import TASK, user_of
from crowdshot.labels.formats.question_choice import is_picture
from crowdshot.labels.object_matching import Region

NAMES = {  # role -> usual names of its column
    "x": ("x", "left", "bboxx", "boxx"),
    "y": ("y", "top", "bboxy", "boxy"),
    "width": ("width", "w", "bboxwidth", "boxwidth"),
    "height": ("height", "h", "bboxheight", "boxheight"),
    "xmin": ("xmin", "x1", "left"),
    "ymin": ("ymin", "y1", "top"),
    "xmax": ("xmax", "x2", "right"),
    "ymax": ("ymax", "y2", "bottom"),
    "start": ("start", "startoffset", "begin", "from", "spanstart", "startchar"),
    "end": ("end", "endoffset", "stop", "to", "spanend", "endchar"),
}
LAYOUTS = (("x", "y", "width", "height"), ("xmin", "ymin", "xmax", "ymax"), ("start", "end"))
ROLES = ("item", "annotator", "label", *NAMES)
COCO = {"images", "annotations", "categories"}
DOCCANO = ("label", "labels", "entities")


def read_regions(
    paths: Sequence[Any], columns: Mapping[str, str] | None = None, sheet: str | None = None
) -> list[Region]:
    """Read the boxes or spans of one or more files.

    Parameters
    ----------
    paths : sequence of path-like
    columns : mapping, optional
        {role: column} of a table, if its columns are not recognised; the roles are in `ROLES`.
    sheet : str, optional
        The sheet of a workbook.
    """
    names: list[str] | list[None] = distinct_names(paths) if len(paths) > 1 else [None] * len(paths)
    found: list[Region] = []
    for path, name in zip(paths, names, strict=True):
        file = LabelFile(path, name, sheet)
        found += _regions(file, dict(columns or {}))
    if not any(region.corners for region in found):
        source = listing([str(path) for path in paths], 3)
        raise CrowdshotError("has no box and no span", where=source, expected="one at least")
    return found


def _regions(file: LabelFile, columns: dict[str, str]) -> Iterable[Region]:
    is_cvat = cvat.recognises(file)
    read = None if is_cvat else _reader(file.first)
    if not is_cvat and read is None:
        return _table(file.table, columns)
    if columns:
        raise CrowdshotError(
            f"names columns, but {file.name} is an export of a label tool", argument="columns", found=columns
        )
    if read is None:
        return _cvat(file)
    return (region for record in file.records for region in read(record, file.annotator or file.stem))


def _reader(fields: Mapping[str, Any]) -> Callable[[Record, str], Iterator[Region]] | None:
    """Return the reader of the label tool that wrote the file, None for a table."""
    if set(fields) >= TASK:
        return _label_studio
    if set(fields) >= COCO:
        return _coco
    is_doccano = {"text", "id"} <= set(fields) and any(isinstance(fields.get(name), list) for name in DOCCANO)
    return _doccano if is_doccano else None


def _region(item: str, annotator: str, label: Any, corners: Sequence[Any], place: str) -> Region:
    """Return a region; ``corners`` are those of a box, or the start and end of a span."""
    name = text(label)
    numbers = tuple(_number(value, place) for value in corners)
    half = len(numbers) // 2
    for what, missing in (("item", not item), ("annotator", not annotator), ("label", not name)):
        if missing:
            raise CrowdshotError(f"has no {what}", where=place, expected=f"the {what} of the region")
    if not all(low < high for low, high in zip(numbers[:half], numbers[half:], strict=True)):
        raise CrowdshotError(
            "is a region without any size", where=place, found=list(numbers), expected="a size above 0"
        )
    return Region(item, annotator, name or "", numbers)


def _number(value: Any, place: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= 1e12:
        raise CrowdshotError(f"has the coordinate {value!r}"[:200], where=place, found=value, expected="a number")
    return number


# ---- tables --------------------------------------------------------------------------------------------------------


def _table(table: Table, columns: dict[str, str]) -> Iterator[Region]:
    odd = next((role for role in columns if role not in ROLES), None)
    if odd is not None:
        raise CrowdshotError(f"names {odd!r}", argument="columns", found=odd, expected=f"some of {listing(ROLES)}")
    layout, places = _coordinates(table, columns)
    used = {table.header[place] for place in places}
    others = [name for name in table.header if name not in used]
    roles = {role: name for role, name in columns.items() if role in ("item", "annotator", "label")}
    names = find_columns(others, roles or None, table.name)
    words = [table.text(table.header.index(name)) for name in names]
    cells = [table.text(place) for place in places]
    for row, (item, annotator, label) in enumerate(zip(*words, strict=True)):
        place = f"{table.name}, row {table.rows[row]}"
        values = [column[row].replace(",", ".") if table.decimal_comma else column[row] for column in cells]
        if not any(values):
            if not item or not annotator:
                raise CrowdshotError("has no item or no annotator", where=place)
            yield Region(item, annotator, "", ())
            continue
        if layout == LAYOUTS[0]:
            x, y, width, height = (_number(value, place) for value in values)
            values = [x, y, x + width, y + height]
        yield _region(item, annotator, label, values, place)


def _coordinates(table: Table, columns: Mapping[str, str]) -> tuple[tuple[str, ...], list[int]]:
    """Return the layout of the coordinates, and the positions of their columns."""
    known = {plain(name): place for place, name in reversed(list(enumerate(table.header)))}
    for layout in LAYOUTS:
        places = []
        for role in layout:
            if role in columns:
                if columns[role] not in table.header:
                    raise CrowdshotError(
                        f"has no column {columns[role]!r} for {role}",
                        where=table.name,
                        found=columns[role],
                        among=table.header,
                    )
                places.append(table.header.index(columns[role]))
            else:
                places += [known[name] for name in NAMES[role] if name in known][:1]
        if len(places) == len(layout) == len(set(places)):
            return layout, places
    raise CrowdshotError(
        "has no columns with coordinates",
        where=table.name,
        found=table.header,
        expected="x, y, width, height, or xmin, ymin, xmax, ymax, or start, end",
        hint=Use("if they have other names", columns={"x": "NAME"}),
    )


# ---- exports of tools ----------------------------------------------------------------------------------------------


def _label_studio(record: Record, annotator: str) -> Iterator[Region]:
    """Yield the rectangles and text spans of a task; rectangles are in percent of the image."""
    data = as_record(record.fields.get("data"), f"{record.place}, data")
    item = text(next(filter(is_picture, data.values()), record.fields.get("id"))) or ""
    for annotation in as_records(record.fields.get("annotations"), f"{record.place}, annotations"):
        if annotation.get("was_cancelled") is True:
            continue
        who = user_of(annotation.get("completed_by")) or annotator
        yield Region(item, who, "", ())
        for result in as_records(annotation.get("result"), f"{record.place}, result"):
            kind, value = result.get("type"), as_record(result.get("value") or {}, f"{record.place}, value")
            labels = value.get(kind) if isinstance(kind, str) else None
            label = labels[0] if isinstance(labels, list) and labels else None
            if kind == "rectanglelabels":
                yield _region(item, who, label, _rectangle(value, record.place), record.place)
            elif kind == "labels":
                yield _region(item, who, label, [value.get("start"), value.get("end")], record.place)


def _refuse_rotation(rotation: Any, place: str) -> None:
    if rotation is not None and _number(rotation, place) != 0:
        raise CrowdshotError("has a rotated box", where=place, found=rotation, expected="boxes without rotation")


def _rectangle(value: Mapping[str, Any], place: str) -> list[float]:
    _refuse_rotation(value.get("rotation"), place)
    x, y, width, height = (_number(value.get(name), place) for name in LAYOUTS[0])
    return [x, y, x + width, y + height]


def _cvat(file: LabelFile) -> Iterator[Region]:
    export = cvat.parse_export(file)
    annotator = cvat.annotator_of(export, file)
    for image in export.images:
        yield Region(image.name, annotator, "", ())
        for line, box in image.boxes:
            place = f"{file.name}, line {line}"
            _refuse_rotation(box.get("rotation"), place)
            corners = [box.get(name) for name in ("xtl", "ytl", "xbr", "ybr")]
            yield _region(image.name, annotator, box.get("label"), corners, place)


def _doccano(record: Record, annotator: str) -> Iterator[Region]:
    item = text(record.fields.get("id")) or ""
    yield Region(item, annotator, "", ())
    spans = next((value for name in DOCCANO if isinstance(value := record.fields.get(name), list)), [])
    for span in spans:
        if isinstance(span, dict):
            span = [span.get("start_offset"), span.get("end_offset"), span.get("label")]
        if not isinstance(span, list) or len(span) != 3:
            raise CrowdshotError("holds something that is no span", where=record.place, expected="[start, end, label]")
        yield _region(item, annotator, span[2], span[:2], record.place)


def _coco(record: Record, annotator: str) -> Iterator[Region]:
    images, annotations, categories = (
        as_records(record.fields.get(name), f"{record.place}, {name}")
        for name in ("images", "annotations", "categories")
    )
    items = {text(each.get("id")): text(each.get("file_name")) or text(each.get("id")) or "" for each in images}
    names = {text(each.get("id")): each.get("name") for each in categories}
    for item in items.values():
        yield Region(item, annotator, "", ())
    for number, each in enumerate(annotations, 1):
        place = f"{record.place}, annotation {number}"
        box = each.get("bbox")
        if not isinstance(box, list) or len(box) != 4:
            raise CrowdshotError("has no box", where=place, expected="bbox, four numbers")
        x, y, width, height = (_number(value, place) for value in box)
        label = names.get(text(each.get("category_id")))
        yield _region(items.get(text(each.get("image_id")), ""), annotator, label, [x, y, x + width, y + height], place)
