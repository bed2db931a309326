"""Measure how long each compared method takes to adapt to episodes and classify queries, next to the paper's times.

    python benchmarks/methods.py                                    # 4 episodes on the CPU; about two minutes
    python benchmarks/methods.py --episodes 200 --device cuda       # all methods
    python benchmarks/methods.py --episodes 200 --methods Ours LRDS PrDS
    python benchmarks/methods.py --all-candidates                   # every candidate of hyper-parameters, sharing work

Episodes are those of the paper's table of times: Omniglot's shape (28×28 grey, Conv4), 4 classes, 1 shot, 5 annotators,
10 queries per class. Pixels and weights are random, because they do not influence the time. Each method uses its
slowest candidate of hyper-parameters. Ratios are relative to Ours, for the paper's times (one A100, settings chosen on
validation data) and for ours. Times are the better of two runs, the first of which warms up.
"""

import argparse
import time

import torch

from crowdshot.encoders.networks import Conv4
from crowdshot.methods import CrowdEpisodes, Method
from crowdshot_paper.registry import METHODS

# method -> seconds of testing, from the paper's table of computation times (Omniglot)
PAPER = {
    "Ours": 0.960,
    "LRMV": 0.679,
    "LRDS": 0.734,
    "RFMV": 3.995,
    "RFDS": 4.520,
    "CL": 112.19,
    "CNAL": 166.21,
    "PrMV": 0.928,
    "PrDS": 0.947,
    "MaMV": 2.185,
    "MaDS": 2.192,
    "MCL": 113.59,
    "MCNAL": 166.25,
    "w/o PA": 0.948,
}
SLOWEST = {"steps": 10, "C": 1.0, "trees": 200, "iterations": 300, "bases": 20}


def episodes(n: int, device: torch.device, ways: int = 4, shots: int = 1, annotators: int = 5) -> CrowdEpisodes:
    g = torch.Generator().manual_seed(0)
    support = torch.randn(n, ways * shots, 1, 28, 28, generator=g)
    query = torch.randn(n, ways * 10, 1, 28, 28, generator=g)
    truth = (torch.arange(ways * shots) % ways)[None, :, None].expand(n, -1, annotators)
    wrong = torch.randint(ways, truth.shape, generator=g)
    labels = torch.where(torch.rand(truth.shape, generator=g) < 0.6, truth, wrong)
    return CrowdEpisodes(support.to(device), labels.to(device), query.to(device), ways)


def seconds(method: Method, batch: CrowdEpisodes, encoder: Conv4, all_candidates: bool, runs: int = 2) -> float:
    slowest = [{name: SLOWEST[name] for name in method.default if name in SLOWEST}]
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        method.predict_candidates(batch, encoder, None if all_candidates else slowest)
        if batch.support.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        if times[0] > 60:
            break
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), metavar="NAME", default=None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU; two on a busy machine crawl (default 1)")
    parser.add_argument("--all-candidates", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    encoder, batch = Conv4(1).to(device).eval(), episodes(options.episodes, device)
    names = options.methods or [
        name for name in METHODS if not name.endswith("w/ PA")
    ]  # pseudo-annotation does not change the time
    reference = seconds(METHODS["Ours"], batch, encoder, options.all_candidates)
    print(f"{options.episodes} episodes on {device.type}, {options.threads} thread(s) for the CPU's part")
    print(f"{'':10}{'seconds':>10}{'to Ours':>10}{'paper s':>10}{'to Ours':>10}")
    for name in names:
        took = reference if name == "Ours" else seconds(METHODS[name], batch, encoder, options.all_candidates)
        paper = PAPER.get(name)
        theirs = f"{paper:>10.3f}{paper / PAPER['Ours']:>10.2f}" if paper is not None else f"{'–':>10}{'–':>10}"
        print(f"{name:10}{took:>10.3f}{took / reference:>10.2f}{theirs}", flush=True)


if __name__ == "__main__":
    main()
