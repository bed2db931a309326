"""The encoders that come with crowdshot, by their names and cards alone: what there is can be told without torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

WEIGHTS = Path(__file__).parent / "weights"
GROUP = "crowdshot.encoders"  # entry points of packages with more encoders: each a folder of .safetensors files
PROTOTYPICAL = "-protonet"  # what the name of a shipped encoder's clean twin ends with


def _files() -> dict[str, Path]:
    folders = [WEIGHTS, *(Path(entry.load()) for entry in entry_points(group=GROUP))]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.safetensors"))}


def shipped_encoders() -> list[str]:
    """Return the names of the encoders that come with crowdshot, or with packages that add some."""
    return sorted(_files())


def weights_file(name: str) -> Path:
    """Return the file of a shipped encoder."""
    return _files().get(name, WEIGHTS / f"{name}.safetensors")


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
