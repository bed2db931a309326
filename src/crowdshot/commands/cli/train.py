"""``crowdshot train`` on the command line: its many options, turned into a recipe; `app` adds it."""

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot.commands.cli.flat import flat
from crowdshot.commands.cli.options import as_shares
from crowdshot.errors import CrowdshotError

if TYPE_CHECKING:
    from crowdshot.training.recipe import Recipe

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot train omniglot/images_background.zip --out omniglot.safetensors
  crowdshot train photos.zip --out photos.safetensors --augment photo
  crowdshot train photos.zip --out paper.safetensors --objective mixture --ways 2:8 --labels-per-item 2:3
  crowdshot train features.npz --out head.safetensors --hidden none --embedding 128
  torchrun --nproc-per-node 2 -m crowdshot train photos.zip --out photos.safetensors
"""


class Prior(StrEnum):
    PAPER = "paper"
    SYMMETRIC = "symmetric"
    DIAGONAL = "diagonal"
    ONE_COIN = "one-coin"


class Objective(StrEnum):
    LABELINGS = "labelings"
    MIXTURE = "mixture"
    PROTOTYPICAL = "prototypical"
    LNL = "lnl"
    MAML = "maml"


class Precision(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Augment(StrEnum):
    NONE = "none"
    PHOTO = "photo"


class Backbone(StrEnum):
    LITE0 = "lite0"


class Architecture(StrEnum):
    CONV4 = "conv4"
    MLP = "mlp"


@dataclass(frozen=True)
class FileOptions:
    """As `crowdshot.commands.given.TrainingFiles`: what is learned from, what is written, which classes are kept."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="glyphs, a folder or zip of class/image files, or an .npz of images or features with labels.",
        ),
    ]
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The encoder to write.")]
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What real annotators said of the items, used instead; where labels are clean, their consensus alone.",
        ),
    ] = None
    image_size: Annotated[int | None, typer.Option(help="Pixels a side; else 28 for grey images, 84 for colour.")] = (
        None
    )
    rotate_classes: Annotated[
        bool, typer.Option("--rotate-classes", help="Images turned by 90, 180 and 270 degrees are other classes.")
    ] = False
    terms: Annotated[str | None, typer.Option(help="What may be done with the source, for the card.")] = None
    validation_classes: Annotated[int | None, typer.Option(min=2, help="Else about one in seven.")] = None
    test_classes: Annotated[int, typer.Option(min=0, help="Left for a final test, whose scores go on the card.")] = 0
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where progress is kept; else next to --out.")
    ] = None
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Iterations; else at every validation.")] = None
    rival: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also train a prototypical network on clean labels, to compare with."),
    ] = None


@dataclass(frozen=True)
class ShapeOptions:
    """Of the episodes: `crowdshot.episodes.shape.EpisodeShape`, as typed."""

    ways: Annotated[
        str | None,
        typer.Option(
            metavar="A:B", help="Classes of an episode, drawn anew for each; else up to 16 for labelings, or 4."
        ),
    ] = None
    shots: Annotated[str, typer.Option(metavar="A:B", help="Examples of each class.")] = "1:5"
    annotators: Annotated[str, typer.Option(metavar="A:B", help="Who labels the examples.")] = "3:7"
    labels_per_item: Annotated[
        str | None, typer.Option(metavar="A:B", help="How many annotators label each example; else all do.")
    ] = None
    queries: Annotated[
        int | None,
        typer.Option(min=1, help="Items of each class that the loss is taken on; else 5 for labelings, or 10."),
    ] = None
    crowd: Annotated[
        str, typer.Option(help="How probable each kind is: expert, hammer, spammer, flipper, classwise.")
    ] = "expert=0.1,hammer=0.7,spammer=0.2"
    augment: Annotated[Augment, typer.Option(help="photo: mirrored and moved.")] = Augment.NONE


@dataclass(frozen=True)
class RecipeOptions:
    """What the encoder is trained for, and how: the rest of a `crowdshot.training.recipe.Recipe`, as typed."""

    objective: Annotated[
        Objective,
        typer.Option(
            help="labelings: what the default method wants, a prototypical network on clean labels. mixture: the "
            "paper's. Else a rival's: see `crowdshot methods`."
        ),
    ] = Objective.LABELINGS
    clean: Annotated[
        bool, typer.Option("--clean", help="Annotators make no mistakes in training; for labelings they never do.")
    ] = False
    steps: Annotated[
        str, typer.Option(metavar="J[,J…]", help="EM steps; of several, validation chooses. They train side by side.")
    ] = "2"
    step_size: Annotated[float, typer.Option(help="Of maml's gradient steps.")] = 0.1
    b: Annotated[str, typer.Option("--b", metavar="B[,B…]", help="Weight of equal class probabilities; likewise.")] = (
        "100"
    )
    prior: Annotated[Prior, typer.Option(help="On confusion matrices: the paper's constant, or learned.")] = Prior.PAPER
    iterations: Annotated[int, typer.Option(min=1)] = 30_000
    episodes: Annotated[int, typer.Option(min=1, help="In an iteration, over all processes.")] = 1
    learning_rate: Annotated[float, typer.Option(help="Of Adam.")] = 1e-3
    validate_every: Annotated[int, typer.Option(min=1, help="Iterations.")] = 1_000
    validation_episodes: Annotated[int, typer.Option(min=1)] = 200
    patience: Annotated[int, typer.Option(min=0, help="Validations without a new best; 0: to the end.")] = 0
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0
    cool_down: Annotated[
        float | None,
        typer.Option(
            help="Share of the iterations, the last ones, in which the learning rate falls to zero; else 0.3 for "
            "labelings, or 0."
        ),
    ] = None


