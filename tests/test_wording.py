"""One grammar of errors: WHERE is, has or holds WHAT WAS FOUND, expected WHAT[; WHAT TO DO]. And one vocabulary."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdshot._cli.console import in_options

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "crowdshot"
ERRORS = ("CrowdshotError", "NoLabelError")
FORBIDDEN = re.compile(r"\b(must|got|invalid|please|(was|were) expected)\b", re.IGNORECASE)
OPTION = re.compile(r"(?<![\w`-])--[a-z]")

# What may stand where nothing else could have been expected.
NO_ALTERNATIVE = (
    r"could not be \w+",  # the system refused, and its reason stands in brackets
    r"\{[^{}]*\b(error|reason)\b[^{}]*\}",  # the rest is another sentence, which has its own "expected"
)


def said(node: ast.expr) -> Iterator[str]:
    """What a literal or f-string says, with {…} for what is filled in; nothing of what is put together elsewhere."""
    if isinstance(node, ast.IfExp):
        yield from said(node.body)
        yield from said(node.orelse)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}" for part in node.values
        )  # type: ignore[attr-defined]


def sentences() -> list[tuple[str, str]]:
    """(place, sentence) of every error that is raised with one."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
                place = f"{file.relative_to(SOURCE).as_posix()}:{node.lineno}"
                found += [(place, sentence) for sentence in said(node.args[0])]
    return found


SENTENCES = sentences()


def test_there_are_sentences_to_look_at():
    assert len(SENTENCES) > 300


def faults(place: str, sentence: str) -> Iterator[str]:
    if not sentence.endswith((".", "?", "{error}", "{hint}")):
        yield "ends without a full stop"
    if FORBIDDEN.search(re.sub(r"\{[^{}]*\}", "{}", sentence)):
        yield "has a word that errors do without"
    if not re.search(r", expected\b", sentence) and not any(re.search(form, sentence) for form in NO_ALTERNATIVE):
        yield "does not say what was expected"
    if not place.startswith("commands/cli/") and OPTION.search(re.sub(r"`[^`]*`", "", sentence)):
        yield "names an option where Python callers have an argument"


def test_every_error_has_the_same_grammar():
    wrong = [f"{place} {fault}: {sentence}" for place, sentence in SENTENCES for fault in faults(place, sentence)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("sentence", "options", "told"),
    [
        ("steps is 0, expected 1 or more.", {"steps": "--steps"}, "--steps is 0, expected 1 or more."),
        ("labels_per_item is 9, expected 1 to 3.", {}, "labels_per_item is 9, expected 1 to 3."),
        (
            "out is not empty; overwrite=True writes into it.",
            {"overwrite": "--overwrite"},
            "out is not empty; --overwrite writes into it.",
        ),
        (
            "t, expected one; columns={'item': …} says which.",
            {"columns": "--columns"},
            "t, expected one; --columns item=… says which.",
        ),
        (
            """two; rename={"don't know": '','n/a': ''} makes no label of it.""",
            {"rename": "--rename"},
            """two; --rename 'don'"'"'t know=,n/a=' makes no label of it.""",
        ),
        ("one; rename={'-1': ''} says so.", {"rename": "--rename"}, "one; --rename -1= says so."),
        ("too many; method='ours' takes more.", {"method": "--method"}, "too many; --method ours takes more."),
        (
            "expected images= or features=.",
            {"images": "--images", "features": "--features"},
            "expected --images or --features.",
        ),
        (
            "a/out=3.csv is empty; like C=1,steps=3.",
            {"out": "--out", "steps": "--steps"},
            "a/out=3.csv is empty; like C=1,steps=3.",
        ),
        ("out=3.csv is empty.", {"out": "--out"}, "out=3.csv is empty."),
    ],
)
def test_a_command_calls_arguments_by_its_options(sentence, options, told):
    assert in_options(sentence, options) == told


# ---- one vocabulary -------------------------------------------------------------------------------------------------

SAID_OTHERWISE = {
    r"\bpretend (annotator|crowd|one)": "simulated",
    r"\bbenefit of the doubt|\bin doubt\b": "doubt is 1 - Σ p², and nothing else",
    r"\bhow sure (it|they|one) (is|are)\b": "confidence",
    r"\b(labeled|unlabeled|behavior|normaliz(ed|ing|ation)|recogniz\w+|gray)\b": "British spelling",
    r"\b[Ll]abeling (team|tool|lead|work|job)s?\b": "labelling is the activity, a labeling a guess",
    r"\b(he|him|his|she|her)\b": "they",
}


@pytest.mark.parametrize("words", SAID_OTHERWISE)
def test_one_vocabulary(words):
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *SOURCE.rglob("*.py"), *SOURCE.rglob("*.html")]
    found = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(words, re.sub(r"https?://\S+|`[^`]*`|\"[^\"]*labeledby[^\"]*\"", "", line))
    ]
    assert not found, f"{SAID_OTHERWISE[words]}:\n" + "\n".join(found)
