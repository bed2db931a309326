"""Find the annotator columns of wide tables, which have a row for each item and a column for each annotator.

Such tables also have other columns. A column does not belong to an annotator if its name says otherwise (notes, date,
total), if it shares no value with the other columns, or if nearly every row has another value. Values are compared
without case and spaces.

A long table of numbers may look like a wide one, because the numbers of items, annotators and classes overlap. What
differs is that an annotator labels an item once: pairs of an item and an annotator do not repeat. Two annotators who
label many items give some pair of labels again and again.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import Positions, factorize, fold, text
from crowdshot.labels.columns import TRUTH, Columns, find_columns, matches, plain
from crowdshot.labels.spelling import parts

Counts = Mapping[str, int]  # number of cells by value, as `fold` returns it

# A column is not an annotator's if its name is in IS or contains a word in HAS, even if its values are labels. TOTALS
# are names of rows with totals. In the languages of `columns.ALIASES`.
IS = """
    nr no num number row index idx rank batch round version week month year day split fold set group team size width
    height length source origin project status state priority difficulty level confidence certainty score weight
    price cost count total totals sum average avg mean median agreement consensus majority final finallabel finalanswer
    result resolved adjudicated decision done checked reviewed approved flag flagged skip skipped language country
    region location camera quality blurry duplicate tag tags
    nummer zeile charge runde woche monat jahr grösse größe breite höhe quelle projekt priorität schwierigkeit
    sicherheit punkte gewicht preis anzahl summe gesamt mittelwert durchschnitt mehrheit ergebnis endergebnis erledigt
    geprüft sprache
    numéro ligne lot semaine mois année taille largeur hauteur projet statut priorité difficulté confiance poids prix
    nombre somme moyenne majorité résultat langue pays
    número fila lote semana mes año tamaño ancho altura fuente proyecto estado prioridad dificultad confianza peso
    precio cantidad suma promedio mayoría resultado idioma país
    linha mês ano tamanho largura fonte projeto prioridade dificuldade confiança preço contagem soma média maioria
    番号 行 件数 合計 平均 結果 難易度 優先度 信頼度 编号 序号 批次 数量 总计 合计 平均值 结果 难度 优先级 置信度
"""
HAS = """
    email mail address date datum time timestamp created updated modified duration seconds minutes url link href path
    note notes comment comments remark remarks feedback description caption reason question phone ip device browser
    zeit uhrzeit dauer adresse notiz notizen kommentar kommentare bemerkung bemerkungen anmerkung anmerkungen hinweis
    beschreibung grund erstellt geändert
    heure durée courriel commentaire commentaires remarque remarques raison créé
    fecha hora duración correo nota notas comentario comentarios observación observaciones descripción motivo
    horário duração endereço observação observações descrição
    日付 日時 時間 メール 備考 コメント メモ 日期 时间 邮箱 备注 评论 注释 说明
"""
TOTALS = """
    total totals grandtotal subtotal sum sums average avg mean median count stdev agreement accuracy kappa
    summe summen gesamt gesamtsumme gesamtergebnis mittelwert durchschnitt anzahl somme moyenne suma promedio soma média
    合計 平均 总计 合计 平均值
