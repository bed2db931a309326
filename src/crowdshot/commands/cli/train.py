"""``crowdshot train`` on the command line: its many options, turned into a recipe; `app` adds it."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdshot.commands.cli.options import as_shares
from crowdshot.errors import CrowdshotError

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


def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="glyphs, a folder or zip of class/image files, or an .npz of images or features with labels.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The encoder to write.")],
    ways: Annotated[
        str | None,
        typer.Option(
            metavar="A:B", help="Classes of an episode, drawn anew for each; else up to 16 for labelings, or 4."
        ),
    ] = None,
    shots: Annotated[str, typer.Option(metavar="A:B", help="Examples of each class.")] = "1:5",
    annotators: Annotated[str, typer.Option(metavar="A:B", help="Who labels the examples.")] = "3:7",
    labels_per_item: Annotated[
        str | None, typer.Option(metavar="A:B", help="How many annotators label each example; else all do.")
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(min=1, help="Items of each class that the loss is taken on; else 5 for labelings, or 10."),
    ] = None,
    crowd: Annotated[
        str, typer.Option(help="How probable each kind is: expert, hammer, spammer, flipper, classwise.")
    ] = "expert=0.1,hammer=0.7,spammer=0.2",
    clean: Annotated[
        bool, typer.Option("--clean", help="Annotators make no mistakes in training; for labelings they never do.")
    ] = False,
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What real annotators said of the items, used instead; where labels are clean, their consensus alone.",
        ),
    ] = None,
    objective: Annotated[
        Objective,
        typer.Option(
            help="labelings: what the default method wants, a prototypical network on clean labels. mixture: the "
            "paper's. Else a rival's: see `crowdshot methods`."
        ),
    ] = Objective.LABELINGS,
    steps: Annotated[
        str, typer.Option(metavar="J[,J…]", help="EM steps; of several, validation chooses. They train side by side.")
    ] = "2",
    step_size: Annotated[float, typer.Option(help="Of maml's gradient steps.")] = 0.1,
    b: Annotated[
        str, typer.Option("--b", metavar="B[,B…]", help="Weight of equal class probabilities; likewise.")
    ] = "100",
    prior: Annotated[Prior, typer.Option(help="On confusion matrices: the paper's constant, or learned.")] = (
        Prior.PAPER
    ),
    iterations: Annotated[int, typer.Option(min=1)] = 30_000,
    episodes: Annotated[int, typer.Option(min=1, help="In a step, over all processes.")] = 1,
    learning_rate: Annotated[float, typer.Option(help="Of Adam.")] = 1e-3,
    validate_every: Annotated[int, typer.Option(min=1, help="Steps.")] = 1_000,
    validation_episodes: Annotated[int, typer.Option(min=1)] = 200,
    patience: Annotated[int, typer.Option(min=0, help="Validations without a new best; 0: to the end.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
    augment: Annotated[Augment, typer.Option(help="photo: mirrored and moved.")] = Augment.NONE,
    cool_down: Annotated[
        float | None,
        typer.Option(
            help="Share of the steps, the last ones, in which the learning rate falls to zero; else 0.3 for labelings, "
            "or 0."
        ),
    ] = None,
    rotate_classes: Annotated[
        bool, typer.Option("--rotate-classes", help="Images turned by 90, 180 and 270 degrees are other classes.")
    ] = False,
    image_size: Annotated[
        int | None, typer.Option(help="Pixels a side; else 28 for grey images, 84 for colour.")
    ] = None,
    architecture: Annotated[
        Architecture | None, typer.Option(help="conv4 is for images, mlp for features.", show_default=False)
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Channels of conv4.")] = 64,
    hidden: Annotated[str, typer.Option(metavar="N,N,…|none", help="Hidden layers of mlp.")] = "128",
    embedding: Annotated[int, typer.Option(min=1, help="Numbers that mlp makes of an item.")] = 64,
    precision: Annotated[Precision, typer.Option(help="Of the network; the rest is float32.")] = Precision.FLOAT32,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda")] = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where progress is kept; else next to --out.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Steps; else at every validation.")] = None,
    validation_classes: Annotated[int | None, typer.Option(min=2, help="Else about one in seven.")] = None,
    test_classes: Annotated[int, typer.Option(min=0, help="Left for a final test, whose scores go on the card.")] = 0,
    rival: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also train a prototypical network on clean labels, to compare with."),
    ] = None,
    backbone: Annotated[
        Backbone | None, typer.Option(help="The features are this network's: save it with the new layer on top.")
    ] = None,
    terms: Annotated[str | None, typer.Option(help="What may be done with the source, for the card.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> None:
    """Meta-train an encoder of your own on many small problems, drawn from classes with clean labels.

    Ranges like 1:5 are drawn anew for every episode. Interrupted or killed, the same command goes on where it was.
    """
    from crowdshot.commands import train
    from crowdshot.episodes.shape import as_range
    from crowdshot.episodes.simulate import KINDS
    from crowdshot.training.recipe import NARROW, WIDE, Recipe, sweep

    for_labelings = objective is Objective.LABELINGS
    usual = WIDE if for_labelings else NARROW
    recipe = Recipe(
        ways=(usual.ways,) * 2 if ways is None else as_range(ways, "--ways"),
        shots=as_range(shots, "--shots"),
        annotators=as_range(annotators, "--annotators"),
        labels_per_item=None if labels_per_item is None else as_range(labels_per_item, "--labels-per-item"),
        queries=usual.queries if queries is None else queries,
        crowd=as_shares("--crowd", crowd, KINDS),
        episodes=episodes,
        iterations=iterations,
        validate_every=validate_every,
        validation_episodes=validation_episodes,
        patience=patience,
        prior=prior.value,
        augment=augment.value,
        cool_down=usual.cool_down if cool_down is None else cool_down,
        objective="prototypical" if for_labelings else objective.value,
        pseudo_annotation=not (clean or for_labelings),
        step_size=step_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    recipe, *others = sweep(recipe, steps=_numbers("--steps", steps, int), b=_numbers("--b", b, float))
    report = train.train_encoder(
        source,
        out,
        recipe,
        others=others,
        fewer_ways=for_labelings and ways is None,
        annotations=annotations,
        image_size=image_size,
        rotate_classes=rotate_classes,
        terms=terms,
        architecture=None if architecture is None else architecture.value,
        width=width,
        hidden=_layers(hidden),
        embedding=embedding,
        precision=precision.value,
        device=device,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        validation_classes=validation_classes,
        test_classes=test_classes,
        rival=rival,
        backbone=None if backbone is None else backbone.value,
        command=sys.argv[1:],
    )
    if report.pop("leads"):
        typer.echo(json.dumps(report) if as_json else train.tell(report), err=report["interrupted"])
    if report["interrupted"]:
        raise SystemExit(130)


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise CrowdshotError(f"{option} is {text!r}, expected numbers like 2 or 1,2,3.") from None


def _layers(text: str) -> list[int]:
    return [] if text == "none" else _numbers("--hidden", text, int)
