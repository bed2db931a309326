"""Find the item, annotator and label columns of a table by their names."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import listing


class Columns(NamedTuple):
    """The names of a table's item, annotator and label columns; output tables use the names of the input."""

    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"


NAMES = "name|nr|no|number|nummer|名|名称|名稱|姓名|番号|编号|編號"  # words that may follow an alias: "worker name"
ColumnsInput = Columns | Mapping[str, str] | Sequence[str] | None

# For each column three ranks of names; the first rank that matches any column of the table decides. In English, German,
# French, Spanish and Portuguese, Japanese, Chinese.
ALIASES: dict[str, tuple[str, str, str]] = {
    "item": (
        "item",
        "task image img file filename filepath imagepath imagefile imagename picture photo example sample instance"
        " object question unit document doc text url uri hit"
        " bild datei objekt foto texte texto element fichier imagen elemento archivo imagem arquivo"
        " 画像 項目 ファイル 图片 图像 文件 项目 圖片 圖像 檔案",
        "id name path index key",
    ),
    "annotator": (
        "annotator",
        "worker user labeler labeller rater coder labeledby labelledby annotatedby judge reviewer expert"
        " participant contributor performer"
        " bewerter bewerterin annotatorin annotateur annotatrice anotador anotadora"
        " アノテーター 作業者 标注员 标注者 標註員 標註者",
        "person who by email username",
    ),
    "label": (
        "label",
        "answer class annotation choice category response vote rating judgment judgement verdict"
        " labels answers classes annotations choices categories tags"
        " etikett klasse kategorie étiquette classe catégorie etiqueta clase categoría rótulo categoria"
        " ラベル 分類 标签 类别 標籤 類別",
        "value target y decision bewertung urteil",
    ),
}


def plain(name: Any) -> str:
    """Return a column's name without case, accents, width, spaces and punctuation: ``True Label`` is truelabel."""
    return "".join(c for c in unicodedata.normalize("NFKD", str(name)).casefold() if c.isalnum())


RANKS = {role: [[plain(word) for word in rank.split()] for rank in ranks] for role, ranks in ALIASES.items()}
ID_WORDS = ("id", "nr", "number", "key", "code")
CONTENT = {
    "text",
    "texte",
    "texto",
    "document",
    "doc",
    "question",
}  # the item itself; an id column beside it takes precedence
TRUTH = {  # names of columns with gold labels
    *("truth", "gold", "true", "truelabel", "goldlabel", "groundtruth", "correct", "correctlabel", "goldstandard"),
    *("correctanswer", "correctclass", "goldanswer", "goldclass", "trueanswer", "trueclass", "answerkey"),
    *("expected", "expectedanswer", "expectedlabel", "expectedclass", "richtigeantwort"),
    *map(
        plain,
        (
            "bonne réponse",
            "respuesta correcta",
            "resposta correta",
            "Wahrheit",
            "vérité",
            "verdad",
            "verdade",
            "正解",
            "真值",
        ),
    ),
}


def find_columns(
    found: Iterable[Any],
    columns: ColumnsInput = None,
    source: str = "the table",
    repeats: Callable[[Any], bool] | None = None,
) -> Columns:
    """Return the names of the item, annotator and label columns.

    Parameters
    ----------
    found : iterable
        All column names of the table.
    columns : Columns, sequence of three names, or mapping, optional
        Known names: all three in the order of `Columns`, or some of the three by role. The others are recognised by
        `ALIASES`. Case, accents, spaces, ``_`` and a final ``id``, ``idx`` or ``name`` are ignored: ``Worker ID``
        is a worker.
    source : str
        The table's name for error messages.
    repeats : callable, optional
        Returns whether a column has repeated values. If given, a word of a name is enough where no whole name is known:
        ``Review label (final)`` is a label, and ``Review ID`` an item if it has repeated values.
    """
    found = list(found)
    named = input_names(columns)
    free = [name for name in found if name not in named.values()]
    names = Columns(
        *(named[role] if role in named else _match(role, free, source, repeats) for role in Columns._fields)
    )
    for role, name in zip(Columns._fields, names, strict=True):
        if found.count(name) != 1:
            times = "more than one" if name in found else "no"
            raise CrowdshotError(
                f"has {times} column {name!r} for the {role} among {listing(found)}",
                where=source,
                found=name,
                expected="one",
                among=found,
            )
    if len(set(names)) < len(names):
        raise CrowdshotError(
            f"names {listing(names)}", argument="columns", found=tuple(names), expected="three different columns"
        )
    return names


