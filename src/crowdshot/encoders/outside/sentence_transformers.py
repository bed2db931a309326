"""Models of sentence-transformers: texts -> vectors, as their authors pool and scale them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from crowdshot.encoders.outside.contract import Loaded, checksum_of
from crowdshot.encoders.outside.hub import folder_of
from crowdshot.encoders.texts import TextInput


def load(name: str, revision: str | None, device: str) -> Loaded:
    library: Any = import_module("sentence_transformers")  # an extra, without types of its own
    transformers: Any = import_module("transformers")
    transformers.logging.disable_progress_bar()
    full = name if "/" in name or "\\" in name else f"sentence-transformers/{name}"  # as that library has it
    folder, commit = folder_of(full, revision)
    model = library.SentenceTransformer(
        str(folder),
        device=device,
        trust_remote_code=False,
        local_files_only=True,
        model_kwargs={"use_safetensors": True},
    )

    def read(texts: list[str]) -> Tensor:
        out: Tensor = model.encode(texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False)
        return out

    return Loaded(read, TextInput(), commit, checksum_of(model.state_dict()))
