"""Numbers in the documentation are those in results/: `python docs/quoted.py` checks, `… --write` writes them anew.

A page has them in two ways. What stands between markers is generated, by the function of that name below:

    <!-- numbers: beyond -->
    …
    <!-- end -->

What prose quotes is listed in a comment of the page, a line for each number: the number as it is written, the table in
results/ without its ending, the method, and the cell as items and annotators (none: the average; 0 annotators: real
ones), or the dataset where the table has a line for each.

    <!-- quoted
    0.934 beyond/omniglot-fair labeling-search
    0.777 beyond/omniglot-fair labeling-search 4x3
    -->
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from itertools import combinations
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = re.compile(r"(<!-- numbers: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
QUOTED = re.compile(r"<!-- quoted\n(.*?)-->", re.DOTALL)
NOTHING = "–"
OMNIGLOT = "Omniglot"
NOT_RUN = "Not run"


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
    """Return the project's methods beside the paper's and its rivals, a line for each dataset with rows."""
    lines, missing = {}, []
    for name, table in BEYOND.items():
        if number(table, "labeling-search") is None:
            missing.append(name)
        else:
            lines[name] = [_shown(number(table, method)) for method in METHODS.values()]
    text = _table(["", *METHODS], lines)
    return f"{text}\n{NOT_RUN}: {_listed(missing)}.\n" if missing else text


def attribution() -> str:
    """Return the gains over the paper's method: of the encoder and the origin, and of the search."""
    lines = {}
    for name, table in BEYOND.items():
        ours, em, search = (number(table, method) for method in ("Ours", "EM wide", "labeling-search"))
        if ours is not None and em is not None and search is not None:
            lines[name] = [*map(_shown, (ours, em, search)), *map(_signed, (em - ours, search - em))]
    head = ["", "Ours", "EM wide", "labeling-search", "gain from encoder and origin", "gain from the search"]
    return _table(head, lines)


def scorecard() -> str:
    """Return a line for each experiment of the paper: averages, agreement of cells and of the order of systems."""
    lines: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    for experiment, dataset, table, method in SCORED:
        twin, shown = read(f"{experiment}/{table}-twin"), read(f"{experiment}/{table}")
        if "dataset" in twin:  # one line per dataset, without cells
            averages = cells = twin[twin["dataset"] == dataset]
            shown = shown[shown["dataset"] == dataset]
        else:
            averages, cells = twin[twin["n_support"].isna()], twin[twin["n_support"].notna()]
            shown = shown[shown["n_support"].isna()]
        cells = cells[cells["in_standard_errors"].notna()]
        ours = cells.loc[cells["method"] == method, "in_standard_errors"]
        average = averages[averages["method"] == method]
        both = averages.dropna(subset=["accuracy", "paper"]).set_index("method")
        if method not in both.index:
            lost.setdefault(DATASETS[dataset], []).append(experiment)
            continue
        key = f"[{TABLES[experiment]}, {experiment}](../results/{experiment}/tables.md), {DATASETS[dataset]}"
        within = (cells["in_standard_errors"].abs() <= 2).sum()
        lines[key] = [
            method,
            *(_shown(average[column].iloc[0]) for column in ("paper", "accuracy")),
            f"{(ours < -2).sum()} / {(ours.abs() <= 2).sum()} / {(ours > 2).sum()}",
            f"{within} of {len(cells)}",
            _order(both),
            _best(both, shown),
        ]
    head = ["table and data", "system", "the paper", "here", "lower / within / higher"]
    text = _table([*head, "all within", "pairs", "best: the paper / here"], lines)
    for where, experiments in lost.items():
        text += f"\n{NOT_RUN} on {where}: {', '.join(experiments)}.\n"
    return text


def missing() -> str:
    """Return the paper's systems that have no rows, a line for each experiment and dataset."""
    lines = {}
    for experiment, dataset, table, _ in SCORED:
        twin = read(f"{experiment}/{table}-twin")
        twin = twin[twin["dataset"] == dataset] if "dataset" in twin else twin
        known, run = (twin.dropna(subset=[column])["method"].unique() for column in ("paper", "accuracy"))
        names = [method for method in known if method not in run]
        if names:
            lines[f"{experiment}, {DATASETS[dataset]}"] = [", ".join(names)]
    return _table(["experiment and data", "systems without rows"], lines)


def figures() -> str:
    """Return, for each share of spammers, the systems of the paper that a paired test does not tell from the best."""
    lines = {}
    for dataset in ("omniglot", "miniimagenet"):
        rows = read(f"spammers/{dataset}")
        rows = rows[~rows["method"].isin(OURS_ALONE)]
        for share, group in rows.groupby("spammers"):
            named = group.set_index("method")["accuracy"]
            lines[f"{DATASETS[dataset]}, {100 * share:.0f} % spammers"] = [
                ", ".join(group[group["best"]]["method"]) or named.idxmax(),
                *(_shown(named[method]) for method in ("Ours", "PrDS", "PrMV")),
            ]
    return _table(["crowd", "best systems", "Ours", "PrDS", "PrMV"], lines)