@dataclass(frozen=True)
class NetworkOptions:
    """`crowdshot.commands.given.Network`, as typed."""

    architecture: Annotated[
        Architecture | None, typer.Option(help="conv4 is for images, mlp for features.", show_default=False)
    ] = None
    width: Annotated[int, typer.Option(min=1, help="Channels of conv4.")] = 64
    hidden: Annotated[str, typer.Option(metavar="N,N,…|none", help="Hidden layers of mlp.")] = "128"
    embedding: Annotated[int, typer.Option(min=1, help="Numbers that mlp makes of an item.")] = 64
    precision: Annotated[Precision, typer.Option(help="Of the network; the rest is float32.")] = Precision.FLOAT32
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda")] = "auto"
    backbone: Annotated[
        Backbone | None, typer.Option(help="The features are this network's: save it with the new layer on top.")
    ] = None


@flat
def train(
    files: FileOptions,
    shape: ShapeOptions,
    how: RecipeOptions,
    network: NetworkOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> None:
    """Meta-train an encoder of your own on many small problems, drawn from classes with clean labels.

    Ranges like 1:5 are drawn anew for every episode. Interrupted or killed, the same command goes on where it was.
    """
    from crowdshot.commands import train
    from crowdshot.commands.given import Network, TrainingFiles

    for_labelings = how.objective is Objective.LABELINGS
    recipe, *others = recipes(shape, how)
    report = train.train_encoder(
        TrainingFiles(**vars(files)),
        recipe,
        Network(
            architecture=None if network.architecture is None else network.architecture.value,
            width=network.width,
            hidden=_layers(network.hidden),
            embedding=network.embedding,
            precision=network.precision.value,
            device=network.device,
            backbone=None if network.backbone is None else network.backbone.value,
        ),
        others=others,
        fewer_ways=for_labelings and shape.ways is None,
        command=sys.argv[1:],
    )
    if report.pop("leads"):
        typer.echo(json.dumps(report) if as_json else train.tell(report), err=report["interrupted"])
    if report["interrupted"]:
        raise SystemExit(130)


def recipes(shape: ShapeOptions, how: RecipeOptions) -> "list[Recipe]":
    """One for each combination of steps and b."""
    from crowdshot.episodes.shape import as_range
    from crowdshot.episodes.simulate import KINDS
    from crowdshot.training.recipe import Recipe, sweep
    from crowdshot.training.usual import NARROW, WIDE

    for_labelings = how.objective is Objective.LABELINGS
    usual = WIDE if for_labelings else NARROW
    recipe = Recipe(
        ways=(usual.ways, usual.ways) if shape.ways is None else as_range(shape.ways, "--ways"),
        shots=as_range(shape.shots, "--shots"),
        annotators=as_range(shape.annotators, "--annotators"),
        labels_per_item=None if shape.labels_per_item is None else as_range(shape.labels_per_item, "--labels-per-item"),
        queries=usual.queries if shape.queries is None else shape.queries,
        crowd=as_shares("--crowd", shape.crowd, KINDS),
        augment=shape.augment.value,
        episodes=how.episodes,
        iterations=how.iterations,
        validate_every=how.validate_every,
        validation_episodes=how.validation_episodes,
        patience=how.patience,
        prior=how.prior.value,
        cool_down=usual.cool_down if how.cool_down is None else how.cool_down,
        objective="prototypical" if for_labelings else how.objective.value,
        pseudo_annotation=not (how.clean or for_labelings),
        step_size=how.step_size,
        learning_rate=how.learning_rate,
        seed=how.seed,
    )
    return sweep(recipe, steps=_numbers("--steps", how.steps, int), b=_numbers("--b", how.b, float))


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise CrowdshotError(f"{option} is {text!r}, expected numbers like 2 or 1,2,3.") from None


def _layers(text: str) -> list[int]:
    return [] if text == "none" else _numbers("--hidden", text, int)
