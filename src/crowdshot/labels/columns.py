"""Which columns of a table hold the item, the annotator and the label."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing


class Columns(NamedTuple):
    """What a table calls its three columns; tables that go out use the names that came in."""

    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"


NAMES = "name|nr|no|number|nummer|名|名称|名稱|姓名|番号|编号|編號"  # what may stand behind what is named or numbered
ColumnsInput = Columns | Mapping[str, str] | Sequence[str] | None

# For each column three ranks of names; the first rank that any column of the table matches decides. In English, German,
# French, Spanish and Portuguese, Japanese, Chinese.
ALIASES: dict[str, tuple[str, str, str]] = {
    "item": (
        "item",
        "task image file filename filepath imagepath imagefile imagename picture photo example sample instance"
        " object question unit document text url uri hit"
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
        "value target y",
    ),
}


def plain(name: Any) -> str:
    """A column's name without case, accents, width, spaces and the like: ``True Label`` is truelabel."""
    return "".join(c for c in unicodedata.normalize("NFKD", str(name)).casefold() if c.isalnum())


RANKS = {role: [[plain(word) for word in rank.split()] for rank in ranks] for role, ranks in ALIASES.items()}
CONTENT = {"text", "texte", "texto", "document", "question"}  # an item itself, and no name of it if it has an id too
WHEN = [  # what a label's time is called, the surest first
    *("updatedat", "updated", "modifiedat", "submittedat", "submittime", "submissiontime", "completedat", "finishedat"),
    *("labeledat", "labelledat", "annotatedat", "answeredat", "createdat", "created", "timestamp", "datetime"),
    *("date", "time", "datum", "zeitstempel", "zeitpunkt", "fecha", "horodatage"),
    *map(plain, ("日時", "タイムスタンプ", "时间", "時間", "日期")),
]
TRUTH = {
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


def find_columns(found: Iterable[Any], columns: ColumnsInput = None, source: str = "the table") -> Columns:
    """The names of the three columns: those given, the others by their aliases.

    ``columns`` may be ``Columns``, three names in its order, or a mapping that names some of the three. Case, accents,
    spaces, ``_`` and a final ``id`` or ``name`` do not matter to an alias: ``Worker ID`` is a worker.
    """
    found = list(found)
    given = input_names(columns)
    free = [name for name in found if name not in given.values()]
    names = Columns(*(given[role] if role in given else _match(role, free, source) for role in Columns._fields))
    for role, name in zip(Columns._fields, names, strict=True):
        if found.count(name) != 1:
            times = "more than one" if name in found else "no"
            raise CrowdshotError(
                f"{source} has {times} column {name!r} for the {role} among {listing(found)}, expected one."
            )
    if len(set(names)) < len(names):
        raise CrowdshotError(f"columns names {listing(names)}, expected three different ones.")
    return names


def input_names(columns: ColumnsInput) -> dict[str, str]:
    """What the caller named, {role: name}."""
    roles = Columns._fields
    if columns is None:
        return {}
    if isinstance(columns, Mapping) and set(columns) <= set(roles):
        return dict(columns)
    if isinstance(columns, tuple | list) and len(columns) == len(roles):
        return dict(zip(roles, columns, strict=True))
    raise CrowdshotError(f"columns is {columns!r}, expected three names or a mapping with keys among {listing(roles)}.")


def matches(role: str, found: Iterable[Any], ranks: int = 3) -> list[Any]:
    """The columns that are called like an item, an annotator or a label, by the first of so many ranks that has any.

    As `ALIASES` has them, the usual ones first.
    """
    exact = {name: plain(name) for name in found}
    without_id = {name: re.sub(rf"({NAMES})?(id)?$", "", word) for name, word in exact.items()}
    by_id = {name: word for name, word in without_id.items() if word != exact[name] and word in CONTENT}
    for aliases in RANKS[role][:ranks]:
        for words in (by_id, exact, without_id):
            called = [name for name, word in words.items() if word in aliases]
            if called:
                return sorted(called, key=lambda name: aliases.index(words[name]))
    return []


def _match(role: str, found: list[Any], source: str) -> Any:
    called = matches(role, found)
    if len(called) == 1:
        return called[0]
    if called:
        raise CrowdshotError(
            f"{source} has {len(called)} columns that could be the {role}, {listing(called)}, expected one;"
            f" columns={{{role!r}: …}} says which."
        )
    known = " ".join(ALIASES[role][:2]).split()[:7]
    among = f" among {listing(found)}" if found else ""
    raise CrowdshotError(
        f"{source} has no column for the {role}{among}, expected one called"
        f" {', '.join(known)} or the like; columns={{{role!r}: …}} names another."
    )
