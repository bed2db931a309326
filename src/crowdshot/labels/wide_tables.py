"""Wide tables, with a row for each item and a column for each annotator: which of their columns are annotators'.

People keep more in such a table than labels. A column is no annotator's where it is called after something else (notes,
date, total), shares no value with the others, or has nearly as many values as rows, most of them its own. Values are
compared without case and spaces.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import text
from crowdshot.labels.columns import TRUTH, Columns, find_columns, plain
from crowdshot.labels.label_sets import parts
from crowdshot.labels.spelling import fold

Counts = Mapping[str, int]  # of a column's values, by `fold`

# Columns whose name is one of these, or has one of them among its words, are no annotators', though their values may be
# labels too; in the languages of `columns.ALIASES`.
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
    total totals grandtotal subtotal sum sums average avg mean median count stdev
    summe summen gesamt gesamtsumme gesamtergebnis mittelwert durchschnitt anzahl somme moyenne suma promedio soma média
    合計 平均 总计 合计 平均值
"""
NAMES, WORDS, TOTAL_NAMES = ({plain(word) for word in words.split()} for words in (IS, HAS, TOTALS))
FEW = 5  # cells of which nothing is said by how different they are


def is_total(item: str) -> bool:
    """Is a row with this name a row of totals?"""
    return plain(item) in TOTAL_NAMES


def is_label(counts: Counts, source: str) -> bool:
    """Is -1 a label, and not the mark of a missing one? ``counts``: of all annotators' values.

    It is beside 0 and 1 alone, where it may as well be none, as is told, beside other numbers below zero, and where
    there would be one label without it.
    """
    others = set(counts) - {"-1"}
    if "-1" not in counts or not all(re.fullmatch(r"[-+]?\d+", word) for word in others):
        return False
    if others == {"0", "1"}:
        told = f"{source}: -1 is taken for a label, as 0 and 1 are; rename={{'-1': ''}} says that it is none."
        warnings.warn(told, UserWarning, stacklevel=3)
        return True
    return len(others) < 2 or any(word.startswith("-") for word in others)


def annotators_among(header: Sequence[str], values: Sequence[Counts]) -> list[int]:
    """The positions of the columns that are annotators', as the module says; none where that is a matter of guessing.

    Columns that have values in common, of some column between them at least, belong together, and the largest group
    are the annotators. One that is named and empty is somebody's who has not begun.
    """
    maybe = [column for column, name in enumerate(header) if not is_called_otherwise(name)]
    seen = Counter(value for column in maybe for value in values[column])
    maybe = [column for column in maybe if not _has_its_own(values[column], seen)]
    groups: list[tuple[list[int], set[str]]] = []
    for column in maybe:
        columns, said = [column], set(values[column])
        for group in [group for group in groups if group[1] & said]:
            groups.remove(group)
            columns, said = columns + group[0], said | group[1]
        groups += [(columns, said)] if said else []
    sizes = sorted((len(columns) for columns, _ in groups), reverse=True)
    if sizes[:1] in ([], [1]) or sizes[:1] == sizes[1:2]:
        return []
    largest = max(groups, key=lambda group: len(group[0]))[0]
    return sorted(largest + [column for column in maybe if header[column] and not values[column]])


def is_called_otherwise(name: str) -> bool:
    """Is a column of this name surely no annotator's?"""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name))  # createdAt
    found = {plain(word) for word in re.split(r"[^\w]|_", words)}
    is_sign = bool(str(name).strip()) and not plain(name)  # such as #
    return is_sign or plain(name) in TRUTH | NAMES | WORDS or bool(found & WORDS)


def _has_its_own(counts: Counts, seen: Mapping[str, int]) -> bool:
    """Has it nearly one value a row, most of which no other column has?"""
    filled = sum(counts.values())
    own = sum(number for value, number in counts.items() if seen[value] == 1)
    return filled >= FEW and len(counts) > 0.8 * filled and own > filled / 2


def count(cells: Collection[str]) -> Counter[str]:
    """How many cells have which value, those that are missing in any case aside; one of several labels has each."""
    counts: Counter[str] = Counter()
    for cell, number in Counter(cells).items():
        for value in map(fold, parts(cell)):
            counts[value] += 0 if value == "nan" else number
    return +counts


# ---- a DataFrame ----------------------------------------------------------------------------------------------------


def wide_table(labels: pd.DataFrame | pd.Series[Any]) -> pd.DataFrame | None:
    """Items as index and annotators as columns; None for a table of another kind.

    Columns of a wide table have labels in common, which those of a long one have not, whatever they are called. A lone
    column is one annotator's. A column that is called like an item and names each row is the items'.
    """
    if isinstance(labels, pd.Series):
        return labels.to_frame(0 if labels.name is None else labels.name)
    if _is_long(labels) or labels.columns.has_duplicates:
        return None
    words = {name: [text(value) for value in labels[name]] for name in labels.columns}
    if any(None in column for column in words.values()):  # lists or the like, which are no labels
        return None
    said = {name: count([str(word) for word in column]) for name, column in words.items()}
    item = _item_column(labels)
    if item is not None and not any(said[item].keys() & said[name].keys() for name in said if name != item):
        labels = labels.set_index(item)
    if len(labels.columns) == 1:
        return labels
    counts = [Counter({value: n for value, n in said[name].items() if value != "-1"}) for name in labels.columns]
    annotators = annotators_among([str(name) for name in labels.columns], counts)
    if not annotators:
        return None
    idle = [name for place, name in enumerate(labels.columns) if place not in annotators]
    if idle:
        warnings.warn(f"labels: left out, as no annotators: {listing(idle)}.", UserWarning, stacklevel=2)
    return labels.iloc[:, annotators]


def _is_long(labels: pd.DataFrame) -> bool:
    try:
        find_columns(labels.columns)
    except CrowdshotError:
        return False
    return True


def _item_column(labels: pd.DataFrame) -> Any:
    """The one that is called like an item and has another value in each row; None where there is none."""
    others = {role: f"\0{role}" for role in Columns._fields if role != "item"}
    try:
        name = find_columns([*labels.columns, *others.values()], others).item
    except CrowdshotError:
        return None
    return name if labels[name].is_unique and labels[name].notna().all() and len(labels.columns) > 1 else None
