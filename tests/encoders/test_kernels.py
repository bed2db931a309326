"""Compare Triton kernels with plain float64 layers, on a GPU if there is one, else with Triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch

from polling import TIMEOUT

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from crowdshot.model import mixture_gpu  # noqa: E402
from crowdshot.training import first_block_gpu, pooled_norm_gpu  # noqa: E402

pytestmark = pytest.mark.slow

BEGIN = """
import torch
from torch.nn import functional as F
from crowdshot.training import first_block_gpu as first_block
from crowdshot.training import pooled_norm_gpu as pooled_norm
from crowdshot.model import mixture
from crowdshot.model import mixture_gpu as em_gpu

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

def close(a, b, rough, rounded=False):
    error = ((a - b).norm() / b.norm()).item()
    exact = 1e-5 if device == "cpu" else rough  # the interpreter does not round to TF32
    assert error < (5e-3 if rounded else exact), error
"""

FIRST_BLOCK = """
for G, n, C, H, W, width in ((2, 3, 1, 8, 6, 16), (1, 2, 3, 6, 6, 32)):
    images = torch.rand(G, n, C, H, W, device=device).half().float()  # as the block rounds them
    weight = (0.3 * torch.randn(G * width, C, 3, 3, device=device)).half().float()
    gamma, beta = torch.randn(2, G * width, device=device)
    ours = [x.clone().requires_grad_() for x in (weight, gamma, beta)]
    running = torch.zeros(G * width, device=device), torch.ones(G * width, device=device)
    patches = first_block.patches(images)
    out = first_block.first_block(patches, *ours, 1e-5, running, 0.1, torch.float32)
    upstream = torch.randn_like(out)
    out.backward(upstream)

    plain = [x.double().requires_grad_() for x in (weight, gamma, beta)]
    z = F.conv2d(images.double().transpose(0, 1).flatten(1, 2), plain[0], padding=1, groups=G)
    y = F.batch_norm(z, None, None, plain[1], plain[2], True, 0.1, 1e-5)
    expected = F.max_pool2d(F.relu(y), 2)
    expected.backward(upstream.double())

    close(out, expected, 3e-3)
    close(running[0], 0.1 * z.mean((0, 2, 3)), 1e-4)
    close(running[1], 0.9 + 0.1 * z.var((0, 2, 3)), 1e-3)
    for a, b in zip(ours, plain):
        close(a.grad, b.grad, 5e-2)
print("same")
"""

POOLED_NORM = """
full, half = torch.float32, torch.bfloat16
for n, channels, H, W, dtype in ((3, 16, 7, 5, full), (2, 144, 4, 6, full), (5, 32, 3, 3, half)):
    z = (3 + 2 * torch.randn(n, channels, H, W, device=device)).to(dtype)
    gamma, beta = torch.randn(2, channels, device=device)
    ours = [x.clone().requires_grad_() for x in (z, gamma, beta)]
    running = torch.zeros(channels, device=device), torch.ones(channels, device=device)
    out = pooled_norm.pooled_norm(*ours, 1e-5, running, 0.1)
    upstream = torch.randn_like(out)
    out.backward(upstream)

    plain = [x.double().requires_grad_() for x in (z, gamma, beta)]
    expected = F.max_pool2d(F.relu(F.batch_norm(plain[0], None, None, *plain[1:], True, 0.1, 1e-5)), 2)
    expected.backward(upstream.double())

    rounded = dtype == half  # on the way out, and so are gradients
    close(out, expected, 1e-5, rounded)
    close(running[0], 0.1 * z.double().mean((0, 2, 3)), 1e-5)
    close(running[1], 0.9 + 0.1 * z.double().var((0, 2, 3)), 1e-5)
    for a, b in zip(ours, plain):
        close(a.grad, b.grad, 1e-4, rounded)
