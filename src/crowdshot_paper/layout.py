"""Write tables as aligned Markdown, as LaTeX with booktabs, and as CSV with a row per number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from crowdshot.io.atomic import replacing

WIDTH = 180  # characters of a Markdown line; wider tables are split into blocks
NOTHING = "–"  # shown for numbers that do not exist
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
    """A row of a table. Cells may be **bold**. ``ruled`` draws a rule above it."""

    labels: tuple[str, ...]
    cells: tuple[str, ...]
    ruled: bool = False


@dataclass(frozen=True)
class PrintedTable:
    """A table: ``heads`` are headings of labels, ``columns`` those of cells, and ``data`` is the content of the CSV."""

    name: str
    caption: str
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    data: pd.DataFrame
    notes: tuple[str, ...] = ()


def write(folder: Path, title: str, tables: Sequence[PrintedTable], made_of: str = "") -> None:
    """Write tables.md with all tables and the sentence ``made_of``, and a .csv and a .tex file per table."""
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
    """Return Markdown with padded columns; columns that do not fit follow in further blocks with the same labels."""
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
    """Divide the columns into blocks of nearly equal size that fit the width; return their positions."""
    labels = _widths([table.heads, *(line.labels for line in table.lines)])
    widths = _widths([table.columns, *(line.cells for line in table.lines)])
    n_blocks = max(1, -(-sum(widths) // max(1, WIDTH - sum(labels))))
    size = -(-len(widths) // n_blocks)
    places = list(range(len(widths)))
    return [places[start : start + size] for start in range(0, len(places), size)]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [3 + max(map(len, column)) for column in zip(*rows, strict=True)]


def latex(table: PrintedTable, place: str) -> str:
    """Return LaTeX; ``place`` is the table's label."""
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
    """Escape text for LaTeX; **bold** and `code` are converted."""
    words = "".join(LATEX.get(sign, sign) for sign in text)
    words = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", words)
    return re.sub(r"`(.+?)`", r"\\texttt{\1}", words)
