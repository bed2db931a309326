"""Reproduce Kumagai et al. (ICML 2025): datasets, compared systems, experiments, tables and figures.

The package depends on `crowdshot`, never the reverse. It registers its methods, encoders, trainers and commands through
entry points (pyproject.toml). `crowdshot paper list` shows the experiments.
"""

from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"  # encoders that only the compared systems use
