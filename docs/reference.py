"""Generate the reference pages of the site: all public names, and the help text of every command."""

import os

import typer
from mkdocs.structure.files import File
from typer.testing import CliRunner

import crowdshot
from crowdshot._cli.main import app

PYTHON = """# Public names

All of these can be imported from `crowdshot`. The [Python guide](../python.md) shows how to use them. Other names may
change without notice ([stability](../deprecation.md)).
"""
COMMANDS = """# Commands

The output of `crowdshot COMMAND --help`. Exit codes: 0 success, 1 internal error (a bug), 2 bad input or usage, 130
interrupted. Results go to stdout, everything else to stderr.
"""


def python_page():
    places = {name: f"crowdshot.{where}.{name}" for name, where in crowdshot._NAMES.items()}
    places |= {name: f"crowdshot.{where}" for name, where in crowdshot._MODULES.items()}
    parts = [PYTHON]
    for name in sorted(crowdshot.__all__, key=lambda name: (name in crowdshot._MODULES, name.lower())):
        place = places.get(name, f"crowdshot.errors.{name}")
        shown = f"    options: {{heading: {name}, toc_label: {name}}}\n" if name in crowdshot._MODULES else ""
        parts.append(f"::: {place}\n{shown}")
    return "\n".join(parts)


def commands_page():
    parts = [COMMANDS]
    for words in _commands(typer.main.get_command(app)):
        os.environ["COLUMNS"] = "100"
        shown = CliRunner().invoke(app, [*words, "--help"], prog_name="crowdshot", terminal_width=100).stdout
        parts.append(f"## {' '.join(words)}\n\n```text\n{shown.strip()}\n```\n")
    return "\n".join(parts)


def _commands(group, before=()):
    for name, command in group.commands.items():
        words = (*before, name)
        yield from _commands(command, words) if hasattr(command, "commands") else [words]


def on_files(files, config):
    for place, text in {"reference/python.md": python_page(), "reference/commands.md": commands_page()}.items():
        files.append(File.generated(config, place, content=text))
    return files
