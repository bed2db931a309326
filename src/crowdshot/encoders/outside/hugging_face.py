"""Models of Hugging Face's transformers, of images or of texts; a model of both is taken for one of images."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from crowdshot.encoders.outside.contract import Loaded, checksum_of
from crowdshot.encoders.outside.hub import folder_of
from crowdshot.encoders.pictures import PictureInput
from crowdshot.encoders.texts import TextInput
from crowdshot.errors import CrowdshotError

LONGEST = 512  # tokens, where the model does not say


def load(name: str, revision: str | None, device: str) -> Loaded:
    transformers: Any = import_module("transformers")  # an extra, without types of its own
    transformers.logging.disable_progress_bar()
    folder, commit = folder_of(name, revision)
    safely: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    model, told = transformers.AutoModel.from_pretrained(
        folder, use_safetensors=True, output_loading_info=True, **safely
    )
    absent = sorted(told["missing_keys"])
    poolless = bool(absent) and all("pooler" in key for key in absent)
    if absent and not poolless:
        raise CrowdshotError(f"{name} has no weights for {absent[0]} ({len(absent)} such), expected all.")
    model = model.eval().requires_grad_(False).to(device)
    weights = checksum_of({key: value for key, value in model.state_dict().items() if key not in absent})
    if (folder / "preprocessor_config.json").is_file() or (folder / "processor_config.json").is_file():
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **safely)

        def see(pictures: list[Any]) -> Tensor:
            pixels = processor(images=pictures, return_tensors="pt")["pixel_values"].to(device)
            if hasattr(model, "get_image_features"):  # of images and texts alike
                return _vectors(model.get_image_features(pixel_values=pixels), False, model)
            return _vectors(model(pixel_values=pixels), poolless, model)

        return Loaded(see, PictureInput(), commit, weights)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safely)
    longest = min(getattr(model.config, "max_position_embeddings", LONGEST), tokenizer.model_max_length)

    def read(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(device)
        hidden = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp_min(1), dim=1)

    return Loaded(read, TextInput(), commit, weights)


def _vectors(out: Any, poolless: bool, model: torch.nn.Module) -> Tensor:
    """What the model itself makes of an image as a whole: its pooled output, its class token, or the mean."""
    if isinstance(out, Tensor):
        return out
    pooled = getattr(out, "pooler_output", None)
    if pooled is not None and not poolless:
        vectors: Tensor = pooled.flatten(1)
        return vectors
    hidden: Tensor = out.last_hidden_state
    if hidden.ndim == 4:
        return hidden.mean((2, 3))
    has_class_token = any(name.endswith("cls_token") for name, _ in model.named_parameters())
    return hidden[:, 0] if has_class_token else hidden.mean(1)
