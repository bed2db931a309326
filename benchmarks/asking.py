"""Simulate buying labels one by one, and compare strategies that choose the next label to buy.

    python benchmarks/asking.py DATA [--repeats 40] [--out results/asking]    # figures of docs/research/measured.md
    python benchmarks/asking.py --figures [--out results/asking]              # draws figures from saved results only
    python benchmarks/asking.py DATA --crowds [--repeats 20] [--only WAY …]   # real crowds, labels only
    python benchmarks/asking.py --crowds --tables                             # only the tables of these

Real crowds with labels only are in `asking_crowds.py`. For the others, DATA holds omniglot/images_evaluation.zip and
labelme/LabelMe.zip. Each problem starts with a few labels. The other labels are hidden and can be bought, several at a
time; after each purchase all methods are fitted again (EM, method Ours, encoders omniglot and photo-lite0).

    Omniglot   10 characters that no encoder was trained on, 5 drawings of each, 7 simulated annotators
    LabelMe    1,000 photographs with the 2,547 labels of 59 people; only existing labels can be bought

"first labels" starts with one label per item, "few first labels" with one label for some items only (20 of 100
drawings, 50 of 500 photographs). "labels alone" does not use images. The measures are the accuracy of the consensus
and, with images, the accuracy of the classifier on other items. The strategies are:

    expected gain       that of `crowdshot next`
    random              a random label
    least agreement     the item with the lowest share of its leading label, then with the fewest labels, then a random
                        item; any annotator
    fewest, then least  the same with one additional, imagined label that disagrees: items with few labels come earlier
    entropy, likeliest  expected gain for other measures of uncertainty: see `crowdshot.labels.asking`
"""

import argparse
import io
import math
import zipfile
from pathlib import Path
from typing import NamedTuple

import asking_crowds
import numpy as np
import pandas as pd
import torch
from labelme import read
from PIL import Image
from reality import show
from rows import Rows

from crowdshot import simulate
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.encoder_files import load_encoder
from crowdshot.labels import asking
from crowdshot.labels.aggregation import AGGREGATORS, STEPS
from crowdshot.labels.annotations import Annotations
from crowdshot.training.encoder_scores import embedded
from crowdshot_paper.datasets import omniglot
from crowdshot_paper.figures import INK, SOFT, Course, draw_lines, panels, save

OURS = "expected gain"
FIRST_SEED = 1000  # smaller seeds were used to choose the constants of `crowdshot.labels.asking`
RIVALS = {"random": None, "least agreement": 0, "fewest, then least": 1}  # imagined labels that disagree
STYLES = {
    OURS: {"color": INK, "lw": 2.2, "marker": ""},
    "random": {"color": SOFT, "lw": 1.2, "marker": "", "ls": ":"},
    "least agreement": {"color": "#0b6fb0", "lw": 1.2, "marker": "", "ls": "--"},
    "fewest, then least": {"color": "#c4570a", "lw": 1.2, "marker": "", "ls": "-."},
}


class Problem(NamedTuple):
    """All labels ``answers`` (N, R), and those that are known from the start, ``first`` (N, R)."""

    answers: np.ndarray
    first: np.ndarray
    truth: np.ndarray
    items: torch.Tensor
    unseen: torch.Tensor
    unseen_truth: np.ndarray


class Setting(NamedTuple):
    name: str
    data: str
    batch: int
    rounds: int
    look: bool = True  # whether to use the images
    labelled: int | None = None  # items with a label at the start; None for all
    size: int | None = None  # items, or drawings of each character


SETTINGS = (
    Setting("first labels", "omniglot", 10, 15),
    Setting("first labels, labels alone", "omniglot", 10, 15, look=False),
    Setting("few first labels", "omniglot", 10, 15, labelled=20, size=10),
    Setting("first labels", "labelme", 50, 30),
    Setting("first labels, labels alone", "labelme", 50, 30, look=False),
    Setting("few first labels", "labelme", 20, 20, labelled=50, size=500),
)

# ---- problems ----


def prepare(data: Path, kept: Path) -> dict[str, dict[str, np.ndarray]]:
    """Compute embeddings and labels once."""
    makers = {"omniglot": prepare_omniglot, "labelme": prepare_labelme}
    kept.mkdir(parents=True, exist_ok=True)
    for name, make in makers.items():
        if not (kept / f"{name}.npz").exists():
            np.savez(kept / f"{name}.npz", **make(data))
    return {name: dict(np.load(kept / f"{name}.npz")) for name in makers}


def prepare_omniglot(data: Path) -> dict[str, np.ndarray]:
    pool = omniglot.read([data / "omniglot" / "images_evaluation.zip"])
    return {"items": embedded(pool, load_encoder("omniglot")).examples.numpy()}


