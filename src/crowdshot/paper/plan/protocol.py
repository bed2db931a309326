"""How large an experiment is: the paper's size, or a toy's that shows that everything runs."""

from __future__ import annotations

from dataclasses import dataclass

from crowdshot.errors import CrowdshotError
from crowdshot.methods.contract import Candidate, Method
from crowdshot.paper.plan.cells import REAL, Cell
from crowdshot.paper.plan.experiments import Experiment


@dataclass(frozen=True)
class Protocol:
    """Sizes that are not an experiment's own. None and 0: as the target has it (`cells.TARGETS`)."""

    splits: tuple[int, ...] = (0, 1, 2, 3, 4)
    episodes: int | None = None  # of a cell, for validation as for test
    iterations: int = 0  # of meta-training
    validate_every: int = 1_000
    training_validation_episodes: int = 100  # that choose the best weights of one run
    training_queries: int = 10
    width: int = 64  # channels of the encoder
    only: tuple[tuple[str, float], ...] = ()  # settings of candidates; others are left out
    sizes: tuple[tuple[int, int], ...] = ()  # items and annotators of cells; others are left out
    toy: bool = False  # small drawn datasets, few cells and cheap candidates only

    def __post_init__(self) -> None:
        if not self.splits or min(self.splits) < 0:
            raise CrowdshotError(f"splits is {list(self.splits)}, expected some from 0 upwards.")

    def candidates(self, method: Method) -> list[Candidate]:
        some = [one for one in method.candidates if all(one.get(name, value) == value for name, value in self.only)]
        return [one for one in some if not self.toy or all(one[k] <= CHEAP.get(k, one[k]) for k in one)]

    def cells(self, experiment: Experiment, dataset: str) -> list[Cell]:
        cells = [cell for cell in experiment.cells(dataset) if not self.sizes or cell.size in self.sizes]
        if not self.toy or not cells:
            return cells
        cells = [cell for cell in cells if cell.shots <= TOY_SHOTS]
        first, last = cells[0], cells[0 if cells[0].crowd == REAL else -1]
        return [
            cell for cell in cells if cell.size in (first.size, last.size) and cell.crowd in (first.crowd, last.crowd)
        ]


TOY_SHOTS = 10  # that its classes have items for
CHEAP = {"iterations": 10, "trees": 10, "steps": 2, "bases": 5, "C": 1e-3, "step_size": 0.1}
PAPER = Protocol()
QUICK = Protocol(
    splits=(0,),
    episodes=2,
    iterations=2,
    validate_every=2,
    training_validation_episodes=2,
    training_queries=2,
    width=4,
    toy=True,
)