"""
NAMES, WORDS, TOTAL_NAMES = ({plain(word) for word in words.split()} for words in (IS, HAS, TOTALS))
LONGEST = 40  # characters of a name of totals
FEW = 5  # cells; with fewer, distinct values say nothing about a column
WIDEST = 20  # columns of a long table
REPEATS = 8.0  # expected number of repeated pairs of independent columns, from which on their absence is no chance
NAMED_REPEATS = 1.0  # the same if one of the columns is named like annotators
RARE = 0.1  # share of the expected number that may occur, as annotators sometimes label an item again


def is_total(name: str, exactly: bool = True) -> bool:
    """Return whether this is the name of a row with totals, or begins with such a word ("Subtotal Ann")."""
    if plain(name) in TOTAL_NAMES or exactly:
        return plain(name) in TOTAL_NAMES
    first = re.match(r"\s*([^\W\d_]+)(?=[\s:]|$)", name)
    return first is not None and len(name) <= LONGEST and plain(first[1]) in TOTAL_NAMES


def is_label(counts: Counts, source: str) -> bool:
    """Return whether -1 is a label rather than the mark of a missing one.

    That is the case if all other values are whole numbers and one of these holds: they are 0 and 1 (ambiguous, with a
    warning), one of them is negative, or there are fewer than two of them. ``counts``: values of all annotators.
    """
    others = set(counts) - {"-1"}
    if "-1" not in counts or not all(re.fullmatch(r"[-+]?\d+", word) for word in others):
        return False
    if others == {"0", "1"}:
        warnings.warn(
            CrowdshotWarning(
                "has -1 beside 0 and 1, which is read as a label",
                where=source,
                found=-1,
                hint=Use("if it marks missing labels", rename={"-1": ""}),
            ),
            stacklevel=3,
        )
        return True
    return len(others) < 2 or any(word.startswith("-") for word in others)


def annotators_among(header: Sequence[str], values: Sequence[Counts]) -> list[int]:
    """Return the positions of the annotators' columns; none if that is ambiguous.

    Columns are connected if they share a value, and the annotators are the largest connected group. An empty column
    with a name belongs to an annotator who has not started.
    """
    candidates = [column for column, name in enumerate(header) if not is_called_otherwise(name)]
    seen = Counter(value for column in candidates for value in values[column])
    candidates = [column for column in candidates if not _has_unique_values(values[column], seen)]
    groups = sorted(_connected({column: values[column] for column in candidates}), key=len, reverse=True)
    sizes = [len(group) for group in groups]
    if sizes[:1] in ([], [1]) or sizes[:1] == sizes[1:2]:
        return []
    largest = groups[0]
    return sorted(largest + [column for column in candidates if header[column] and not values[column]])


def _connected(values: Mapping[int, Counts]) -> list[list[int]]:
    """Return the groups of columns that are connected by shared values; empty columns are in no group."""
    columns_of: dict[str, list[int]] = {}
    for column, counts in values.items():
        for value in counts:
            columns_of.setdefault(value, []).append(column)
    groups: list[list[int]] = []
    left = {column for column, counts in values.items() if counts}
    for start in values:
        group: list[int] = []
        reached = {start} & left
        while reached:
            left -= reached
            group += sorted(reached)
            words = {value for column in reached for value in values[column]} & columns_of.keys()
            reached = {column for value in words for column in columns_of.pop(value)} & left
        groups += [group] if group else []
    return groups


def is_called_otherwise(name: str) -> bool:
    """Return whether a column's name rules out that it belongs to an annotator."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name))  # createdAt
    found = {plain(word) for word in re.split(r"[^\w]|_", words)}
    is_sign = bool(str(name).strip()) and not plain(name)  # such as #
    return is_sign or plain(name) in TRUTH | NAMES | WORDS or bool(found & WORDS)


def _has_unique_values(counts: Counts, seen: Mapping[str, int]) -> bool:
    """Return whether nearly every cell has another value, most of which occur in no other column."""
    filled = sum(counts.values())
    unique = sum(number for value, number in counts.items() if seen[value] == 1)
    return filled >= FEW and len(counts) > 0.8 * filled and unique > filled / 2


def count(cells: Collection[str]) -> Counter[str]:
    """Count cells by value, without missing ones; a cell with several labels counts for each of them."""
    counts: Counter[str] = Counter()
    for cell, number in Counter(cells).items():
        for value in map(fold, parts(cell)):
            counts[value] += 0 if value == "nan" else number
    return +counts


# ---- DataFrames ----------------------------------------------------------------------------------------------------