def prepare_labelme(data: Path) -> dict[str, np.ndarray]:
    path = data / "labelme" / "LabelMe.zip"
    images, truth, answers = read(path)
    with zipfile.ZipFile(path) as archive:
        numbers, names = (
            archive.read(f"LabelMe/{name}.txt").decode().split() for name in ("labels_valid", "labels_valid_names")
        )
        number_of = dict(zip(names, map(int, numbers), strict=True))
        others = [name for name in archive.namelist() if "/valid/" in name and name.endswith(".jpg")]
        unseen = [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in others]
    clf = CrowdClassifier("photo-lite0", method="Ours")
    return {
        "items": clf.embed(images).numpy(),
        "unseen": clf.embed(unseen).numpy(),
        "truth": truth,
        "unseen_truth": np.array([number_of[name.split("/")[-2]] for name in others]),
        "answers": answers[:, (answers >= 0).any(0)],
    }


def draw(setting: Setting, data: dict[str, np.ndarray], seed: int) -> Problem:
    random = np.random.default_rng(seed)
    if setting.data == "omniglot":
        K, shots = 10, setting.size or 5
        shuffled = np.stack([random.permutation(data["items"][k]) for k in random.permutation(len(data["items"]))[:K]])
        items, unseen = (part.reshape(-1, part.shape[-1]) for part in (shuffled[:, :shots], shuffled[:, shots:]))
        truth, unseen_truth = (np.arange(K).repeat(len(part) // K) for part in (items, unseen))
        generator = torch.Generator().manual_seed(seed)
        crowd = simulate.draw_annotators(7, K, simulate.PAPER_SOURCE, generator=generator)
        answers = simulate.draw_labels(torch.from_numpy(truth), crowd.confusion, generator=generator).numpy()
    else:
        chosen = random.permutation(len(data["truth"]))[: setting.size]
        items, truth, answers = data["items"][chosen], data["truth"][chosen], data["answers"][chosen]
        unseen, unseen_truth = data["unseen"], data["unseen_truth"]
    lots = np.where(answers >= 0, random.random(answers.shape), 2)
    first = lots.argsort(1).argsort(1) == 0
    first[random.permutation(len(first))[setting.labelled or len(first) :]] = False
    return Problem(answers, first, truth, torch.from_numpy(items), torch.from_numpy(unseen), unseen_truth)


# ---- choosing ----


def entropy_gains(cases: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    def nats(x: np.ndarray) -> np.ndarray:
        return x * np.log(x, out=np.zeros_like(x), where=x > 0)

    A, K = cases.shape
    said = nats(cases @ confusion.transpose(1, 0, 2).reshape(K, -1)).reshape(A, -1, K).sum(2)
    return np.maximum(nats(cases.sum(1))[:, None] + cases @ nats(confusion).sum(2).T - said, 0)


def likeliest_gains(cases: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """Break ties by a small multiple of the default gain, if no answer can change the likeliest class."""
    after = (cases[:, None, :, None] * confusion).max(2).sum(2)
    return np.maximum(after - cases.max(1)[:, None], 0) + 1e-4 * asking.gains(cases, confusion)


GAINS = {OURS: asking.gains, "entropy": entropy_gains, "likeliest": likeliest_gains}


def buy(way: str, ann: Annotations, posterior: np.ndarray, open_: np.ndarray, n: int, random: np.random.Generator):
    """Return n pairs to buy among those that are available (N, R)."""
    chosen: list[tuple[int, int]] = []
    if way in GAINS:
        confusion = asking.expected_confusion(ann, posterior)
        found = asking.choose(posterior, confusion, np.nonzero(~open_), n, by=GAINS[way])
        chosen = [(question.item, question.annotator) for question in found]
    elif way != "random":
        votes = ann.vote_counts()
        n_labels = votes.sum(1)
        agreement = votes.max(1) / np.maximum(n_labels + RIVALS[way], 1)
        order = np.lexsort((random.random(len(votes)), n_labels, np.where(n_labels > 0, agreement, 0)))
        for item in order[open_[order].any(1)][:n]:
            chosen.append((item, random.choice(np.flatnonzero(open_[item]))))
    rest = open_.copy()
    rest[tuple(np.array(chosen, dtype=int).reshape(-1, 2).T)] = False
    more = random.permutation(np.argwhere(rest))[: n - len(chosen)]  # the rest is bought at random
    return np.array([*chosen, *more], dtype=int).T


def course(problem: Problem, setting: Setting, way: str, clf: CrowdClassifier, seed: int) -> list[tuple[float, float]]:
    """Return the accuracy of the consensus and on unseen items, at the start and after each round."""
    random = np.random.default_rng(seed)
    labels = np.where(problem.first, problem.answers, -1)
    K = int(problem.truth.max()) + 1
    found = []
    for _ in range(setting.rounds + 1):
        ann = Annotations.from_matrix(labels, classes=range(K))
        unseen = math.nan
        if setting.look:
            clf.fit_embeddings(problem.items, ann)
            posterior = clf._model.responsibilities.double().numpy()
            said = clf._model.log_proba((problem.unseen - clf._shift) * clf._factor).argmax(1).numpy()
            unseen = (said == problem.unseen_truth).mean()
        else:
            posterior = AGGREGATORS["one-coin"](ann, STEPS, None).probabilities
        found.append(((posterior.argmax(1) == problem.truth).mean(), unseen))
        item, annotator = buy(way, ann, posterior, (labels < 0) & (problem.answers >= 0), setting.batch, random)
        labels[item, annotator] = problem.answers[item, annotator]
    return found


# ---- measuring ----


def measure(setting: Setting, data: dict[str, np.ndarray], repeats: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row for each strategy and number of labels, and the lead of expected gain averaged over the course."""
    clf = CrowdClassifier({"omniglot": "omniglot", "labelme": "photo-lite0"}[setting.data], method="Ours")
    scores = {}  # way: (repeats, rounds + 1, 2)
    for way in (*GAINS, *RIVALS):
        runs = [
            course(draw(setting, data, seed), setting, way, clf, seed)
            for seed in range(FIRST_SEED, FIRST_SEED + repeats)
        ]
        scores[way] = np.array(runs)
    error = 1 / repeats**0.5
    rows = [
        (setting.data, setting.name, way, i * setting.batch, repeats, *values.mean(0)[i], *(spread[i] * error))
        for way, values in scores.items()
        for spread in [values.std(0, ddof=1)]
        for i in range(setting.rounds + 1)
    ]
    names = ["data", "start", "way", "bought", "repeats", "consensus", "unseen", "consensus_stderr", "unseen_stderr"]
    courses = pd.DataFrame(rows, columns=names)
    ahead = []
    for way in scores:
        difference = (scores[OURS] - scores[way])[:, 1:].mean(1)  # of each repeat, over all purchases
        mean, spread = difference.mean(0), difference.std(0, ddof=1) * error
        ahead.append((setting.data, setting.name, way, *scores[way][:, 1:].mean((0, 1)), *mean, *spread))
    names = ["data", "start", "way", "consensus", "unseen", "ahead", "unseen_ahead", "stderr", "unseen_stderr"]
    return courses, pd.DataFrame(ahead, columns=names)


def figure(courses: pd.DataFrame, data: str, out: Path) -> None:
    """Draw the accuracy of the consensus and on unseen items with images, and of the consensus from labels only."""
    shown = [
        ("first labels", "consensus", "right: the consensus"),
        ("first labels", "unseen", "right: other items, by the classifier"),
        ("first labels, labels alone", "consensus", "right: the consensus of labels alone"),
    ]
    drawn, axes = panels(len(shown), 3.7, 2.9)
    for ax, (start, column, title) in zip(axes, shown, strict=True):
        rows = courses[(courses["data"] == data) & (courses["start"] == start)]
        lines: list[Course] = []
        for way in STYLES:
            bought, right, error = (
                rows.loc[rows["way"] == way, name].tolist() for name in ("bought", column, f"{column}_stderr")
            )
            if all(
                right != line.y for line in lines
            ):  # with three labels per item, both kinds of least agreement are the same
                lines.append(Course(way, bought, right, error))
        last = int(rows["bought"].max())
        draw_lines(ax, lines, {x: str(x) for x in range(0, last + 1, last // 3)}, STYLES)
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_xlabel("labels bought", fontsize=8)
    save(drawn, out, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=40, help="of Omniglot; a quarter as many of LabelMe, ActiveLab")
    parser.add_argument("--out", type=Path, default=Path("results/asking"))
    parser.add_argument("--keep", type=Path, default=Path("runs/asking"), help="where embeddings are kept")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--crowds", action="store_true", help="real crowds by labels alone")
    parser.add_argument("--only", nargs="+", default=[], metavar="WAY", help="with --crowds: measured anew, alone")
    parser.add_argument("--tables", action="store_true", help="with --crowds: of the rows there are; measure nothing")
    options = parser.parse_args()
    if options.crowds:
        rows = Rows(options.out / "crowds" / "rows.parquet", asking_crowds.KEYS)
        if not options.tables:
            asking_crowds.measure(rows, options.data, options.repeats, set(options.only))
        show(asking_crowds.tables(rows), asking_crowds.FIRST, rows.path.parent / "tables.md", rows)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.figures:
        prepared = prepare(options.data, options.keep)
        tables: list[tuple[pd.DataFrame, pd.DataFrame]] = []
        for setting in SETTINGS:
            repeats = options.repeats if setting.data == "omniglot" else options.repeats // 4
            tables.append(measure(setting, prepared[setting.data], repeats))
            print(tables[-1][1].round(4).to_string(index=False), flush=True)
        for name, parts in zip(("courses", "ahead"), zip(*tables, strict=True), strict=True):
            pd.concat(parts).to_csv(options.out / f"{name}.csv", index=False, float_format="%.4f")
    courses = pd.read_csv(options.out / "courses.csv")
    for data in ("omniglot", "labelme"):
        figure(courses, data, options.out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
