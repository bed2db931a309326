"""Measure the time of embedding images with Conv4 on a CPU, compared with a plain implementation.

    python benchmarks/embedding.py [--threads 1]

In evaluation mode `Conv4` processes a few images at a time, so that activations stay in the processor's cache, and uses
the channels-last format. The plain implementation passes a whole batch through the layers; `Encoder.embed` reads 64
images at a time.
"""

import argparse
import time

import torch

from crowdshot.encoders.networks import Conv4

SIZES = [(3, 84, 256), (1, 28, 2048)]  # channels, side, images
REPEATS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    print(f"{'Conv4, ' + str(threads) + ' threads':44} {'ms an image':>12} {'ratio':>6}")
    for channels, side, n in SIZES:
        network, images = Conv4(channels).eval(), torch.rand(n, channels, side, side)

        def plain(batch, network=network, images=images):
            return torch.cat([network.blocks(part).flatten(1) for part in images.split(batch)])

        def ours(batch, network=network, images=images):
            return torch.cat([network(part) for part in images.split(batch)])

        ways = {"plain, all at once": (plain, n), "plain, 64 at once": (plain, 64), "Conv4, 64 at once": (ours, 64)}
        best = dict.fromkeys(ways, float("inf"))
        with torch.no_grad():
            assert torch.allclose(plain(64), ours(64), atol=1e-4)
            for _ in range(REPEATS):  # alternate, so that other programs affect all variants equally
                for name, (way, batch) in ways.items():
                    start = time.perf_counter()
                    way(batch)
                    best[name] = min(best[name], time.perf_counter() - start)
        for name, seconds in best.items():
            ratio = best["plain, all at once"] / seconds
            print(f"{f'{side}×{side}, {name}':44} {seconds / n * 1e3:12.3f} {ratio:6.1f}")


if __name__ == "__main__":
    main()
