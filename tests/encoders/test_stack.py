"""Compare a stack with its modules, in training and evaluation mode, and unstack it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.testing import assert_close

from crowdshot.encoders.networks import MLP, Conv4
from crowdshot.errors import CrowdshotError
from crowdshot.training import cpu_kernels
from crowdshot.training.stack import stack


def conv4s(n, channels=1, width=4):
    """Return copies of Conv4 whose normalisation is not the identity."""
    torch.manual_seed(0)
    modules = [Conv4(channels, width) for _ in range(n)]
    for module in modules:
        for block in module.blocks:
            for tensor in (block[1].weight.data, block[1].bias.data, block[1].running_mean):
                tensor.normal_()
            block[1].running_var.uniform_(0.5, 2)
    return modules


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 28, 28), (3, 21, 19)])
def test_a_stack_of_conv4_equals_its_modules(channels, height, width):
    modules = conv4s(3, channels)
    together = stack(modules)
    items = torch.rand(3, 6, channels, height, width)
    items *= items > 0.6  # large empty areas, where all four of a window are equal

    for training in (False, True):
        together.train(training)
        expected = torch.stack([m.train(training)(x) for m, x in zip(modules, items, strict=True)])
        found = together(items)
        assert_close(found, expected, atol=1e-5, rtol=1e-5)

    upstream = torch.randn_like(found)
    (found * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for block in range(4):
        for ours, theirs in (("weight", "0.weight"), ("gamma", "1.weight"), ("beta", "1.bias")):
            gradient = torch.cat([m.get_parameter(f"blocks.{block}.{theirs}").grad for m in modules])
            scale = float(gradient.abs().max())
            assert_close(together.get_parameter(f"{ours}{block}").grad / scale, gradient / scale, atol=2e-5, rtol=0)


def test_unstacking_gives_the_modules_back():
    modules = conv4s(2)
    together = stack(modules).train()
    items = torch.rand(2, 6, 1, 16, 16)
    together(items)  # updates the running statistics
    for module, x in zip(modules, items, strict=True):
        module.train()(x)
    for i, module in enumerate(modules):
        again = Conv4(1, 4)
        again.load_state_dict(together.unstack(i))
        assert_close(again.eval()(items[i]), module.eval()(items[i]), atol=1e-5, rtol=1e-5)
        # a bias before batch normalisation has no effect, so it may be zero
        assert all(not bool(again.get_parameter(f"blocks.{b}.0.bias").any()) for b in range(4))


@pytest.mark.parametrize("hidden", [(), (7,), (6, 5)])
def test_a_stack_of_mlps_equals_its_modules(hidden):
    torch.manual_seed(0)
    modules = [MLP(3, hidden, 4) for _ in range(3)]
    together = stack(modules)
    items = torch.randn(3, 5, 3)
    assert_close(together(items), torch.stack([m(x) for m, x in zip(modules, items, strict=True)]))
    again = MLP(3, hidden, 4)
    again.load_state_dict(together.unstack(1))
    assert_close(again(items[1]), modules[1](items[1]), atol=0, rtol=0)


def test_other_modules_are_not_stacked():
    module = nn.Sequential(nn.Linear(3, 2), nn.Unflatten(1, (1, 2)))
    alone = stack([module])
    items = torch.randn(1, 5, 3)
    assert_close(alone(items)[0], module(items[0]).flatten(1))
    assert alone.unstack(0).keys() == module.state_dict().keys()
    with pytest.raises(CrowdshotError, match=r"Sequential, .* expected Conv4 or MLP"):
        stack([module, module])


def test_different_modules_cannot_be_stacked():
    for modules in ([Conv4(1, 4), Conv4(1, 8)], [MLP(3), Conv4()], [MLP(3, (4,)), MLP(3, (5,))]):
        with pytest.raises(CrowdshotError, match="different architectures or sizes"):
            stack(modules)


# --- the first block on a CPU ----------------------------------------------------------------------------------------


def plain_first_block(items, weight, gamma, beta):
    x = F.conv2d(items.transpose(0, 1).flatten(1, 2), weight, padding=1, groups=len(items))
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    x = F.batch_norm(x, None, None, gamma, beta, True, 0.1, 1e-5)
    return F.max_pool2d(F.relu(x), 2), mean, var


@pytest.mark.parametrize("shape", [(2, 3, 1, 8, 8), (1, 2, 3, 7, 5)])
def test_the_first_block_on_a_cpu_in_float64(shape, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "ROWS", 10)  # several pieces, the last one shorter
    torch.manual_seed(0)
    items = torch.rand(shape, dtype=torch.float64)
    items[:, 0, :, :4] = 0.0
    given = [torch.randn(4 * shape[0], *rest, dtype=torch.float64) for rest in ((shape[2], 3, 3), (), ())]
    ours, theirs = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    found = cpu_kernels.first_block_cpu(items, *ours, 1e-5)
    expected = plain_first_block(items, *theirs)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, atol=1e-10, rtol=1e-10)
    upstream = torch.randn_like(expected[0])
    (found[0] * upstream).sum().backward()
    (expected[0] * upstream).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a.grad, b.grad, atol=1e-10, rtol=1e-8)


def test_the_first_block_is_accurate_for_a_large_mean():
    """A variance computed from moments loses digits if the mean is large; float64 keeps enough of them."""
    torch.manual_seed(0)
    items = 50 + torch.rand(1, 4, 1, 8, 8)
    weight = torch.randn(4, 1, 3, 3)
    weight -= weight.mean((2, 3), keepdim=True)  # so that the constant does not affect the inside of the image
    _, mean, var = cpu_kernels.first_block_cpu(items, weight, torch.ones(4), torch.zeros(4), 1e-5)
    _, expected_mean, expected_var = plain_first_block(items.double(), weight.double(), None, None)
    assert_close(mean.double(), expected_mean, atol=1e-4, rtol=1e-5)
    assert_close(var.double(), expected_var, atol=0, rtol=1e-5)