def steps() -> str:
    """Return the accuracy of Ours and of w/o PA against the number of EM steps."""
    lines = {}
    for dataset in ("omniglot", "miniimagenet", "labelme"):
        rows = read(f"em-steps/{dataset}")
        for method in ("Ours", "w/o PA"):
            found = rows[rows["method"] == method].set_index("J")["accuracy"]
            lines[f"{method}, {DATASETS[dataset]}"] = [_shown(found.get(j)) for j in STEPS]
    return _table(["EM steps J", *map(str, STEPS)], lines)


def _order(both: pd.DataFrame) -> str:
    """Return how many pairs of systems have the same order of averages in the paper and here."""
    pairs = list(combinations(range(len(both)), 2))
    if not pairs:
        return NOTHING
    paper, here = both["paper"].to_numpy(), both["accuracy"].to_numpy()
    same = sum((paper[i] - paper[j]) * (here[i] - here[j]) > 0 for i, j in pairs)
    return f"{same} of {len(pairs)}"


def _best(both: pd.DataFrame, shown: pd.DataFrame) -> str:
    """Return the best system in the paper and, of its systems, those that a paired test does not tell from the best."""
    if len(both) < 2:
        return NOTHING
    marked = shown[shown["best"].astype(bool) & shown["method"].isin(both.index)]["method"].tolist()
    return f"{both['paper'].idxmax()} / {', '.join(marked) or both['accuracy'].idxmax()}"


OURS_ALONE = ("PrSV",)  # not a system of the paper
STEPS = (1, 2, 3, 4, 5, 10)
BEYOND = {
    OMNIGLOT: "beyond/omniglot-fair",
    "Omniglot, other kinds of annotators": "beyond-other-annotators/omniglot-fair",
    "LabelMe, real annotators": "beyond/labelme-fair",
    "miniImageNet": "beyond/miniimagenet-fair",
    "miniImageNet, other kinds of annotators": "beyond-other-annotators/miniimagenet-fair",
    "CIFAR-10H, real annotators": "beyond/cifar10h-fair",
}
METHODS = {
    "Ours": "Ours",
    "PrSV": "PrSV",
    "PrDS": "PrDS",
    "PrSV wide": "PrSV wide",
    "PrDS wide": "PrDS wide",
    "Ours wide": "Ours wide",
    "EM wide": "EM wide",
    "features": "features",
    "labeling-search": "labeling-search",
    "combined": "combined",
}
DATASETS = {
    "omniglot": OMNIGLOT,
    "miniimagenet": "miniImageNet",
    "labelme": "LabelMe",
    "cifar10h": "CIFAR-10H",
}
TABLES = {
    "main": "1",
    "labelme": "2",
    "other-annotators": "3–4",
    "dirichlet-b": "5",
    "class-imbalance": "6",
    "with-pseudo-annotation": "7",
    "noisy-label-learning": "8",
    "example-dependent": "9",
    "cifar10h": "10",
    "large-support": "11",
    "large-annotators": "12",
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
    ("with-pseudo-annotation", "miniimagenet", "average", "PrMV w/ PA"),
    ("with-pseudo-annotation", "labelme", "average", "PrMV w/ PA"),
    ("noisy-label-learning", "omniglot", "average", "LNL"),
    ("noisy-label-learning", "miniimagenet", "average", "LNL"),
    ("noisy-label-learning", "labelme", "average", "LNL"),
    ("example-dependent", "omniglot", "average", "MLF"),
    ("example-dependent", "miniimagenet", "average", "MLF"),
    ("example-dependent", "labelme", "average", "MLF"),
    ("large-support", "miniimagenet", "miniimagenet", "Ours"),
    ("large-annotators", "miniimagenet", "miniimagenet", "Ours"),
]


def _listed(names: list[str]) -> str:
    return "; ".join(names)


def _shown(value: float | None) -> str:
    return NOTHING if value is None or pd.isna(value) else _rounded(value, 3)


def _rounded(value: float, decimals: int) -> str:
    """Round half up, as tables.md does: the CSV files keep six digits, so that halves occur."""
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _table(head: list[str], lines: dict[str, list[str]]) -> str:
    """Without columns that have nothing in them."""
    kept = [i for i in range(1, len(head)) if any(cells[i - 1] != NOTHING for cells in lines.values())]
    rows = [[head[0], *(head[i] for i in kept)], ["---"] * (1 + len(kept))]
    rows += [[name.strip(), *(cells[i - 1] for i in kept)] for name, cells in lines.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


PARTS: dict[str, Callable[[], str]] = {
    "beyond": beyond,
    "attribution": attribution,
    "scorecard": scorecard,
    "missing": missing,
    "figures": figures,
    "steps": steps,
}


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
        said = NOTHING if value is None else _rounded(value, decimals)
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