def wide_table(labels: pd.DataFrame | pd.Series[Any]) -> pd.DataFrame | None:
    """Return a wide table with items as index and annotators as columns; None for another kind of table.

    The annotators' columns of a wide table share labels; the columns of a long table do not. A single column is one
    annotator's. A column that is named like an item column and has unique values becomes the index.
    """
    if isinstance(labels, pd.Series):
        return labels.to_frame(0 if labels.name is None else labels.name)
    if _is_long(labels) or labels.columns.has_duplicates:
        return None
    words = {name: [text(value) for value in labels[name]] for name in labels.columns}
    if any(None in column for column in words.values()):  # lists and the like cannot be labels
        return None
    values = {name: count([str(word) for word in column]) for name, column in words.items()}
    item = _item_column(labels)
    if item is not None and not any(values[item].keys() & values[name].keys() for name in values if name != item):
        labels = labels.set_index(item)
    if len(labels.columns) == 1:
        return labels
    counts = [Counter({value: n for value, n in values[name].items() if value != "-1"}) for name in labels.columns]
    annotators = annotators_among([str(name) for name in labels.columns], counts)
    if not annotators or _is_long_without_names(labels, annotators):
        return None
    others = [name for place, name in enumerate(labels.columns) if place not in annotators]
    labels = labels.iloc[:, annotators].set_axis(labels[item]) if item in others else labels.iloc[:, annotators]
    others = [name for name in others if name != item]
    if others:
        warnings.warn(
            CrowdshotWarning(
                f"has columns that are not annotators and are ignored: {listing(others)}",
                argument="labels",
                found=others[:10],
            ),
            stacklevel=2,
        )
    return labels


def _is_long(labels: pd.DataFrame) -> bool:
    """Return whether the columns of a long table can be found, or two are named like annotators and labels."""
    if all(matches(role, labels.columns, ranks=2) for role in ("annotator", "label")):
        return True
    return have_names(labels.columns)


def have_names(columns: Sequence[Any] | pd.Index[Any]) -> bool:
    """Return whether columns have names of items, annotators and labels."""
    try:
        find_columns(columns)
    except CrowdshotError:
        return False
    return True


def _is_long_without_names(labels: pd.DataFrame, annotators: Sequence[int]) -> bool:
    """Return whether one of the columns that share values seems to hold the ids of items or annotators."""
    named = matches("annotator", labels.columns, ranks=2)
    columns = [factorize(labels.iloc[:, place])[0] for place in range(min(len(labels.columns), WIDEST + 1))]
    pairs = ids_among(columns, [place for place, name in enumerate(labels.columns) if name in named])
    return any(place in annotators for pair in pairs for place in pair)


def ids_among(columns: Sequence[Positions], named: Collection[int] = ()) -> list[tuple[int, int]]:
    """Return the pairs of columns that may be the items and the annotators of a long table.

    Their values repeat, but pairs of values hardly do. That is no chance where many repeated pairs would be expected of
    independent columns.

    Parameters
    ----------
    columns : sequence of int arrays of shape (L,)
        Values as positions, -1 if missing. A column with missing values is not considered.
    named : collection of int
        The columns with names of annotators, for which fewer repeated pairs are evidence.
    """
    if not 2 < len(columns) <= WIDEST:
        return []
    repeats = {place: _repeats(values) for place, values in enumerate(columns) if (values >= 0).all()}
    all_pairs = len(columns[0]) * (len(columns[0]) - 1) / 2
    found = []
    for one, two in combinations(repeats, 2):
        expected = repeats[one] * repeats[two] / max(all_pairs, 1)
        if expected < (NAMED_REPEATS if {one, two} & set(named) else REPEATS):
            continue
        if _repeats(columns[one] * (columns[two].max() + 1) + columns[two]) <= RARE * expected:
            found.append((one, two))
    return found


def _repeats(values: Positions) -> float:
    """Return the number of pairs of rows with equal values."""
    times = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((times * (times - 1) / 2).sum())


def _item_column(labels: pd.DataFrame) -> Any:
    """Return the column that is named like an item column and has a unique value in each row, or None."""
    others = {role: f"\0{role}" for role in Columns._fields if role != "item"}
    try:
        name = find_columns([*labels.columns, *others.values()], others).item
    except CrowdshotError:
        return None
    return name if labels[name].is_unique and labels[name].notna().all() and len(labels.columns) > 1 else None
