"""Read exports of CVAT in the format "CVAT for images 1.1": an XML file per job, or the ZIP file with it.

A label is an image's ``<tag label="…">``. CVAT does not record who set a tag or drew a box, so all labels of a file
belong to one annotator: the assignee in its ``<meta>`` element or, without a single assignee, the name of the file.
`formats.regions` reads the boxes.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from xml.sax import SAXParseException
from xml.sax.expatreader import ExpatParser
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from defusedxml import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from crowdshot.errors import CrowdshotError
from crowdshot.io.archive_limits import check_elements, check_parts, open_archive
from crowdshot.io.cells import trim
from crowdshot.io.tables import starts_with
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import explicit_columns, one_label

INSIDE = "annotations.xml"
DEEPEST = 100  # levels of nesting; CVAT uses only a few
SHAPES = ("box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton")


@dataclass
class ExportedImage:
    """An image of an export; ``boxes`` holds the line and the attributes of each box."""

    line: int
    name: str
    tags: list[str] = field(default_factory=list)
    boxes: list[tuple[int, dict[str, str]]] = field(default_factory=list)


@dataclass
class Export:
    """Content of an export."""

    images: list[ExportedImage] = field(default_factory=list)
    assignees: set[str] = field(default_factory=set)
    shapes: Counter[str] = field(default_factory=Counter)


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return file.is_xml or _archive(file) is not None


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    explicit_columns(columns, file.name, ())
    export = parse_export(file)
    if export.shapes and not any(image.tags for image in export.images):
        kind, number = export.shapes.most_common(1)[0]
        raise CrowdshotError(
            f"has {number} of <{kind}> and no tags on its images",
            where=file.name,
            found=kind,
            expected="one tag per image",
            hint="`crowdshot objects` matches boxes." if export.shapes["box"] else None,
        )
    annotator = annotator_of(export, file)
    left_out: Counter[str] = Counter()
    entries: list[Entry] = []
    for image in export.images:
        label = one_label(image.tags, f"{file.name}, line {image.line}, image {image.name!r}", file.several)
        if label:
            entries.append(Entry(image.name, annotator, label))
        else:
            left_out["images without a tag"] += 1
    return gather(file.name, entries, Columns("image"), left_out)


def annotator_of(export: Export, file: LabelFile) -> str:
    """Return the annotator of all labels of an export."""
    return next(iter(export.assignees)) if len(export.assignees) == 1 else file.annotator or file.stem


def parse_export(file: LabelFile) -> Export:
    """Parse the XML; files with a document type are refused, because it may declare or fetch entities."""
    data = _xml(file)
    parser = DefusedExpatParser(forbid_dtd=True)
    reader = _Reader(parser, file.name)
    parser.setContentHandler(reader)
    try:
        parser.parse(io.BytesIO(data))
    except DefusedXmlException:
        raise CrowdshotError("has a document type, which CVAT does not write", where=reader.place) from None
    except (SAXParseException, ValueError, LookupError) as error:
        if isinstance(error, CrowdshotError):
            raise
        reason = (
            f"line {error.getLineNumber()}: {error.getMessage()}" if isinstance(error, SAXParseException) else error
        )
        raise CrowdshotError(
            f"is damaged or not XML ({reason})", where=file.name, expected="annotations of CVAT"
        ) from None
    return reader.export


class _Reader(ContentHandler):
    def __init__(self, parser: ExpatParser, name: str) -> None:
        super().__init__()
        self.parser, self.name = parser, name
        self.export = Export()
        self.path: list[str] = []
        self.words: list[str] = []

    @property
    def line(self) -> int:
        return int(self.parser.getLineNumber())

    @property
    def place(self) -> str:
        return f"{self.name}, line {self.line}"

    def startElement(self, tag: str, attributes: AttributesImpl) -> None:  # noqa: N802, as SAX has it
        path, export = self.path, self.export
        path.append(tag)
        self.words.clear()
        if len(path) == 1 and tag != "annotations":
            raise CrowdshotError(
                f"starts with <{tag}>", where=self.place, found=tag, expected="<annotations> as in CVAT"
            )
        if len(path) > DEEPEST:
            raise CrowdshotError("is nested too deeply", where=self.place, expected=f"{DEEPEST} levels at most")
        if path[1:] == ["track"]:
            raise CrowdshotError("has tracks", where=self.place, expected='an export as "CVAT for images 1.1"')
        if path[1:] == ["image"]:
            if not trim(attributes.get("name", "")):
                raise CrowdshotError("has an <image> without a name", where=self.place)
            export.images.append(ExportedImage(self.line, trim(attributes["name"])))
        if path[1:2] == ["image"] and len(path) == 3:
            if tag == "tag":
                export.images[-1].tags.append(attributes.get("label", ""))
            elif tag in SHAPES:
                export.shapes[tag] += 1
            if tag == "box":
                export.images[-1].boxes.append((self.line, dict(attributes.items())))

    def characters(self, text: str) -> None:
        if self.path[1:2] == ["meta"]:
            self.words.append(text)

    def endElement(self, tag: str) -> None:  # noqa: N802
        text = trim("".join(self.words))
        if self.path[1:2] == ["meta"] and self.path[-2:] == ["assignee", "username"] and text:
            self.export.assignees.add(text)
        self.path.pop()


def _archive(file: LabelFile) -> zipfile.ZipFile | None:
    """Return the ZIP archive, None if the file is not a ZIP file of CVAT."""
    archive = open_archive(file.data)
    return archive if archive is not None and INSIDE in archive.namelist() else None


def _xml(file: LabelFile) -> bytes:
    archive = _archive(file)
    if archive is None:
        if not starts_with(file.data, b"<"):
            raise CrowdshotError(
                "is not XML", where=file.name, expected=f"annotations of CVAT or a ZIP file with {INSIDE} in it"
            )
        return file.data
    check_parts(file.name, archive, [INSIDE])
    try:
        check_elements(file.name, archive, len(file.data))
        return archive.read(INSIDE)
    except CrowdshotError:
        raise
    except Exception as error:  # each compression method raises errors of its own for damaged bytes
        raise CrowdshotError(f"could not be read ({error})", where=f"{file.name}, {INSIDE}") from None


FORMAT = Format(recognises, read)
