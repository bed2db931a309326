"""Measure meta-training steps per second: a naive eager loop, the trainer's step, and stacks of models, in one run.

    python benchmarks/training.py [--device cuda] [--size 28] [--models 1 8 45] [--precision bfloat16] [--maml]

All variants train Conv4 on the same kind of episode: 4 classes, 3 shots, 5 annotators, 10 queries per class, J = 2. The
naive loop draws the episode and the labels in Python, moves the items to the device, and uses an ordinary module, an
optimiser, and EM with loops over classes and annotators. Times are medians over several rounds; a ratio is the time per
episode of the naive loop divided by that of the variant. With ``--maml`` the same models are trained by MAML, with
PyTorch's own operations and, on a GPU, traced and compiled; ratios are relative to the former.
"""

import argparse
import statistics
import time

import torch
from torch import nn

from crowdshot.encoders.encoder_files import build_encoder
from crowdshot.encoders.image_input import ImageInput
from crowdshot.encoders.networks import Conv4
from crowdshot.training import loop
from crowdshot.training.distributed import Processes
from crowdshot.training.pools import ClassPool
from crowdshot.training.recipe import Job, Recipe
from crowdshot.training.trainer import Trainer

WAYS, SHOTS, ANNOTATORS, QUERIES, STEPS = 4, 3, 5, 10, 2
RECIPE = Recipe(
    ways=(WAYS, WAYS),
    shots=(SHOTS, SHOTS),
    annotators=(ANNOTATORS, ANNOTATORS),
    queries=QUERIES,
    steps=STEPS,
    validation_episodes=1,
)


def random_pool(size: int, device: str, n_classes: int = 200) -> ClassPool:
    shape = (n_classes, 20, size, size) if size <= 32 else (n_classes, 20, 3, size, size)
    examples = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ClassPool(examples, torch.full((n_classes,), 20), tuple(map(str, range(n_classes)))).to(device)


def naive_step(pool: ClassPool, device: str, size: int):
    """Return a function that runs one step of a plain implementation of Algorithm 1."""
    module = Conv4(1 if size <= 32 else 3).to(device).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    images = pool.examples.cpu()

    def step() -> None:
        classes = torch.randperm(len(images))[:WAYS]
        support, query = [], []
        for c in classes:
            chosen = images[c][torch.randperm(20)[: SHOTS + QUERIES]]
            support.append(chosen[:SHOTS])
            query.append(chosen[SHOTS:])
        items = torch.cat(support + query).to(device).float() / 255
        items = items[:, None] if items.ndim == 3 else items
        truth = torch.arange(WAYS).repeat_interleave(SHOTS)
        labels = torch.empty(len(truth), ANNOTATORS, dtype=torch.long)
        for r in range(ANNOTATORS):
            quality = 0.5 + 0.3 * torch.rand(())
            right = torch.rand(len(truth)) < quality
            labels[:, r] = torch.where(right, truth, torch.randint(WAYS, (len(truth),)))
        labels = labels.to(device)

        u = module(items)
        support_u, query_u = u[: len(truth)], u[len(truth) :]
        votes = nn.functional.one_hot(labels, WAYS).float()
        lam = votes.mean(1)
        for _ in range(STEPS):
            means = torch.stack([(lam[:, k : k + 1] * support_u).sum(0) / (1 + lam[:, k].sum()) for k in range(WAYS)])
            pi = (lam.sum(0) + 100) / (lam.sum() + 100 * WAYS)
            log_joint = -0.5 * torch.stack([(support_u - m).square().sum(1) for m in means], 1) + pi.log()
            for r in range(ANNOTATORS):
                alpha = (lam.T @ votes[:, r] + 1) / (lam.sum(0)[:, None] + WAYS)
                log_joint = log_joint + votes[:, r] @ alpha.log().T
            lam = log_joint.softmax(1)
        logits = -0.5 * torch.stack([(query_u - m).square().sum(1) for m in means], 1) + pi.log()
        loss = nn.functional.cross_entropy(logits, torch.arange(WAYS, device=device).repeat_interleave(QUERIES))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def trainer_of(pool: ClassPool, n_models: int, size: int, precision: str, objective: str = "mixture"):
    jobs = []
    for seed in range(n_models):
        encoder = build_encoder(
            "conv4", {"channels": 1 if size <= 32 else 3}, ImageInput((size, size), 1 if size <= 32 else 3)
        )
        recipe = Recipe(**{**vars(RECIPE), "seed": seed, "objective": objective})
        jobs.append(Job(encoder, range(150), range(150, 200), recipe))
    return loop.trainer_of(jobs, pool, precision, Processes())


def maml_steps(pool: ClassPool, n_models: int, size: int, precision: str):
    """Yield (variant, step), first with PyTorch's own operations."""
    plain = trainer_of(pool, n_models, size, precision, "maml")
    plain.learn = lambda batch, share: Trainer.learn(plain, batch, share)
    yield "PyTorch's operations", plain.step
    if pool.examples.is_cuda:
        yield "traced and compiled", trainer_of(pool, n_models, size, precision, "maml").step


def seconds(step, device: str, rounds: int, steps: int) -> float:
    """Return the median time of one step."""
    times = []
    for _ in range(max(2, steps // 4)):
        step()
    for _ in range(rounds):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=28)
    parser.add_argument("--models", type=int, nargs="+", default=None)
    parser.add_argument("--precision", nargs="+", default=None)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--maml", action="store_true")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    models = arguments.models or [1, 8, 45]
    precisions = arguments.precision or (["float32", "bfloat16"] if on_gpu else ["float32"])
    steps = arguments.steps or (100 if on_gpu else 4)
    pool = random_pool(arguments.size, arguments.device)
    where = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}; {arguments.size}×{arguments.size}, 4-way 3-shot 5 annotators, J = 2")
    print(f"{'variant':42s} {'ms a step':>10s} {'µs an episode':>14s} {'ratio':>7s}")
    if arguments.maml:
        for precision in precisions:
            for n in models:
                first = None
                for how, step in maml_steps(pool, n, arguments.size, precision):
                    taken = seconds(step, arguments.device, 5, steps)
                    first = first or taken
                    name = f"MAML, {n} model{'s' * (n > 1)}, {precision}, {how}"
                    print(f"{name:42s} {taken * 1e3:10.1f} {taken / n * 1e6:14.0f} {first / taken:7.1f}", flush=True)
        return
    naive = seconds(naive_step(pool, arguments.device, arguments.size), arguments.device, 3, max(2, steps // 2))
    print(f"{'naive eager loop':42s} {naive * 1e3:10.3f} {naive * 1e6:14.1f} {1.0:7.1f}", flush=True)
    for precision in precisions:
        for n in models:
            torch.manual_seed(0)
            taken = seconds(trainer_of(pool, n, arguments.size, precision).step, arguments.device, 5, steps)
            name = f"{'CUDA graph' if on_gpu else 'trainer'}, {n} model{'s stacked' if n > 1 else ''}, {precision}"
            print(f"{name:42s} {taken * 1e3:10.3f} {taken / n * 1e6:14.1f} {naive * n / taken:7.1f}", flush=True)


if __name__ == "__main__":
    main()
