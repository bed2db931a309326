"""The encoders that come with crowdshot, by their names and cards alone: what there is can be told without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

WEIGHTS = Path(__file__).parent / "weights"
PROTOTYPICAL = "-protonet"  # what the name of a shipped encoder's clean twin ends with


def shipped_encoders() -> list[str]:
    """The names of the encoders that come with crowdshot."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def weights_file(name: str) -> Path:
    """Where a shipped encoder lies."""
    return WEIGHTS / f"{name}.safetensors"


def describe_input(spec: Mapping[str, Any]) -> str:
    """What an encoder is fed, from the card's entry ``input``, which `ImageInput` and its like make."""
    if spec["kind"] == "texts":
        return "texts"
    if spec["kind"] == "pictures":
        return "images"
    if spec["kind"] == "table":
        return f"a table with the columns {', '.join(spec['columns'])}"
    if spec["kind"] == "features":
        return "feature vectors" + (f" of {spec['n_features']} numbers" if spec["n_features"] is not None else "")
    height, width = spec["size"]
    colour = "grey" if spec["channels"] == 1 else "colour"
    return f"{'characters' if spec['ink'] else 'images'} of {height}×{width} {colour} pixels"