def split_time(columns: ColumnsInput) -> tuple[ColumnsInput, str | None]:
    """Return the caller's columns without that of the time, and the column of the time."""
    if not isinstance(columns, Mapping) or "time" not in columns:
        return columns, None
    return {role: name for role, name in columns.items() if role != "time"} or None, columns["time"]


def input_names(columns: ColumnsInput) -> dict[str, str]:
    """Return the caller's column names as ``{role: name}``."""
    roles = Columns._fields
    if columns is None:
        return {}
    if isinstance(columns, Mapping) and set(columns) <= set(roles):
        return dict(columns)
    if isinstance(columns, tuple | list) and len(columns) == len(roles):
        return dict(zip(roles, columns, strict=True))
    raise CrowdshotError(
        f"is {columns!r}",
        argument="columns",
        found=columns,
        expected=f"three names or a mapping with keys among {listing(roles)}",
    )


def matches(role: str, found: Iterable[Any], ranks: int = 3) -> list[Any]:
    """Return the columns whose names match a role, the most usual names first.

    Only the first of the ``ranks`` ranks in `ALIASES` that matches any column is used.
    """
    exact = {name: plain(name) for name in found}
    without_id = {name: re.sub(rf"({NAMES})?(id|idx|index)?$", "", word) for name, word in exact.items()}
    by_id = {name: word for name, word in without_id.items() if word != exact[name] and word in CONTENT}
    for aliases in RANKS[role][:ranks]:
        for words in (by_id, exact, without_id):
            called = [name for name, word in words.items() if word in aliases]
            if called:
                return sorted(called, key=lambda name: aliases.index(words[name]))
    return []


def having_word(words: Iterable[str], found: Iterable[Any]) -> list[Any]:
    """Return the columns whose names contain one of the words, such as "text" in "Review text (EN)"."""
    wanted = set(words)
    return [
        name
        for name in found
        if not wanted.isdisjoint(plain(word) for word in re.split(r"[^\w]|_|(?<=[a-z])(?=[A-Z])", str(name)))
    ]


def id_columns(found: Iterable[Any]) -> list[Any]:
    """Return the columns whose names call them ids, but not of annotators or labels, such as "Review ID"."""
    found = list(found)
    others = having_word([word for role in ("annotator", "label") for rank in RANKS[role][:2] for word in rank], found)
    return [name for name in having_word(ID_WORDS, found) if name not in others]


def _match(role: str, found: list[Any], source: str, repeats: Callable[[Any], bool] | None = None) -> Any:
    called = matches(role, found)
    if repeats is not None and not called:
        usual = next(filter(None, (having_word(aliases, found) for aliases in RANKS[role][:2])), [])
        called = [name for name in usual if plain(name) not in TRUTH]
        ids = [name for name in id_columns(found) if repeats(name)]
        called = ids if role == "item" and len(ids) == 1 else called
    if len(called) == 1:
        return called[0]
    if called:
        raise CrowdshotError(
            f"has {len(called)} columns that could be the {role}, {listing(called)}",
            where=source,
            found=called,
            expected="one",
            hint=Use("to choose one", columns={role: "NAME"}),
        )
    usual = " ".join(ALIASES[role][:2]).split()[:7]
    among = f" among {listing(found)}" if found else ""
    raise CrowdshotError(
        f"has no column for the {role}{among}",
        where=source,
        found=found[:10],
        expected=f"one called {', '.join(usual)} or similar",
        hint=Use("to name another column", columns={role: "NAME"}),
    )