print("same")
"""

EM = """
B, Q, D = 3, 5, 6
for N, R, K, fewer, tau in ((9, 4, 3, False, 1.0), (5, 2, 4, True, 0.3), (4, 1, 3, True, 0.0), (12, 3, 2, False, 0.0)):
    embedded = torch.randn(B, N + Q, D, dtype=torch.float64, device=device)
    in_use = torch.randint(2, K + 1, (B,), device=device) if fewer else None
    top = torch.full((B,), K, device=device) if in_use is None else in_use
    labels = (torch.rand(B, N, R, device=device) * top[:, None, None]).long()
    labels[torch.rand(B, N, R, device=device) < 0.3] = -1
    steps = torch.tensor([1, 2, 4], device=device)
    tau, b = torch.full((B,), tau, device=device).double(), 100 * torch.rand(B, device=device).double()
    asked = torch.randint(2, (B, Q, 1), device=device)

    ours, plain = (embedded.clone().requires_grad_() for _ in range(2))
    out = em_gpu.log_proba(ours, labels, K, steps, tau, b, 1.0, in_use)
    fit = mixture.fit(plain[:, :N], labels, K, steps=steps, tau=tau, b=b, c=1.0, classes_in_use=in_use, track=False,
                      classifier_only=True)
    expected = fit.log_proba(plain[:, N:])
    finite = expected.isfinite()
    assert (out.isfinite() == finite).all()
    close(out[finite], expected[finite], 1e-9)
    for p in (out, expected):
        p.gather(-1, asked).square().sum().backward()
    close(ours.grad, plain.grad, 1e-9)
print("same")
"""


@pytest.mark.parametrize("script", [FIRST_BLOCK, POOLED_NORM, EM], ids=["first block", "pooled norm", "EM"])
def test_forward_and_backward_equal_the_plain_layers(script):
    environment = {**os.environ}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    words = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout.strip() == "same", done.stderr


NUMBERS = {"n", "channels", "H", "W", "M", "blocks", "C", "T", "G", "N", "Q", "K", "t", "pixels"}
FRACTIONS = {"epsilon", "momentum", "c"}
WHOLE = {"labels", "steps", "in_use"}
HALF = {"values"}
SIZES = {
    first_block_gpu: {"WIDTH": 64, "TP": 16, "P": 64, "TIMES": 2, "_lay_out": {"T": 32}, "_second_moments": {"T": 32},
                      "_forward": {"T": 32}, "_backward": {"T": 32}, "_statistics": {"C": 16}, "_gradient": {"C": 16}},
    pooled_norm_gpu: {"P": 32, "C": 64, "TIMES": 2, "ROWS": 128},
    mixture_gpu: {"R": 5, "MOST": 2, "NP": 16, "QP": 64, "KP": 4},
}  # fmt: skip
KERNELS = [
    pytest.param(module, name, id=f"{module.__name__.rpartition('.')[2]}{name}")
    for module in SIZES
    for name in ("_lay_out", "_second_moments", "_sum_up", "_statistics", "_forward", "_sum_gradients", "_slopes",
                 "_gradient", "_backward")
    if hasattr(module, name)
]  # fmt: skip


@pytest.mark.parametrize(("module", "name"), KERNELS)
def test_kernels_compile_for_a_gpu(module, name):
    """The interpreter accepts code that the compiler refuses, such as a variable that changes its shape in a loop."""
    kernel, sizes = getattr(module, name), SIZES[module]
    constants = {key: value for key, value in {**sizes, **sizes.get(name, {})}.items() if key in kernel.arg_names}
    kinds = {}
    for argument in kernel.arg_names:
        whole = "*i64" if argument in WHOLE else "*fp16" if argument in HALF else "*fp32"
        kind = "i32" if argument in NUMBERS else "fp32" if argument in FRACTIONS else whole
        kinds[argument] = "constexpr" if argument in constants else kind
    places = {(kernel.arg_names.index(argument),): value for argument, value in constants.items()}
    compiled = triton.compile(
        ASTSource(kernel, kinds, places), target=GPUTarget("cuda", 90, 32), options={"num_warps": module.WARPS}
    )
    assert compiled.asm["cubin"]
