"""Tables as text: Markdown that can be read as it stands, LaTeX with booktabs, CSV with a row for each number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from crowdshot.io.atomic import replacing

WIDTH = 180  # characters of a Markdown line, beyond which a table goes on below
NOTHING = "–"  # what was not run
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "%_&#${}"},
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "†": r"$^\dagger$",
    "’": "'",
    "²": "$^2$",
    "…": r"\ldots{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
SYMBOLS = {"N_S": "$N_S$", "R": "$R$", "J": "$J$"}


class Line(NamedTuple):
    """One row of a table. Cells may be **bold**. ``ruled``: a line is drawn above it."""

    labels: tuple[str, ...]
    cells: tuple[str, ...]
    ruled: bool = False


@dataclass(frozen=True)
class PrintedTable:
    """``heads`` stand above the labels, ``columns`` above the cells; ``data`` is what the CSV holds."""

    name: str
    caption: str
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    data: pd.DataFrame
    notes: tuple[str, ...] = ()


def write(folder: Path, title: str, tables: Sequence[PrintedTable], made_of: str = "") -> None:
    """tables.md with all of them, and what they are made of; of each a .csv and a .tex."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        with replacing(folder / f"{table.name}.csv") as temporary:
            table.data.to_csv(temporary, index=False, float_format="%.6g")
        with replacing(folder / f"{table.name}.tex") as temporary:
            temporary.write_text(latex(table, f"{folder.name}-{table.name}"), encoding="utf-8")
    with replacing(folder / "tables.md") as temporary:
        last = f"\n{made_of}\n" if made_of else ""
        temporary.write_text(f"# {title}\n\n" + "\n".join(map(markdown, tables)) + last, encoding="utf-8")


def markdown(table: PrintedTable) -> str:
    """Columns are padded, and those that do not fit go on in a second block with the same labels."""
    parts = [f"## {table.name}\n", f"{table.caption}\n"]
    for some in _blocks(table):
        head = [*table.heads, *(table.columns[i] for i in some)]
        body = [[*line.labels, *(line.cells[i] for i in some)] for line in table.lines]
        widths = [max(3, *map(len, column)) for column in zip(head, *body, strict=True)]
        marks = [":" + "-" * (w - 1) if i < len(table.heads) else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
        rows = [head, marks, *body]
        parts.append("".join(_markdown_row(row, widths, len(table.heads)) for row in rows))
    parts += [f"{note}\n" for note in table.notes]
    return "\n".join(parts)


def _markdown_row(words: Sequence[str], widths: Sequence[int], n_labels: int) -> str:
    padded = [
        word.ljust(w) if i < n_labels else word.rjust(w) for i, (word, w) in enumerate(zip(words, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |\n"


def _blocks(table: PrintedTable) -> list[list[int]]:
    """Places of columns that fit beside each other, in blocks of (nearly) one size."""
    labels = _widths([table.heads, *(line.labels for line in table.lines)])
    widths = _widths([table.columns, *(line.cells for line in table.lines)])
    n_blocks = max(1, -(-sum(widths) // max(1, WIDTH - sum(labels))))
    size = -(-len(widths) // n_blocks)
    places = list(range(len(widths)))
    return [places[start : start + size] for start in range(0, len(places), size)]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [3 + max(map(len, column)) for column in zip(*rows, strict=True)]


def latex(table: PrintedTable, place: str) -> str:
    """``place`` becomes the table's label."""
    parts = [r"\begin{table*}[t]", r"\centering", rf"\caption{{{escaped(table.caption)}}}"]
    parts += [rf"\label{{tab:{place}}}", r"\footnotesize"]
    for some in _blocks(table):
        parts += [rf"\begin{{tabular}}{{{'l' * len(table.heads)}{'r' * len(some)}}}", r"\toprule"]
        parts += [_latex_row([*table.heads, *(table.columns[i] for i in some)]), r"\midrule"]
        for line in table.lines:
            parts += [r"\midrule"] if line.ruled else []
            parts.append(_latex_row([*line.labels, *(line.cells[i] for i in some)]))
        parts += [r"\bottomrule", r"\end{tabular}", r"\par\medskip"]
    parts += [rf"{escaped(note)}\par" for note in table.notes]
    return "\n".join([*parts, r"\end{table*}", ""])


def _latex_row(words: Sequence[str]) -> str:
    return " & ".join(SYMBOLS.get(word, escaped(word)) for word in words) + r" \\"


def escaped(text: str) -> str:
    """For LaTeX; **bold** and `code` keep their meaning."""
    words = "".join(LATEX.get(sign, sign) for sign in text)
    words = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", words)
    return re.sub(r"`(.+?)`", r"\\texttt{\1}", words)
