"""Errors and warnings with fields are printed with the names of options, and their hints below them."""

import json
import warnings
from typing import Annotated

import pytest
import typer

from crowdshot._cli.console import handle_errors
from crowdshot._cli.options import FromText, flat
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from forked import crowdshot


def stderr_of(capsys: pytest.CaptureFixture[str], problem: Exception) -> tuple[int, str]:
    def command(
        steps: int = 0,
        columns: Annotated[str, typer.Option()] = "",
        skip_bad: Annotated[bool, typer.Option("--skip-bad", "-s")] = False,
    ) -> None:
        if isinstance(problem, Warning):
            warnings.warn_explicit(problem, None, "x.py", 1, module="crowdshot.x")
        else:
            raise problem

    code = 0
    try:
        handle_errors(command)()
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "code", "text"),
    [
        (CrowdshotError("is 'a'", argument="columns", expected="b"), 2, "crowdshot: --columns is 'a', expected b.\n"),
        (CrowdshotError("is 0", argument="unknown", expected="1"), 2, "crowdshot: unknown is 0, expected 1.\n"),
        (
            CrowdshotError("has no column", where="a.csv", hint=Use(columns={"annotator": "who is it"})),
            2,
            "crowdshot: a.csv has no column.\n  Use --columns 'annotator=who is it'.\n",
        ),
        (
            CrowdshotWarning("2 images cannot be read", hint=Use("to leave them out", skip_bad=True)),
            0,
            "crowdshot: note: 2 images cannot be read.\n  Use --skip-bad to leave them out.\n",
        ),
        (
            CrowdshotError("is empty", where="a.csv", hint=Use(other=True)),
            2,
            "crowdshot: a.csv is empty.\n  Use other=True.\n",
        ),
    ],
)
def test_fields_are_rendered(capsys, problem: Exception, code: int, text: str) -> None:
    assert stderr_of(capsys, problem) == (code, text)


def test_text_is_converted_when_the_command_runs() -> None:
    seen = []

    @flat
    def command(
        numbers: Annotated[list[int], FromText(lambda text: [int(part) for part in text.split(",")]), typer.Option()],
        names: Annotated[tuple[str, ...], FromText(str.split), typer.Option()] = ("default",),
    ) -> None:
        seen.append((numbers, names))

    command(numbers="1,2", names=None)
    command(numbers="3", names="a b")
    assert seen == [([1, 2], ("default",)), ([3], ["a", "b"])]
    assert command.__annotations__["numbers"].__origin__ == (str | None)


@pytest.mark.parametrize(
    "words", [["--gold", "a.csv", "--gold=b.csv"], ["--columns", "item=a", "--columns", "label=b"]]
)
def test_an_option_given_twice_is_refused(tmp_path, call, words) -> None:
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,ann,cat\n1,bob,cat\n2,ann,dog\n")
    done = call("aggregate", tmp_path / "labels.csv", *words)
    assert done.code == 2
    assert "more than once" in done.err
    assert words[0] in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["l.csv", "--out", "x\ry.csv"],
        ["l.csv", "--out=x.csv\r"],
        ["l.csv", "--rename", "cat=d\rog"],
        ["l.csv", "--names", "ann=\x1b[2J"],
        ["l.csv", "--columns", "item=a\x9bb"],
        ["l\r.csv"],
        ["--o\rut"],
    ],
)
def test_control_characters_are_refused_and_escaped(tmp_path, words) -> None:
    (tmp_path / "l.csv").write_text(
        "item,annotator,label\n" + "".join(f"i{i},ann,cat\ni{i},bob,dog\n" for i in range(4))
    )
    done = crowdshot(tmp_path, "aggregate", *words)
    assert done.returncode == 2
    assert "control character" in done.stderr
    assert not any(c in done.stdout + done.stderr for c in "\r\x1b\x9b")
    assert [path.name for path in tmp_path.iterdir()] == ["l.csv"]
    assert ("line endings" in done.stderr) == words[-1].endswith("\r")


def test_a_column_may_have_a_line_break_in_its_name(tmp_path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"i{i},ann,cat\ni{i},bob,dog\n" for i in range(4))
    (tmp_path / "l.csv").write_text('"the\nitem",annotator,label\n' + rows)
    done = call("aggregate", "l.csv", "--columns", "item=the\nitem", "--out", "c.csv")
    assert done.code == 0, done.err


def test_messages_escape_what_a_terminal_would_obey(capsys) -> None:
    error = CrowdshotError("is \x1b[31mred", where="a\x07.csv")
    assert "\x1b" not in str(error)
    assert stderr_of(capsys, error)[1] == "crowdshot: a\\x07.csv is \\x1b[31mred.\n"
    assert "\x1b" not in stderr_of(capsys, UserWarning("x\x1b[31m"))[1]


@pytest.mark.parametrize(
    ("typed", "share"),
    [("80%", 0.8), ("0,8", 0.8), ("80,5 %", 0.805), (".8", 0.8), ("8e-1", 0.8), ("0,755", 0.755)],
)
@pytest.mark.parametrize("joined", [False, True])
def test_shares_may_be_in_percent_or_have_a_comma(tmp_path, typed, share, joined) -> None:
    (tmp_path / "l.csv").write_text(
        "item,annotator,label\n" + "".join(f"i{i},ann,cat\ni{i},bob,dog\n" for i in range(4))
    )
    words = [f"--min-accuracy={typed}"] if joined else ["--min-accuracy", typed]
    done = crowdshot(tmp_path, "aggregate", "l.csv", *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["min_accuracy"] == share


@pytest.mark.parametrize(
    ("words", "value", "keyword"),
    [
        (["--min-accuracy", "1,000"], "1,000", "90%"),
        (["--min-accuracy", "eighty"], "eighty", "90%"),
        (["--steps", "80%"], "80%", "whole number"),
        (["--steps=2,5"], "2,5", "whole number"),
    ],
)
def test_other_texts_are_no_numbers(tmp_path, words, value, keyword) -> None:
    done = crowdshot(tmp_path, "aggregate", "l.csv", *words)
    assert done.returncode == 2
    assert f"'{value}' is not a" in done.stderr
    assert keyword in done.stderr
    assert "Input should be" not in done.stderr
