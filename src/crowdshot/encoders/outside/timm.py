"""Models of timm: images -> what comes before the classifier, prepared as the weights' own configuration says."""

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
    import timm  # an extra

    if name not in timm.list_models(pretrained=True):
        known = timm.list_models(f"*{name.partition('.')[0]}*", pretrained=True) or timm.list_models(pretrained=True)
        raise CrowdshotError(f"encoder is 'timm:{name}', expected a model with weights, like {listing(known, 3)}.")
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0).eval().requires_grad_(False).to(device)
    except Exception as error:  # known, but not to be had
        raise not_had(f"timm/{name}", error) from None
    prepare: Any = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)

    def see(pictures: list[Any]) -> Tensor:
        out: Tensor = model(torch.stack([prepare(picture) for picture in pictures]).to(device))
        return out

    return Loaded(see, PictureInput(), revision, checksum_of(model.state_dict()))
