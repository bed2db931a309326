"""Measure the report for many items: processor time, file size, and the time until a browser shows it.

    python benchmarks/report.py [--items 10000] [--images FOLDER | --features] [--keep report.html] [--out report.json]

Without a folder, images are drawn; their noise compresses worse than photographs. Half of the items have three labels
each, from forty annotators. Embeddings are random, because embedding is not measured. With ``--features`` there are no
images, and all items are labelled. Each size is fitted and written in a process of its own, whose peak memory is
printed. If Chromium is installed, it opens the page from disk; the times until the load event and until the first paint
are printed. A page of fifty items is opened for comparison.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.image_input import list_images
from crowdshot.labels.annotations import Annotations
from crowdshot.report.page import facts
from crowdshot.report.page.facts import Run
from crowdshot.report.page.page_writer import write_page

ANNOTATORS, CLASSES, WIDTH, FEW, LABELS = 40, 10, 192, 16, 3  # FEW: features per item without images


def draw_images(folder, n, random):
    for i in range(n):
        rough = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = np.asarray(Image.fromarray(rough).resize((160, 120), Image.Resampling.BICUBIC), dtype=np.int16)
        image = (image + random.integers(-20, 20, image.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(image).save(folder / f"{i:05d}.jpg", quality=85)


def fitted(n, labelled, width, random):
    """Return a classifier, fitted to random embeddings, and the embeddings."""
    truth = random.integers(CLASSES, size=n)
    embeddings = torch.from_numpy(random.normal(size=(CLASSES, width))[truth] + 2.5 * random.normal(size=(n, width)))
    item, place = np.divmod(np.arange(labelled * LABELS), LABELS)
    annotator = (random.integers(ANNOTATORS, size=labelled)[item] + place * (ANNOTATORS // LABELS)) % ANNOTATORS
    label = np.where(random.random(len(item)) < 0.75, truth[item], random.integers(CLASSES, size=len(item)))
    ids = np.array([f"photos/{i:07d}.jpg" for i in range(n)], dtype=object)
    labels = Annotations(item, annotator, label, ids, np.arange(ANNOTATORS), np.arange(CLASSES))
    clf = CrowdClassifier("identity")
    return clf.fit_embeddings(embeddings.float(), labels, items=labels.items), embeddings.float()


def make(path, n, images):
    """Return the seconds of the fit, the seconds of the page, and the peak memory in gigabytes."""
    torch.set_num_threads(1)
    start = time.process_time()
    clf, embeddings = fitted(n, n // 2 if images else n, WIDTH if images else FEW, np.random.default_rng(0))
    run = Run(["labels.csv"], "photos", images[:n], {}, "crowdshot adapt labels.csv --images photos --out results")
    then = time.process_time()
    write_page(path, facts.gather(clf, embeddings, run))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"fit, CPU s": then - start, "page, CPU s": time.process_time() - then, "peak GB": peak}


def opened(path, times=3):
    """Return the median seconds until load and until the first paint, or None without a browser."""
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
    parser.add_argument("--items", type=float, nargs="+", default=[10_000])
    parser.add_argument("--images", type=Path, help="a folder with as many images")
    parser.add_argument("--features", action="store_true", help="no images")
    parser.add_argument("--keep", type=Path, help="where to leave the last page")
    parser.add_argument("--out", type=Path, help="where to leave the numbers, as JSON")
    args = parser.parse_args()
    sizes, rows = [50, *(int(n) for n in args.items)], []
    with tempfile.TemporaryDirectory() as folder:
        if args.images is None and not args.features:
            draw_images(Path(folder), max(sizes), np.random.default_rng(0))
        images = [] if args.features else list(list_images(args.images or folder).values())
        for n in sizes:
            path = Path(folder) / f"report-{n}.html"
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                row = {"items": n, **alone.apply(make, (path, n, images)), "page, MB": path.stat().st_size / 1e6}
            row |= dict(zip(("loaded, s", "first paint, s"), opened(path) or (), strict=False))
            print("  ".join(f"{name} {value:,.6g}" for name, value in row.items()), flush=True)
            rows.append(row)
        if args.keep:
            args.keep.write_bytes(path.read_bytes())
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
