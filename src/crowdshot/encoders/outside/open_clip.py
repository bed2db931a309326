"""Models of OpenCLIP, ``ViT-B-32/laion2b_s34b_b79k``: images -> vectors of unit length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crowdshot.encoders.outside.contract import Loaded, checksum_of
from crowdshot.encoders.outside.hub import not_had
from crowdshot.encoders.pictures import PictureInput
from crowdshot.errors import CrowdshotError
from crowdshot.wording import listing


def load(name: str, revision: str | None, device: str) -> Loaded:
    import open_clip  # an extra

    model_name, slash, weights = name.rpartition("/")
    if not slash:
        raise CrowdshotError(f"encoder is 'open_clip:{name}', expected open_clip:NAME/WEIGHTS, as that library has it.")
    found = open_clip.get_pretrained_cfg(model_name, weights)
    if not found:
        known = open_clip.list_pretrained_tags_by_model(model_name) or open_clip.list_models()
        raise CrowdshotError(f"encoder is 'open_clip:{name}', expected NAME/WEIGHTS, of these {listing(known, 3)}.")
    try:
        model, _, prepare = open_clip.create_model_and_transforms(model_name, pretrained=weights, device=device)
    except Exception as error:  # known, but not to be had
        raise not_had(str(found.get("hf_hub") or found.get("url")).rstrip("/"), error) from None
    model = model.eval().requires_grad_(False)

    def see(pictures: list[Any]) -> Tensor:
        out: Tensor = model.encode_image(
            torch.stack([prepare(picture) for picture in pictures]).to(device), normalize=True
        )
        return out

    return Loaded(see, PictureInput(), revision, checksum_of(model.state_dict()))
