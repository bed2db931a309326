"""Use one thread, no cache and reproducible hypothesis runs; define fixtures for commands and the browser."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported; processes that tests start inherit it

import shutil
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import hypothesis
import pytest
import torch
import typer

from command_result import CommandResult
from crowdshot import progress
from crowdshot._cli import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

torch.set_num_threads(1)
os.environ["CROWDSHOT_CACHE"] = ""  # tests write nothing to the user's cache
hypothesis.settings.register_profile("crowdshot", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("crowdshot")


@cache
def command() -> click.Command:
    """Return the `crowdshot` command, which Typer would make again for each call."""
    return typer.main.get_command(main.app)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run a command in this process; return its exit code, stdout and stderr."""
    monkeypatch.setattr(progress, "PATIENCE", 60)  # a slow machine must not print progress lines

    def run(*arguments: object) -> CommandResult:
        capsys.readouterr()
        code: object = 0
        try:
            command().main([str(argument) for argument in arguments], prog_name="crowdshot")
        except SystemExit as stop:
            code = stop.code
        return CommandResult(int(code or 0), *capsys.readouterr())  # type: ignore[call-overload]

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Share one browser among all tests of a process, because Playwright cannot start a second one."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("no chromium here (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
