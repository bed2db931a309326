"""The reference pages of the site, made of the program: every public name, and every command as --help tells it."""

import os

import typer
from mkdocs.structure.files import File
from typer.testing import CliRunner

import crowdshot
from crowdshot._cli.main import app

PYTHON = """# Every public name

`from crowdshot import …` has all of these; loaded when first used. [Use it from Python](../python.md) tells how
they go together. What is not here may change without notice ([what is promised](../deprecation.md)).
"""
COMMANDS = """# Every command

What `crowdshot COMMAND --help` tells. Exit codes: 0 fine, 1 a failure nobody expected (a bug), 2 bad input or usage,
130 interrupted. Results go to stdout, all else to stderr.
"""


def python_page():
    places = {name: f"crowdshot.{where}.{name}" for name, where in {**crowdshot._NAMES, **crowdshot._MODULES}.items()}
    parts = [PYTHON]
    for name in sorted(crowdshot.__all__, key=lambda name: (name in crowdshot._MODULES, name.lower())):
        parts.append(f"::: {places.get(name, f'crowdshot.errors.{name}')}\n")
    return "\n".join(parts)


def commands_page():
    parts = [COMMANDS]
    for words in _commands(typer.main.get_command(app)):
        os.environ["COLUMNS"] = "100"
        told = CliRunner().invoke(app, [*words, "--help"], prog_name="crowdshot", terminal_width=100).stdout
        parts.append(f"## {' '.join(words)}\n\n```text\n{told.strip()}\n```\n")
    return "\n".join(parts)


def _commands(group, before=()):
    for name, command in group.commands.items():
        words = (*before, name)
        yield from _commands(command, words) if hasattr(command, "commands") else [words]


def on_files(files, config):
    for place, text in {"reference/python.md": python_page(), "reference/commands.md": commands_page()}.items():
        files.append(File.generated(config, place, content=text))
    return files
