"""The report for many items: how much work it is, how large it gets, and how soon a browser shows it.

    python benchmarks/report.py [--items 10000] [--images FOLDER] [--keep report.html]

Without a folder of images, drawn ones are used, whose noise compresses worse than photographs do. Half of the items are
labelled, three labels each, by forty annotators; embeddings are drawn, because embedding is not what is measured. The
page is opened from disk in a fresh Chromium, where there is one: until the load event, when everything in the page has
been read, and until the first paint. A page of fifty items is opened for comparison.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.encoders.images import list_images
from crowdshot.labels.annotations import Annotations
from crowdshot.report.page import facts
from crowdshot.report.page.how_made import Run
from crowdshot.report.page.writing import write_page

ANNOTATORS, CLASSES, WIDTH, LABELS = 40, 10, 192, 3


def draw_images(folder, n, random):
    for i in range(n):
        rough = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = np.asarray(Image.fromarray(rough).resize((160, 120), Image.Resampling.BICUBIC), dtype=np.int16)
        image = (image + random.integers(-20, 20, image.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(image).save(folder / f"{i:05d}.jpg", quality=85)


def fitted(n, random):
    """A classifier of which all but the embedding is real, and the embeddings."""
    truth = random.integers(CLASSES, size=n)
    centres = random.normal(size=(CLASSES, WIDTH))
    embeddings = torch.from_numpy(centres[truth] + 2.5 * random.normal(size=(n, WIDTH))).float()
    said = np.full((n, ANNOTATORS), -1)
    for i in range(n // 2):
        for who in random.choice(ANNOTATORS, LABELS, replace=False):
            said[i, who] = truth[i] if random.random() < 0.75 else random.integers(CLASSES)
    labels = Annotations.from_matrix(said, items=[f"photos/{i:05d}.jpg" for i in range(n)], classes=range(CLASSES))
    clf = CrowdClassifier("identity")
    return clf.fit_embeddings(embeddings, labels, items=labels.items), embeddings


def make(path, n, images, random):
    clf, embeddings = fitted(n, random)
    run = Run(["labels.csv"], "photos", images[:n], {}, "crowdshot adapt labels.csv --images photos --out results")
    start = time.process_time()
    write_page(path, facts.gather(clf, embeddings, run))
    return time.process_time() - start


def opened(path, times=3):
    """Median seconds until load and until the first paint; None where there is no browser."""
    import shutil

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if browser is None:
        return None
    script = """() => [performance.timing.loadEventEnd - performance.timing.navigationStart,
                        performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN]"""
    seen = []
    with sync_playwright() as playwright:
        for _ in range(times):
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page()
            page.goto(path.as_uri())
            page.wait_for_timeout(500)
            seen.append(page.evaluate(script))
            chromium.close()
    return [statistics.median(column) / 1000 for column in zip(*seen, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--images", type=Path, help="a folder with as many images")
    parser.add_argument("--keep", type=Path, help="where to leave the page")
    args = parser.parse_args()
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        if args.images is None:
            draw_images(Path(folder), args.items, random)
        images = list(list_images(args.images or folder).values())
        print(f"{'items':>8s} {'CPU seconds':>17s} {'megabytes':>10s} {'loaded after':>13s} {'first paint':>12s}")
        for n in (50, args.items):
            path = Path(folder) / f"report-{n}.html"
            seconds = make(path, n, images, random)
            shown = [f"{s:.2f} s" for s in opened(path) or ()] or ["no browser", ""]
            size = path.stat().st_size / 1e6
            print(f"{n:8,d} {seconds:17.2f} {size:10.2f} {shown[0]:>13s} {shown[1]:>12s}")
        if args.keep:
            args.keep.write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
