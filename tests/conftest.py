"""One thread (two on a busy machine crawl), no cache, reproducible hypothesis runs, and a way to run commands here."""

import os

import hypothesis
import pytest
import torch

from crowdshot import progress
from crowdshot.commands.cli import app
from said import Said

torch.set_num_threads(1)
os.environ["CROWDSHOT_CACHE"] = ""  # tests leave nothing in the user's own
hypothesis.settings.register_profile("crowdshot", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("crowdshot")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run a command in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(progress, "PATIENCE", 60)  # a busy machine is not what stderr is tested for

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        code: object = 0
        try:
            app.app([str(argument) for argument in arguments], prog_name="crowdshot")
        except SystemExit as stop:
            code = stop.code
        return Said(int(code or 0), *capsys.readouterr())  # type: ignore[call-overload]

    return run
