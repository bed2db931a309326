"""List the shipped encoders and the supported libraries, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

WEIGHTS = Path(__file__).parent / "weights"
GROUP = "crowdshot.encoders"  # entry points of packages with more encoders: each a folder of .safetensors files
PROTOTYPICAL_SUFFIX = "-protonet"  # of the variant of a shipped encoder that was meta-trained on clean labels


def _files() -> dict[str, Path]:
    folders = [WEIGHTS, *(Path(entry.load()) for entry in entry_points(group=GROUP))]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.safetensors"))}


def shipped_encoders() -> list[str]:
    """Return the names of the encoders that come with crowdshot, or with packages that add some."""
    return sorted(_files())


def weights_file(name: str) -> Path:
    """Return the file of a shipped encoder."""
    return _files().get(name, WEIGHTS / f"{name}.safetensors")


class Library(NamedTuple):
    """Another library whose models can be named as encoders.

    ``loader``: module and function that load a model. ``extra``: the extra of this package that installs the library.
    """

    loader: str
    extra: str
    summary: str


LIBRARIES = {
    "hf": Library(
        "hub_models:load_hugging_face",
        "hf",
        "images or texts; a model of Hugging Face's transformers, by name or folder",
    ),
    "sentence-transformers": Library(
        "hub_models:load_sentence_transformers", "sentence-transformers", "texts; by name or folder"
    ),
    "timm": Library("hub_models:load_timm", "timm", "images; a model of timm, by name"),
    "open_clip": Library("hub_models:load_open_clip", "open-clip", "images; a model of OpenCLIP, name/weights"),
    "onnx": Library("onnx_models:load_onnx", "onnx", "images, texts or feature vectors; a file"),
}


def describe_input(spec: Mapping[str, Any]) -> str:
    """Describe the input of an encoder from the entry ``input`` of its card (``ImageInput.to_dict`` and the like)."""
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
