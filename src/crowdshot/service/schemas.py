"""Schemas of requests and answers, from which the OpenAPI document is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from crowdshot.io.cells import trim
from crowdshot.service.journal import storable

LONGEST = 4_000  # characters of a name
MOST_LABELS = 10_000  # of a request
MOST_ITEMS = 256  # of a prediction request
MOST_FEATURES = 100_000


def _as_name(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _plain(name: str) -> str:
    if not storable(name):
        raise ValueError("has an unpaired surrogate or a null character, expected text")
    return name


def _filled(name: str) -> str:
    name = trim(name)
    if not name:
        raise ValueError("is blank, expected a name")
    return _plain(name)


Text = Annotated[str, AfterValidator(_plain)]
Name = Annotated[
    str,
    BeforeValidator(_as_name, json_schema_input_type=str),
    StringConstraints(min_length=1, max_length=LONGEST),
    AfterValidator(_filled),
]
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Label(Shape):
    item: Name
    annotator: Name
    label: Name


class Labels(Shape):
    labels: Annotated[list[Label], Field(min_length=1, max_length=MOST_LABELS)]


class Taken(BaseModel):
    taken: int


class Decision(Shape):
    """What becomes of an unknown class or item: a known one, itself, or null to discard its labels."""

    kind: Literal["class", "item"]
    name: Name
    becomes: Name | None


class Decisions(Shape):
    decisions: Annotated[list[Decision], Field(min_length=1, max_length=1_000)]


class Held(BaseModel):
    kind: str
    name: str
    n_labels: int
    annotators: list[str]
    like: str


class Review(BaseModel):
    version: int
    held: list[Held]


class ToPredict(Shape):
    """Items of one kind: features, texts or images."""

    features: (
        Annotated[
            list[Annotated[list[Number], Field(min_length=1, max_length=MOST_FEATURES)]],
            Field(min_length=1, max_length=MOST_ITEMS),
        ]
        | None
    ) = None
    texts: (
        Annotated[
            list[Annotated[Text, StringConstraints(min_length=1, max_length=1_000_000)]],
            Field(min_length=1, max_length=MOST_ITEMS),
        ]
        | None
    ) = None
    images: (
        Annotated[list[str], Field(min_length=1, max_length=MOST_ITEMS, description="Image files in base64.")] | None
    ) = None


class Prediction(BaseModel):
    label: str
    confidence: Share
    probabilities: dict[str, Share]


class Predictions(BaseModel):
    version: int
    predictions: list[Prediction]


class ConsensusItem(BaseModel):
    item: str
    label: str
    confidence: Share
    n_labels: int
    agreement: Share | None


class Consensus(BaseModel):
    version: int
    consensus: list[ConsensusItem]


class KnownAnswers(BaseModel):
    """Labels of items with known answers, how many of them are right, and the 90 % interval of the share."""

    tests: int
    passed: int
    low: Share
    high: Share
    status: Literal["paused", "tested", "not tested"]


class Annotator(BaseModel):
    annotator: str
    n_labels: int
    accuracy: Share
    low: Share
    high: Share
    working: dict[str, str | float] = {}
    gold: KnownAnswers | None = None


class Annotators(BaseModel):
    version: int
    annotators: list[Annotator]


class Question(BaseModel):
    item: str
    gain: float | None = None
    n_labels: int | None = None
    consensus: str | None = None
    confidence: Share | None = None


class Questions(BaseModel):
    version: int
    questions: list[Question]


class Health(BaseModel):
    status: str
    model_class: str
    version: int


class Refusal(BaseModel):
    detail: str
