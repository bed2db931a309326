"""Compare the default with majority vote and combinations of common tools, in accuracy and calibration.

    python benchmarks/reality.py A --data ../shared/data                    # labels only: 23 real crowds, also thinned
    python benchmarks/reality.py B --data ../shared/data [--quick]          # feature vectors
    python benchmarks/reality.py C --data ../shared/data [--quick]          # images and shipped encoders
    python benchmarks/reality.py A --only ours                              # measure ours again, keep the others
    python benchmarks/reality.py A --tables                                 # measure nothing, write the tables

Rows are kept in ``results/reality/A/rows.parquet`` (problem × method × seed, with the commit). A run that was stopped
continues from there; failures are kept as well, with the reason. ``tables.md`` in the same folder is made from these
rows. The parts are in `reality_labels.py`, `reality_features.py` and `reality_images.py`, other methods in
`rivals_labels.py` and `rivals_features.py`, and measures in `measures.py`.
"""

import argparse
from pathlib import Path

import reality_features
import reality_images
import reality_labels
from rows import Rows, command
from threadpoolctl import threadpool_limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("A", "B", "C"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("results/reality"))
    parser.add_argument("--only", nargs="+", default=[], metavar="METHOD", help="measured anew, alone")
    parser.add_argument("--quick", action="store_true", help="B: every third scenario, one seed; C: one seed")
    parser.add_argument("--processes", type=int, default=1, help="B, C")
    parser.add_argument("--keep", type=Path, default=Path("runs/reality"), help="B, C: where features are kept")
    parser.add_argument("--tables", action="store_true", help="of the rows there are; measure nothing")
    options = parser.parse_args()
    out = options.out / options.part
    rows = Rows(out / "rows.parquet", PARTS[options.part].KEYS)
    if options.part == "A":
        if not options.tables:
            reality_labels.measure(rows, options.data, set(options.only))
        found = reality_labels.tables(rows)
    else:
        part = PARTS[options.part]
        if not options.tables:
            part.measure(rows, options.data, options.keep, set(options.only), options.quick, options.processes)
        found = part.tables(rows)
    show(found, PARTS[options.part].FIRST, out / "tables.md", rows)


PARTS = {"A": reality_labels, "B": reality_features, "C": reality_images}


def show(found: dict[str, str], first: tuple[str, ...], path: Path, rows: Rows) -> None:
    """Write all tables to a file and print the first ones."""
    commits = rows.table.groupby("commit")["method"].unique()
    made = "\n".join(f"- at {at}: {', '.join(sorted(methods))}" for at, methods in commits.items())
    parts = [f"## {title}\n\n{text}" for title, text in found.items()]
    path.write_text("\n\n".join([*parts, f"## How it was made\n\n`{command()}`\n\n{made}"]) + "\n")
    print("\n\n".join(f"## {title}\n\n{found[title]}" for title in first))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
