"""Stack G networks of the same shape into one, which a GPU trains in little more time than a single network.

A stack maps items (G, n, *shape) to embeddings (G, n, D); each network gets its own items. Parameters are concatenated:
a convolution becomes a grouped convolution, and batch normalisation runs over G times as many channels, with the
statistics that each network would have alone. `stack` combines modules, ``unstack`` returns the state of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import replace_all_batch_norm_modules_
from torch.nn import functional as F  # noqa: N812

from crowdshot.encoders.networks import MLP, Conv4
from crowdshot.errors import CrowdshotError
from crowdshot.training import cpu_kernels, first_block_gpu, pooled_norm_gpu
from crowdshot.training.cpu_kernels import convolve
from crowdshot.training.first_block_gpu import Patches

MOMENTUM, EPSILON = 0.1, 1e-5  # torch's defaults for batch normalisation, which Conv4 uses


class StackedConv4(nn.Module):
    """G `Conv4` networks: weights (G·width, C, 3, 3) in G groups, all other parameters (G·width,).

    Convolutions have no bias, because batch normalisation cancels it: its gradient is zero up to rounding, from which
    Adam would let it drift. Biases are subtracted from the running means when networks are stacked, and are zero after
    ``unstack``.

    If ``twice`` is True, the stack is twice differentiable; it then normalises by batch statistics only.
    """

    size: int

    twice = False
    weight0: Tensor
    gamma0: Tensor
    beta0: Tensor
    mean0: Tensor
    var0: Tensor

    def __init__(self, modules: Sequence[Conv4]) -> None:
        super().__init__()
        self.size = len(modules)
        states = [module.state_dict() for module in modules]

        def joined(block: int, name: str) -> Tensor:
            return torch.cat([state[f"blocks.{block}.{name}"] for state in states])

        for block in range(4):
            self.register_parameter(f"weight{block}", nn.Parameter(joined(block, "0.weight")))
            self.register_parameter(f"gamma{block}", nn.Parameter(joined(block, "1.weight")))
            self.register_parameter(f"beta{block}", nn.Parameter(joined(block, "1.bias")))
            self.register_buffer(f"mean{block}", joined(block, "1.running_mean") - joined(block, "0.bias"))
            self.register_buffer(f"var{block}", joined(block, "1.running_var"))

    def forward(self, items: Tensor | Patches) -> Tensor:
        """Embed images (G, n, C, H, W), which may be `prepared`; returns (G, n, D)."""
        G, n = items.shape[:2]
        rest: tuple[int, ...]
        if self.training:
            items = prepared(self, items)
        if isinstance(items, Patches):
            x, rest = self._first_block(items), (1, 2, 3)
        elif items.device.type == "cpu" and not self.twice:
            x, rest = self._first_block_on_cpu(items), (1, 2, 3)
        else:
            x, rest = items.transpose(0, 1).flatten(1, 2), (0, 1, 2, 3)  # (n, G·C, H, W)
            if x.is_cuda:
                x = x.contiguous(memory_format=torch.channels_last)
        for block in rest:
            weight, gamma, beta, mean, var = (
                getattr(self, f"{name}{block}") for name in ("weight", "gamma", "beta", "mean", "var")
            )
            if self.twice:
                x = _twice_differentiable_block(x, weight, gamma, beta, G)
                continue
            if self.training and pooled_norm_gpu.is_available(x):
                x = pooled_norm_gpu.pooled_norm(convolve(x, weight, G), gamma, beta, EPSILON, (mean, var), MOMENTUM)
                continue
            x = F.conv2d(x, weight, padding=1, groups=G)
            x = F.batch_norm(x, mean, var, gamma, beta, self.training, MOMENTUM, EPSILON)
            x = F.relu(F.max_pool2d(x, 2))  # equals pooling after ReLU, with a quarter of the work
        return x.reshape(n, G, -1).transpose(0, 1)

    def _first_block(self, patches: Patches) -> Tensor:
        """Apply block 0 in training mode on a GPU (see `first_block_gpu`)."""
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.weight0.dtype
        weights, running = (self.weight0, self.gamma0, self.beta0), (self.mean0, self.var0)
        return first_block_gpu.first_block(patches, *weights, EPSILON, running, MOMENTUM, dtype)

    def _first_block_on_cpu(self, items: Tensor) -> Tensor:
        running = None if self.training else (self.mean0, self.var0)
        x, mean, var = cpu_kernels.first_block_cpu(items, self.weight0, self.gamma0, self.beta0, EPSILON, running)
        if self.training:
            self._move_statistics(0, items[0, :, 0].numel(), mean, var)
        return x

    def _move_statistics(self, block: int, n_values: int, mean: Tensor, var: Tensor) -> None:
        """Update running statistics with those of a batch that has ``n_values`` values per channel."""
        with torch.no_grad():
            getattr(self, f"mean{block}").lerp_(mean, MOMENTUM)
            getattr(self, f"var{block}").lerp_(var * (n_values / (n_values - 1)), MOMENTUM)

    def unstack(self, index: int) -> dict[str, Tensor]:
        """Return the state dict of network ``index`` for `Conv4`; the unused count of batches is zero."""
        names = {"weight": "0.weight", "gamma": "1.weight", "beta": "1.bias", "mean": "1.running_mean"}
        names["var"] = "1.running_var"
        state: dict[str, Tensor] = {}
        for block in range(4):
            for stacked, single in names.items():
                part = getattr(self, f"{stacked}{block}").detach().chunk(self.size)[index].clone()
                state[f"blocks.{block}.{single}"] = part
            state[f"blocks.{block}.0.bias"] = torch.zeros_like(state[f"blocks.{block}.1.bias"])
            state[f"blocks.{block}.1.num_batches_tracked"] = torch.zeros((), dtype=torch.int64)
        return state


def _twice_differentiable_block(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, groups: int) -> Tensor:
    """Apply convolution, batch normalisation, ReLU and pooling with few passes over the largest activation.

    Normalisation is monotone in each channel, so it can follow max-pooling once the weights have taken the sign of
    gamma. Under autocast only the convolution is in bfloat16: rounded means and variances would spoil second
    derivatives.
    """
    x = convolve(x, weight * torch.where(gamma < 0, -1.0, 1.0)[:, None, None, None], groups).to(weight.dtype)
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
    slope = gamma.abs()[:, None, None] * (var + EPSILON).rsqrt()
    return F.relu((F.max_pool2d(x, 2) - mean) * slope + beta[:, None, None])


class StackedMLP(nn.Module):
    """G `MLP` networks: weights (G, in, out)."""

    size: int
    names: list[str]

    def __init__(self, modules: Sequence[MLP]) -> None:
        super().__init__()
        self.size = len(modules)
        self.names = [name for name, part in modules[0].layers.named_children() if isinstance(part, nn.Linear)]
        states = [module.state_dict() for module in modules]
        for name in self.names:
            weights = torch.stack([state[f"layers.{name}.weight"].mT for state in states])
            self.register_parameter(f"weight{name}", nn.Parameter(weights))
            biases = torch.stack([state[f"layers.{name}.bias"] for state in states])
            self.register_parameter(f"bias{name}", nn.Parameter(biases))

    def forward(self, items: Tensor) -> Tensor:
        """Embed feature vectors (G, n, n_features); returns (G, n, D)."""
        x = items
        for name in self.names:
            x = x if name == self.names[0] else x.relu()
            x = torch.baddbmm(getattr(self, f"bias{name}")[:, None], x, getattr(self, f"weight{name}"))
        return x

    def unstack(self, index: int) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name in self.names:
            state[f"layers.{name}.weight"] = getattr(self, f"weight{name}").detach()[index].mT.clone()
            state[f"layers.{name}.bias"] = getattr(self, f"bias{name}").detach()[index].clone()
        return state


class Alone(nn.Module):
    """A stack of one arbitrary module."""

    module: nn.Module

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        (self.module,) = modules
        self.size = 1

    def forward(self, items: Tensor) -> Tensor:
        out: Tensor = self.module(items[0]).flatten(1)
        return out[None]

    def unstack(self, index: int) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}


Stack = StackedConv4 | StackedMLP | Alone
STACKABLE = (Conv4, MLP)


def stack(modules: Sequence[nn.Module]) -> Stack:
    """Stack modules of the same shape. Only Conv4 and MLP can be stacked; any other module must be alone."""
    kinds = {type(module) for module in modules}
    shapes = {tuple((k, v.shape) for k, v in module.state_dict().items()) for module in modules}
    if len(shapes) != 1 or len(kinds) != 1:
        raise CrowdshotError(
            "have different architectures or sizes", argument="modules", expected="the same architecture and size"
        )
    if kinds == {Conv4}:
        return StackedConv4(list(modules))  # type: ignore[arg-type]
    if kinds == {MLP}:
        return StackedMLP(list(modules))  # type: ignore[arg-type]
    if len(modules) > 1:
        name = kinds.pop().__name__
        raise CrowdshotError(
            f"are {len(modules)} networks of the class {name}, which cannot be trained together",
            argument="modules",
            found=name,
            expected="Conv4 or MLP",
            hint="Train the models one by one",
        )
    return Alone(modules)


def prepared(networks: nn.Module, items: Tensor | Patches) -> Tensor | Patches:
    """Convert items to the form that a stack trains on fastest; the result can be used for any number of steps."""
    if isinstance(items, Patches) or not isinstance(networks, StackedConv4) or networks.twice:
        return items
    return first_block_gpu.patches(items) if first_block_gpu.is_available(items, networks.weight0) else items


def pure_stack(modules: Sequence[nn.Module], twice: bool = False) -> Any:
    """Stack networks as a pure function of weights and items, which normalises by batch statistics only.

    The gradient of the sum of the networks' losses contains the gradient of each. With ``twice``, it can be
    differentiated again.
    """
    networks = stack(modules).train()
    if isinstance(networks, StackedConv4):
        networks.twice = twice
        return networks
    networks = deepcopy(networks)
    replace_all_batch_norm_modules_(networks)
    return networks
