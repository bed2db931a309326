"""--help: summaries fit on a line, and many options are grouped in panels."""

import re

import pytest
import typer

from crowdshot._cli import main
from crowdshot._cli.options import OTHER, PANELS, PanelCommand
from crowdshot.labels.formats import FORMATS

COMMANDS = typer.main.get_command(main.app).commands
OURS = [name for name, command in COMMANDS.items() if isinstance(command, PanelCommand)]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def panels(text: str) -> dict[str, list[str]]:
    """Return the options that each panel of a help text lists."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][\w ]*:", line):
            title = line[:-1]
            found[title] = []
        elif title and (option := re.match(r"  (?:-\w, )?(--[\w-]+)", line)):
            found[title].append(option[1])
    return found


@pytest.mark.usefixtures("narrow")
def test_summaries_fit_on_their_lines(call) -> None:
    text = call("--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == [name for name, command in COMMANDS.items() if not command.hidden]
    assert [line for line in lines if line.endswith(("...", "…")) or len(line) > 80] == []


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", OURS)
def test_options_are_grouped(call, name: str) -> None:
    found = panels(call(name, "--help").out)
    listed = [option for options in found.values() for option in options]
    expected = [parameter.opts[0] for parameter in COMMANDS[name].params if parameter.param_type_name == "option"]
    assert sorted(listed) == sorted([*expected, "--help"])  # each option once
    order = [PANELS.index(title) for title in found]
    assert order == sorted(order)
    if len(listed) > 8:
        assert set(found[OTHER]) <= {"--help", "--seed"}
        assert len(found) >= 3


@pytest.mark.parametrize("name", OURS)
def test_every_option_has_a_help_text(name: str) -> None:
    assert [parameter.name for parameter in COMMANDS[name].params if not getattr(parameter, "help", "")] == []


@pytest.mark.parametrize("name", OURS)
def test_values_of_options_have_readable_names(call, name: str) -> None:
    assert re.findall(r"<[\w |]+>", call(name, "--help").out) == []  # such as <int range>


def test_formats_are_listed(call) -> None:
    text = " ".join(call("check", "--help").out.split()).partition("--format FORMAT")[2].partition("--sheet")[0]
    assert [name for name in FORMATS if not re.search(rf"\b{name}\b", text)] == []


def test_subcommands_have_summaries_that_fit(call, narrow) -> None:
    assert "..." not in call("paper", "--help").out.partition("Commands:")[2]


def test_tables_of_annotators_and_pages_have_one_option_name(call) -> None:
    for name in ("aggregate", "rank", "objects"):
        assert "--annotators-out" in call(name, "--help").out
    for name in ("compare", "judges", "slices"):
        assert re.search(r"--page.* FILE.html", call(name, "--help").out)


def test_arguments_are_shown_without_python_types(call) -> None:
    for name in OURS:
        shown = call(name, "--help").out.partition("Arguments:\n")[2].partition("\n\n")[0]
        assert "<" not in shown
