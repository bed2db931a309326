"""Run the attacks that once got through, with their known answers.

python -m torture.known
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = (
    "service/test_attacks.py",
    "service/test_damaged_journal.py",
    "service/test_review.py",
    "file_io/test_small_files.py",
    "file_io/test_limited_process.py",
    "file_io/test_cells.py",
    "encoders/test_onnx_attacks.py",
    "encoders/test_outside.py",
    "engine/test_kept.py",
    "engine/test_damaged_work.py",
    "engine/test_command.py",
    "commands/test_audit.py",
    "commands/test_console.py",
    "commands/test_judges.py",
    "labels/test_any_table.py",
    "labels/test_duplicate_annotators.py",
    "test_release.py",
    "report/test_map.py",
    "report/test_counts_in_a_browser.py::test_a_page_on_which_everything_is_accepted",
)


def main() -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *(str(TESTS / file) for file in FILES)]).returncode


if __name__ == "__main__":
    sys.exit(main())
