"""Other people's networks by name: ``hf:facebook/dinov2-small``, ``onnx:model.onnx``; the registry is ``LIBRARIES``.

Each is loaded by its own library, when it is first needed, and prepares items as its own configuration says. Nothing of
it is put into a saved classifier but its name, the commit it came from and a checksum of its weights, by which it is
known again. Code that comes with weights is never run, and weights are never unpickled.
"""

from __future__ import annotations

from typing import NamedTuple


class Library(NamedTuple):
    """``module``: of this package, loaded when asked for; ``extra``: what installs the library."""

    module: str
    extra: str
    summary: str


LIBRARIES = {
    "hf": Library("hugging_face", "hf", "images or texts; a model of Hugging Face's transformers, by name or folder"),
    "sentence-transformers": Library("sentence_transformers", "sentence-transformers", "texts; by name or folder"),
    "timm": Library("timm", "timm", "images; a model of timm, by name"),
    "open_clip": Library("open_clip", "open-clip", "images; a model of OpenCLIP, name/weights"),
    "onnx": Library("onnx", "onnx", "images, texts or feature vectors; a file"),
}
