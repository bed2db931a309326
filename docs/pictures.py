"""Make the pictures of the documentation anew, from the installed program: `python docs/pictures.py`.

This needs chromium and the packages of the extra `test`. `images/flow.svg` is drawn by hand.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import numpy as np
import pandas as pd
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_digits

from crowdshot._cli import demo

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, chdir(folder), browser() as open_page:
        demo.run(Path("demo"))
        save("demo-confusion", Path("demo/confusion.png").read_bytes())
        plots()
        report(open_page)
        service(open_page)


def save(name: str, png: bytes) -> None:
    """Save a picture with 256 colours, which makes it a third as large."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, kmeans=3, dither=Image.Dither.NONE)
    picture.save(IMAGES / f"{name}.png", optimize=True)
    print(f"docs/images/{name}.png: {(IMAGES / f'{name}.png').stat().st_size:,} bytes")


@contextmanager
def browser() -> Iterator[Callable[[str, int], Page]]:
    """Give a function that opens an address in a window of 1200 pixels and the given height."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"))

        def open_page(address: str, height: int) -> Page:
            page = chromium.new_page(viewport={"width": 1200, "height": height}, color_scheme="light")
            page.goto(address)
            return page

        yield open_page
        chromium.close()


def plots() -> None:
    """Run the first two examples of plots.md."""
    matplotlib.use("Agg")
    first, second = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "plots.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )[:2]
    exec(first + second, {})
    save("plots", Path("results.png").read_bytes())


def report(open_page: Callable[[str, int], Page]) -> None:
    """Report on 120 digits with three labels each: the first screen, and the annotators with the weakest one opened."""
    digits = load_digits()
    problem = demo.draw_problem(digits.target.astype(np.int64), seed=0, shots=12, labels_per_item=3)
    problem.annotations.to_frame().to_csv("labels.csv", index=False)
    Path("images").mkdir()
    for index, name in zip(problem.support, problem.annotations.items, strict=True):
        Image.fromarray((255 / 16 * digits.images[index]).round().astype(np.uint8)).save(Path("images") / name)
    crowdshot = [sys.executable, "-m", "crowdshot"]
    subprocess.run([*crowdshot, "adapt", "labels.csv", "--images", "images", "--out", "results"], check=True)
    address = Path("results/report.html").absolute().as_uri()
    save("report", open_page(address, 1000).screenshot())
    page = open_page(address, 1180)
    page.locator("#people-list summary").first.click()
    page.evaluate("document.querySelector('#annotators').scrollIntoView({behavior: 'instant'})")
    save("report-annotators", page.screenshot())


def service(open_page: Callable[[str, int], Page]) -> None:
    """Label 100 items by four annotators, 20 of them with known answers; one guesses and one was not tested."""
    random, classes = np.random.default_rng(0), ["cat", "dog", "fox"]
    truth = {f"{i}.png": classes[i % 3] for i in range(100)}
    known = list(truth)[:20]
    rows = []
    for name, share, accuracy in (("ann", 0.8, 0.9), ("bob", 0.75, 0.8), ("bot", 0.7, 0.35), ("cleo", 0.8, 0.85)):
        for item, label in truth.items():
            if random.random() < share and not (name == "cleo" and item in known):
                rows.append((item, name, label if random.random() < accuracy else random.choice(classes)))
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv("crowd.csv", index=False)
    pd.DataFrame([(item, truth[item]) for item in known], columns=["item", "truth"]).to_csv("known.csv", index=False)
    options = "--labels crowd.csv --gold known.csv --gold-share 0.1 --pause-below 0.6 --after 10 --data live --port 0"
    command = [sys.executable, "-m", "crowdshot", "serve", *options.split()]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = next(line for line in running.stderr or () if "listening at" in line).split()[-1]
        save("gold", open_page(address, 1000).locator("section:has(#people)").screenshot())
    finally:
        running.terminate()
        running.wait()


if __name__ == "__main__":
    main()
