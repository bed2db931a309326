"""Run `crowdshot` commands in processes that do not import the libraries again.

A server imports them once and forks for every command. Like a new process, the fork has its own folder, streams and
exit code. `tests/commands/test_start.py` and `test_from_a_shell` start new processes.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import NoReturn

PRELOADED = ("_cli.main", "_cli.fitting", "classifier.diagnostics", "classifier.saving", "report.page.page_writer")


def crowdshot(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder. It has no terminal, no input and no progress lines."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as streams:
        out, err = Path(streams, "out"), Path(streams, "err")
        request = [list(map(str, words)), str(folder), str(out), str(err)]
        print(json.dumps(request), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(request[0], code, out.read_text("utf-8"), err.read_text("utf-8"))


@cache
def _server() -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}  # a fork has no threads of its parent
    command = [sys.executable, __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    atexit.register(process.communicate)  # the server ends with its input
    return process


def _serve() -> None:
    import importlib

    for name in PRELOADED:
        importlib.import_module(f"crowdshot.{name}")
    from crowdshot import progress

    progress.PATIENCE = 600.0  # a slow machine must not print progress lines
    for request in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(*json.loads(request))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(words: list[str], folder: str, out: str, err: str) -> NoReturn:
    """Run a command in this process, and end it."""
    from crowdshot._cli.main import main

    os.chdir(folder)
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = ["crowdshot", *words]
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path.pop(0)  # remove this folder, because its modules could hide others
    _serve()
