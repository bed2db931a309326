"""Numbers in the documentation are those in results/: `python docs/quoted.py` checks, `… --write` writes them anew.

A page has them in two ways. What stands between markers is generated, by the function of that name below:

    <!-- numbers: beyond -->
    …
    <!-- end -->

What prose quotes is listed in a comment of the page, a line for each number: the number as it is written, the table in
results/ without its ending, the method, and the cell as items and annotators (none: the average; 0 annotators: real
ones), or the dataset where the table has a line for each.

    <!-- quoted
    0.934 beyond/omniglot-fair Labelings
    0.777 beyond/omniglot-fair Labelings 4x3
    -->
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = re.compile(r"(<!-- numbers: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
QUOTED = re.compile(r"<!-- quoted\n(.*?)-->", re.DOTALL)
NOTHING = "–"
OMNIGLOT, STAND_IN = "Omniglot", "stand-in for miniImageNet"


@cache
def read(table: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / f"{table}.csv")


def number(table: str, method: str, cell: str = "", column: str = "accuracy") -> float | None:
    """What results say; None where that was not run."""
    rows = read(table)
    rows = rows[rows["method"] == method]
    if "dataset" in rows:
        rows = rows[rows["dataset"] == cell]
    elif cell:
        items, _, annotators = cell.partition("x")
        rows = rows[(rows["n_support"] == int(items)) & (rows["n_annotators"] == int(annotators or 0))]
    else:
        rows = rows[rows["n_support"].isna()]
    return None if rows.empty or pd.isna(rows[column].iloc[0]) else float(rows[column].iloc[0])


# ---- what is generated -----------------------------------------------------------------------------------------------


def beyond() -> str:
    """The default beside the paper's method and its rivals, theirs and with an encoder trained as the default's."""
    tables = {
        OMNIGLOT: "beyond/omniglot-fair",
        "the same, flippers and class-wise spammers too": "beyond-other-annotators/omniglot-fair",
        STAND_IN: "stand-in/beyond/tiny-imagenet-100-fair",
        "the same, flippers and class-wise spammers too ": "stand-in/beyond-other-annotators/tiny-imagenet-100-fair",
        "LabelMe, real annotators (500 episodes a line)": "stand-in/beyond-more-episodes/labelme-fair",
        "CIFAR-10S, real annotators (500 episodes a line)": "stand-in/beyond-more-episodes/cifar10s-fair",
    }
    methods = {
        "the paper's method": "Ours",
        "soft votes": "PrSV",
        "Dawid–Skene": "PrDS",
        "soft votes, wide encoder": "PrSV wide",
        "Dawid–Skene, wide encoder": "PrDS wide",
        "the paper's EM, centred, wide encoder": "EM wide",
        "the paper's method, wide recipe": "Ours wide",
        "labeling-search": "labeling-search",
        "the default": "combined",
    }
    lines = {name: [_shown(number(table, method)) for method in methods.values()] for name, table in tables.items()}
    return _table(["", *methods], lines)


def attribution() -> str:
    """How much of the lead over the paper's method is the encoder's and the origin's, and how much the search's."""
    told = []
    for name, table in ((OMNIGLOT, "beyond/omniglot-fair"), ("the stand-in", "stand-in/beyond/tiny-imagenet-100-fair")):
        ours, em, labelings = (number(table, method) for method in ("Ours", "EM wide", "labeling-search"))
        trained = number(table, "Ours wide")
        if ours is None or em is None or labelings is None:
            return OUTSIDE
        told.append(
            f"On {name} the paper's own EM, around the support's centre and on Labelings' encoder, has {em:.3f}: of "
            f"the lead over the paper's method, {labelings - ours:.3f}, {em - ours:.3f} is the encoder's and the "
            f"centring's, and {labelings - em:.3f} the search's own."
            + (f" The paper's method meta-trained by the wide recipe has {trained:.3f}." if trained else "")
        )
    return "\n".join([*told, ""])


OUTSIDE = """\
About half of the lead over the paper's method, or more, is not the search's. The paper's own EM, around the support's
centre and on Labelings' encoder, has 0.909 to 0.913 on Omniglot and 0.561 to 0.563 on the stand-in: that much is the
encoder's and the centring's. The search's own part is about 0.02 on Omniglot, and 0.012 to 0.02 on the stand-in.
(Measured outside `results/`; `crowdshot paper run beyond --methods "EM wide,Ours wide"` makes rows of it.)
"""


def scorecard() -> str:
    """Return a line for each experiment of the paper: the averages, and how many numbers agree."""
    lines = {}
    for experiment, dataset, table, method in SCORED:
        twin = read(f"{experiment}/{table}-twin")
        if "dataset" in twin:
            twin = twin[twin["dataset"] == dataset]
        averages = twin if "dataset" in twin else twin[twin["n_support"].isna()]
        cells = twin if "dataset" in twin else twin[twin["n_support"].notna()]
        cells = cells[cells["in_standard_errors"].notna()]
        ours = cells.loc[cells["method"] == method, "in_standard_errors"]
        average = averages[averages["method"] == method]
        link = f"[{experiment.removeprefix('stand-in/')}](../results/{experiment}/tables.md)"
        data = DATASETS[dataset] + " (stand-in's encoders)" * (
            experiment.startswith("stand-in/") and dataset == "labelme"
        )
        lines[link, dataset] = [
            data,
            method,
            *(_shown(average[column].iloc[0]) if len(average) else NOTHING for column in ("paper", "accuracy")),
            f"{(ours < -2).sum()} / {(ours.abs() <= 2).sum()} / {(ours > 2).sum()}",
            f"{(cells['in_standard_errors'].abs() <= 2).sum()} of {len(cells)}",
            _best(averages),
        ]
    head = ["experiment", "data", "system", "the paper", "here", "lower / within two standard errors / higher"]
    head += ["all systems within two standard errors", "best system in the paper / here"]
    return _table(head, {link + " " * n: cells for n, ((link, _), cells) in enumerate(lines.items())})


def _best(averages: pd.DataFrame) -> str:
    """Return the best of the systems that both the paper and this run have."""
    both = averages.dropna(subset=["accuracy", "paper"]).set_index("method")
    return f"{both['paper'].idxmax()} / {both['accuracy'].idxmax()}" if len(both) > 1 else NOTHING


DATASETS = {
    "omniglot": OMNIGLOT,
    "miniimagenet": "miniImageNet",
    "tiny-imagenet-100": "stand-in",
    "labelme": "LabelMe",
    "cifar10h": "CIFAR-10H",
}
SCORED = [
    ("main", "omniglot", "omniglot", "Ours"),
    ("main", "miniimagenet", "miniimagenet", "Ours"),
    ("labelme", "labelme", "labelme", "Ours"),
    ("cifar10h", "cifar10h", "cifar10h", "Ours"),
    ("other-annotators", "omniglot", "omniglot", "Ours"),
    ("other-annotators", "miniimagenet", "miniimagenet", "Ours"),
    ("dirichlet-b", "omniglot", "average", "Ours b=100"),
    ("dirichlet-b", "miniimagenet", "average", "Ours b=100"),
    ("dirichlet-b", "labelme", "average", "Ours b=100"),
    ("class-imbalance", "labelme", "average", "Ours b=100"),
    ("with-pseudo-annotation", "omniglot", "average", "PrMV w/ PA"),
    ("stand-in/with-pseudo-annotation", "tiny-imagenet-100", "average", "PrMV w/ PA"),
    ("stand-in/with-pseudo-annotation", "labelme", "average", "PrMV w/ PA"),
    ("noisy-label-learning", "omniglot", "average", "LNL"),
    ("stand-in/noisy-label-learning", "tiny-imagenet-100", "average", "LNL"),
    ("stand-in/noisy-label-learning", "labelme", "average", "LNL"),
    ("example-dependent", "omniglot", "average", "MLF"),
    ("stand-in/example-dependent", "tiny-imagenet-100", "average", "MLF"),
    ("stand-in/example-dependent", "labelme", "average", "MLF"),
    ("large-support", "miniimagenet", "miniimagenet", "Ours"),
    ("large-annotators", "miniimagenet", "miniimagenet", "Ours"),
]


def _shown(value: float | None) -> str:
    return NOTHING if value is None or pd.isna(value) else f"{value:.3f}"


def _table(head: list[str], lines: dict[str, list[str]]) -> str:
    """Without columns that have nothing in them."""
    kept = [i for i in range(1, len(head)) if any(cells[i - 1] != NOTHING for cells in lines.values())]
    rows = [[head[0], *(head[i] for i in kept)], ["---"] * (1 + len(kept))]
    rows += [[name.strip(), *(cells[i - 1] for i in kept)] for name, cells in lines.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


PARTS: dict[str, Callable[[], str]] = {"beyond": beyond, "attribution": attribution, "scorecard": scorecard}


# ---- pages -----------------------------------------------------------------------------------------------------------


def written(text: str) -> str:
    """The page with its generated parts as results say."""
    return GENERATED.sub(lambda found: found[1] + "\n" + PARTS[found[2]]() + "\n" + found[4], text)


def wrong(text: str) -> list[str]:
    """What the page quotes, and results do not say, a sentence each."""
    found = []
    listed = QUOTED.findall(text)
    prose = QUOTED.sub("", text)
    for line in (line for block in listed for line in block.splitlines() if line.strip()):
        quoted, table, *words = line.split()
        has_cell = "dataset" in read(table) or re.fullmatch(r"\d+x\d+", words[-1])
        *method, cell = words if has_cell else [*words, ""]
        value = number(table, " ".join(method), cell)
        decimals = len(quoted.partition(".")[2])
        said = NOTHING if value is None else f"{value:.{decimals}f}"
        if said != quoted:
            found.append(f"quotes {quoted}, results/{table} has {said} for {' '.join(words)}")
        if quoted not in prose:
            found.append(f"lists {quoted} of results/{table} as quoted, but does not have it")
    return found


def main() -> int:
    write, failed, checked = "--write" in sys.argv[1:], 0, 0
    for page in PAGES:
        text = page.read_text("utf-8")
        new = written(text)
        checked += len(GENERATED.findall(text)) + sum(len(block.splitlines()) for block in QUOTED.findall(text))
        if write and new != text:
            page.write_text(new, "utf-8")
        told = wrong(new)
        if new != text and not write:
            told.append("has a generated part that differs from results; `python docs/quoted.py --write` writes it")
        for sentence in told:
            print(f"{page.relative_to(ROOT)} {sentence}.", file=sys.stderr)
        failed += len(told)
    print(f"{checked} numbers and tables in the documentation, {failed or 'none'} of them not what results/ say.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
