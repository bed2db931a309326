"""Test the conversion of command results to JSON."""

import doctest
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crowdshot.io import json_text
from crowdshot.io.json_text import INLINE, OMITTED, OPTIONAL, to_json


class Limits(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Part:
    first: int
    second: Limits | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Whole:
    part: Part | None = field(metadata=INLINE)
    uncertainty: float | None
    files: list[Path]
    own: bool = field(default=True, metadata=OMITTED)


def test_example():
    assert doctest.testmod(json_text) == (0, 3)


def test_keys_and_their_order():
    whole = Whole(Part(1, Limits(0.5, 1.0)), None, [Path("a.csv")])
    expected = {"first": 1, "second": {"low": 0.5, "high": 1.0}, "uncertainty": None, "files": ["a.csv"]}
    assert list(to_json(whole).items()) == list(expected.items())


def test_optional_and_inline_fields_without_a_value_are_omitted():
    assert to_json(Whole(Part(1), 0.5, [])) == {"first": 1, "uncertainty": 0.5, "files": []}
    assert to_json(Whole(None, 0.5, [])) == {"uncertainty": 0.5, "files": []}


def test_nested_values_are_converted():
    assert to_json({"a": (Limits(0.0, 1.0), [Part(2)])}) == {"a": [{"low": 0.0, "high": 1.0}, [{"first": 2}]]}
