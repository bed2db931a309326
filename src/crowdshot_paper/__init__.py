"""The reproduction of Kumagai et al. (ICML 2025): datasets, compared systems, experiments, tables and figures.

It builds on `crowdshot`, which does not import it: methods, encoders, trainers and commands are registered through entry
points (pyproject.toml). `crowdshot paper list` shows the experiments.
"""

from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"  # encoders that only the compared systems use
