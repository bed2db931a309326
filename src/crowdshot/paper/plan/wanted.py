"""Which encoder a candidate of a method needs: plain data, so that what there is to run is told without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdshot.methods.contract import Candidate, Method
from crowdshot.paper.plan.cells import CROWDS, SOURCE_CROWD, TARGETS, Cell, Target
from crowdshot.training.usual import WIDE

if TYPE_CHECKING:
    from crowdshot.episodes.shape import Range
    from crowdshot.paper.plan.protocol import Protocol
    from crowdshot.training.recipe import Recipe

PHOTOGRAPHS = ("miniimagenet", "tiny-imagenet-100")
WIDE_ITERATIONS = {"omniglot": 15_000, "miniimagenet": 30_000, "tiny-imagenet-100": 30_000}
# What encoders meet that are made for real annotators (`as-sparse`), in the place of what their source gives:
SPARSE: dict[str, Any] = {"ways": 8, "annotators": (20, 20), "labels_per_item": (1, 7), "iterations": 16_000}
# A step of MAML costs ten of the others'; on validation a sixth as many are enough for characters, and half for
# photographs (docs/reproduction-details.md).
MAML_SHORTER = {"omniglot": 6, "miniimagenet": 2, "tiny-imagenet-100": 2}


@dataclass(frozen=True)
class Wanted:
    """One encoder: what it is for, in words that make its file's name."""

    source: str
    split: int
    objective: str
    pseudo_annotation: bool
    ways: int
    shots: Range
    annotators: Range
    labels_per_item: Range | None = None
    steps: int = 2
    b: float = 100.0
    step_size: float = 0.1
    iterations: int = 30_000
    wide: bool = False

    @property
    def name(self) -> str:
        def span(value: Range | None) -> str:
            return "all" if value is None else "to".join(map(str, sorted(set(value))))

        settings = {"mixture": f"J{self.steps}-b{self.b:g}", "maml": f"step{self.step_size:g}"}.get(self.objective, "")
        words = [
            f"split{self.split}",
            self.objective,
            "pa" if self.pseudo_annotation else "clean",
            f"{self.ways}way",
            f"{span(self.shots)}shot",
            f"{span(self.annotators)}annotators",
            f"{span(self.labels_per_item)}labels",
            settings,
            f"wide-cool{WIDE.cool_down:g}" if self.wide else "",
            f"{self.iterations}iterations",
        ]
        return "-".join(word for word in words if word)

    def file(self, work: Path) -> Path:
        return work / "encoders" / self.source / f"{self.name}.safetensors"

    def recipe(self, protocol: Protocol) -> Recipe:
        from crowdshot.training.recipe import Recipe  # here, as it needs torch

        return Recipe(
            ways=(self.ways, self.ways),
            shots=self.shots,
            annotators=self.annotators,
            labels_per_item=self.labels_per_item,
            queries=min(protocol.training_queries, WIDE.queries) if self.wide else protocol.training_queries,
            crowd=CROWDS[SOURCE_CROWD],
            iterations=self.iterations,
            validate_every=protocol.validate_every,
            validation_episodes=protocol.training_validation_episodes,
            objective=self.objective,
            pseudo_annotation=self.pseudo_annotation,
            steps=self.steps,
            b=self.b,
            step_size=self.step_size,
            cool_down=WIDE.cool_down if self.wide else 0.0,
            augment="photo" if self.wide and self.source in PHOTOGRAPHS else "none",
            seed=self.split,
        )


def wanted(
    method: Method,
    candidate: Candidate,
    target: Target,
    cell: Cell,
    split: int,
    trained_for: str = "one",
    iterations: int = 0,
) -> Wanted | None:
    """The encoder that a candidate of a method needs; None where the method needs none.

    ``trained_for`` as in `Experiment.encoders`. ``iterations`` 0: as many as the source has.
    """
    needs, learns = method.needs, TARGETS[target.source]
    if needs is None:
        return None
    if needs.wide:  # one for all targets of a source
        return Wanted(
            target.source,
            split,
            needs.objective,
            needs.pseudo_annotation,
            WIDE.ways,
            (1, 5),
            learns.annotators if needs.pseudo_annotation else (3, 3),
            iterations=iterations or WIDE_ITERATIONS[target.source],
            wide=True,
        )
    if trained_for == "sparse":
        learns = replace(learns, **SPARSE)
    shots, annotators = (1, 5), learns.annotators
    if trained_for == "cell":  # annotators who tell the truth are as good as three of them
        shots, annotators = (cell.shots,) * 2, (cell.n_annotators if needs.pseudo_annotation else 3,) * 2
    return Wanted(
        target.source,
        split,
        needs.objective,
        needs.pseudo_annotation,
        learns.ways,
        shots,
        annotators,
        learns.labels_per_item,
        **{name: candidate[name] for name in needs.by},
        iterations=iterations or learns.iterations // (MAML_SHORTER[target.source] if needs.objective == "maml" else 1),
    )
