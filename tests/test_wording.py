"""Text uses the standard terms of the field, and errors name arguments that exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "crowdshot"
PACKAGES = (SOURCE, ROOT / "src" / "crowdshot_paper")
FILES = sorted(file for package in PACKAGES for file in package.rglob("*.py"))

# Retired words, and what to write instead.
RETIRED = {
    r"\bbelie(f|fs|ve|ves|ved|ving)\b": "posterior, probability",
    r"\bfore(tell|tells|telling|told)\b": "predict, predicted",
    r"\bsettled?\b": "accepted (for users), confident",
    r"\bdoubt(s|ed|ful)?\b": "uncertainty",
    r"\blooks\b(?! (at|for|like|up)\b)": "features",
    r"\bunsaid\b": "chosen by no annotator",
    r"\b(is|are|was|were|be|been) (told|said|heard)\b": "name the actor: crowdshot reports, annotators chose",
    r"\b(one|same) voice\b": "duplicate annotators, correlated annotators",
    r"\btwins?\b": "near-duplicate names, duplicate annotators",
    r"\b(who|whoever|what) (says|said|is said)\b": "labels, annotators who chose",
    r"\bas far as\b": "in proportion to, if",
    r"\bstands? (for|beside|in)\b": "means, is next to, contains",
    r"\bgo(es)? by\b": "uses, is named by",
    r"\b(is|are|was|were) worth\b": "contributes, improves",
    r"\bin the place of\b": "in place of, instead of",
    r"\bways of (learning|aggregating)\b": "methods",
}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of comments, docstrings and messages: string literals with a space that are not code."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, re.sub(r"`[^`]*`", "", node.value)


def retired_words(source: str) -> list[tuple[int, str, str]]:
    return [
        (line, found[0], better)
        for line, text in texts(source)
        for pattern, better in RETIRED.items()
        for found in re.finditer(pattern, " ".join(text.split()), re.IGNORECASE)
    ]


def test_files_are_found() -> None:
    assert all(package / "__init__.py" in FILES for package in PACKAGES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT / "src").as_posix())
def test_no_retired_word(file: Path) -> None:
    found = retired_words(file.read_text(encoding="utf-8"))
    place = file.relative_to(ROOT)
    assert not found, "retired words:\n" + "\n".join(
        f"{place}:{line}: {word!r}; write: {better}" for line, word, better in found
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('"""Return what is believed."""', ["believed"]),
        ('note(f"{n} items are settled now")', ["settled"]),
        ("x = 1  # the looks of an item", ["looks"]),
        ('note("This looks like a path", "belief", {"doubt": 1})', []),
    ],
)
def test_retired_words_are_found_in_text_only(source: str, words: list[str]) -> None:
    assert [word for _, word, _ in retired_words(source)] == words


# ---- errors name arguments that exist ----

MESSAGES = ("CrowdshotError", "CrowdshotWarning", "NoLabelError")
OPTION = re.compile(r"(?<![\w`-])--[a-z]")
ARGUMENT = re.compile(r"(?<![\w<?&{])[a-z_]+=(True|False|None|['{]|[\s.,;]|$)")


@cache
def parameters_and_messages() -> tuple[set[str], list[tuple[str, ast.Call]]]:
    """Return the names of all parameters of functions and fields of classes, and the places of all messages."""
    names: set[str] = set()
    found: list[tuple[str, ast.Call]] = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MESSAGES:
                found.append((f"{file.relative_to(ROOT)}:{node.lineno}", node))
    return names, found


def test_argument_is_a_parameter() -> None:
    names, messages = parameters_and_messages()
    arguments = [
        (place, keyword.value.value)
        for place, call in messages
        for keyword in call.keywords
        if keyword.arg == "argument" and isinstance(keyword.value, ast.Constant)
    ]
    assert len(arguments) > 20
    wrong = [f"{place}: argument={name!r} is no parameter" for place, name in arguments if name not in names]
    assert not wrong, "\n".join(wrong)


def test_messages_name_no_option() -> None:
    """The command line adds the names of options; Python callers have arguments."""
    wrong = [
        f"{place}: {part.value}"
        for place, call in parameters_and_messages()[1]
        for part in ast.walk(call)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and OPTION.search(part.value)
    ]
    assert not wrong, "\n".join(wrong)


def test_messages_name_no_argument_as_in_python() -> None:
    """`argument=` and `Use` have the names of arguments, so that the command line can show its options."""
    wrong = [
        f"{place}: {part.value}"
        for place, call in parameters_and_messages()[1]
        for part in ast.walk(call)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and ARGUMENT.search(part.value)
    ]
    assert not wrong, "\n".join(wrong)


# ---- spelling and pronouns, in all text ----

OTHER_WORDS = {
    r"\bpretend (annotator|crowd|one)": "simulated",
    r"\b(labeled|unlabeled|behavior|normaliz(ed|ing|ation)|recogniz\w+|gray)\b": "British spelling",
    r"\b[Ll]abeling (team|tool|lead|work|job)s?\b": "labelling is the activity, a labeling an assignment of classes",
    r"\b(he|him|his|she|her)\b": "they",
}


@pytest.mark.parametrize("words", OTHER_WORDS)
def test_spelling_and_pronouns(words: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *FILES, *SOURCE.rglob("*.html")]
    found = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(words, re.sub(r"https?://\S+|`[^`]*`|\"[^\"]*labeledby[^\"]*\"", "", line))
    ]
    assert not found, f"{OTHER_WORDS[words]}:\n" + "\n".join(found)
