"""Compare the convolution for MAML, and its first and second derivatives, with torch's."""

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F  # noqa: N812

from crowdshot.training.cpu_kernels import convolve


def problem(groups=2):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, groups * 3, 5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(groups * 2, 3, 3, 3, generator=g, dtype=torch.float64, requires_grad=True)
    return x, weight, groups


def test_values_are_torchs():
    x, weight, groups = problem()
    torch.testing.assert_close(convolve(x, weight, groups), F.conv2d(x, weight, padding=1, groups=groups))


def test_derivatives():
    x, weight, groups = problem()
    assert gradcheck(lambda x, w: convolve(x, w, groups), (x, weight))
    assert gradgradcheck(lambda x, w: convolve(x, w, groups), (x, weight))


def test_third_derivatives_too():
    """Use the sum of fourth powers, which is not linear in the convolution."""
    x, weight, groups = problem()
    found = []
    for convolution in (convolve, lambda x, w, groups: F.conv2d(x, w, padding=1, groups=groups)):
        slope = (convolution(x, weight, groups) ** 4).sum()
        for wrt in (weight, x, weight):
            (slope,) = torch.autograd.grad(slope, wrt, create_graph=True)
            slope = (slope**2).sum()
        found.append(slope)
    torch.testing.assert_close(*found)
