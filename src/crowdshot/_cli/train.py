"""What ``crowdshot train`` does: a source, a recipe and a network's size -> an encoder in a file, safe to interrupt."""

from __future__ import annotations

import glob
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import flat
from crowdshot._cli.options import as_shares
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import about_duration, command_line

if TYPE_CHECKING:
    from crowdshot._cli.inputs import Network, TrainingFiles
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.training.pools import ClassPool
    from crowdshot.training.recipe import Job, Recipe
    from crowdshot.training.sources import TrainingData


Report = dict[str, Any]
LONG = 600  # seconds, from which on other ways are told of


def train_encoder(
    files: TrainingFiles,
    recipe: Recipe,
    network: Network | None = None,
    *,
    others: Sequence[Recipe] = (),
    fewer_labelings: bool = False,
    command: Sequence[str] = (),
) -> Report:
    """Train one encoder on a source and save it, with a card that says how it came about.

    ``others`` are further recipes, which differ in what a stack allows (say J or b): all are trained side by side, and
    the one with the best validation accuracy is kept. ``fewer_labelings`` lets episodes have fewer classes than the recipe
    says, where the source has not so many.

    Under torchrun, every process is to call this; the first one writes. An interrupted run (``"interrupted"`` in the
    report) goes on when it is started again in the same way. ``command`` is what the user typed, for the card.
    """
    from torch import distributed as dist

    from crowdshot._cli.inputs import Network
    from crowdshot.encoders.encoder_files import START, fresh_encoder, on_backbone, save_encoder, start_principal
    from crowdshot.encoders.networks import MLP, choose_device
    from crowdshot.io.atomic import check_writable
    from crowdshot.labels.formats import read_labels
    from crowdshot.training import encoder_scores
    from crowdshot.training.distributed import _ignore, interruptions, join_world
    from crowdshot.training.loop import TrainingLog, expected_seconds
    from crowdshot.training.loop import train as meta_train
    from crowdshot.training.recipe import Job
    from crowdshot.training.sources import open_source

    world = join_world()
    recipe = replace(recipe, episodes=max(recipe.episodes, world.size))  # one each, at least
    out, checkpoint, history, rival = files.out, files.progress, files.history, files.rival
    if world.leads:
        for file in (out, checkpoint, history, *([rival] if rival else [])):
            check_writable(file)
            _remove_rests(file)
    if 0 < files.test_classes < encoder_scores.WAYS:
        raise CrowdshotError(f"test_classes is {files.test_classes}, expected 0, or {encoder_scores.WAYS} or more.")
    network = network or Network()
    if network.backbone is not None and network.hidden:
        raise CrowdshotError(
            f"hidden is {list(network.hidden)}, expected none, as a backbone has one linear layer on top."
        )
    needed = recipe.shots[1] + recipe.queries
    if files.test_classes:
        needed = max(needed, encoder_scores.EXAMPLES)
    place = choose_device(network.device)
    labels = None if files.annotations is None else read_labels(files.annotations).annotations
    data = open_source(
        files.source,
        image_size=files.image_size,
        at_least=needed,
        rotate_classes=files.rotate_classes,
        annotations=labels,
        terms=files.terms,
    )
    if fewer_labelings:
        most = max(2, min(recipe.ways[1], data.most_labelings(files.validation_classes, files.test_classes)))
        ways = (min(recipe.ways[0], most), most)
        recipe, *others = (replace(each, ways=ways) for each in (recipe, *others))
    learned_from, validated_on, tested_on = data.split(
        recipe.ways[1], recipe.seed, files.validation_classes, files.test_classes
    )
    candidates = [replace(each, episodes=recipe.episodes) for each in (recipe, *others)]
    rivals = [] if rival is None else [replace(recipe, objective="prototypical", pseudo_annotation=False)]
    jobs = []
    for each in (*candidates, *rivals):
        encoder = fresh_encoder(
            data.input, network.architecture, network.width, network.hidden, network.embedding, recipe.seed
        )
        if isinstance(encoder.module, MLP) and not network.hidden:
            start_principal(encoder.module, data.pool.take(learned_from).all_examples().float(), START[each.objective])
        encoder.card |= _card(data, learned_from, validated_on, tested_on, network.precision, command)
        jobs.append(Job(encoder, learned_from, validated_on, each))
    pool = data.pool.to(place)
    if world.leads and world.size == 1 and place.type == "cpu" and not checkpoint.exists():
        print(warn_time(expected_seconds(jobs, pool, network.precision), jobs[0]), file=sys.stderr, flush=True)
    log = TrainingLog(history, resumed=checkpoint.exists()) if world.leads else None
    began = time.monotonic()
    try:
        with interruptions() as interrupted:
            trained = meta_train(
                jobs,
                pool,
                precision=network.precision,
                checkpoint=checkpoint,
                checkpoint_every=files.checkpoint_every,
                stop=interrupted,
                world=world,
                report=_ignore if log is None else log.report,
                tick=_ignore if log is None else log.tick,
            )
    finally:
        if log is not None:
            log.close()
        if dist.is_initialized():
            dist.destroy_process_group()
    report: Report = {
        "interrupted": trained is None,
        "leads": world.leads,
        "seconds": round(time.monotonic() - began, 2),
        "files": [str(checkpoint if trained is None else out), str(history)],
    }
    if trained is not None:
        kept = [_best(trained[: len(candidates)]), *trained[len(candidates) :]]
        if len(validated_on) >= encoder_scores.WAYS and pool.smallest >= encoder_scores.EXAMPLES:
            for encoder in kept:
                if encoder.card["recipe"]["objective"] == "prototypical":
                    validation = encoder_scores.embedded(pool.take(validated_on), encoder)
                    encoder.card["labelings"] = encoder_scores.best_labelings(validation)
        if tested_on:
            _add_test_scores(kept, pool.take(tested_on))
        scores = kept[0].card["scores"]
        report |= {"validation_accuracy": scores["validation_accuracy"], "scores": scores}
        if world.leads:
            for place_of, encoder in zip([out] if rival is None else [out, rival], kept, strict=True):
                save_encoder(on_backbone(encoder) if network.backbone else encoder, place_of)
            checkpoint.unlink(missing_ok=True)
    return report


def _best(trained: Sequence[Encoder]) -> Encoder:
    """The encoder with the best validation accuracy; its card lists what it was chosen from."""
    best = max(trained, key=lambda encoder: encoder.card["scores"]["validation_accuracy"] or 0.0)  # None: it diverged
    if len(trained) > 1:
        names = ("steps", "b")
        best.card["chosen_from"] = [
            {**{k: e.card["recipe"][k] for k in names}, "validation_accuracy": e.card["scores"]["validation_accuracy"]}
            for e in trained
        ]
    return best


def _add_test_scores(trained: Sequence[Encoder], pool: ClassPool) -> None:
    """Accuracy on classes that training never touched; the same episodes and labels for all. The paper's beside it."""
    from crowdshot.training import encoder_scores

    for encoder in trained:
        card = encoder.card
        card["scores"]["test"] = encoder_scores.unseen_scores(encoder, pool)
        if "labelings" in card:  # the default method is what it will be used with
            classify = encoder_scores.by_labelings(card["labelings"])
            card["scores"]["test by Labelings"] = encoder_scores.score_table(
                encoder_scores.embedded(pool, encoder), classify
            )
    for encoder in trained[1:]:
        trained[0].card["scores"]["test of a prototypical network with soft votes"] = encoder.card["scores"]["test"]


def warn_time(seconds: float, job: Job) -> str:
    """How long it will take on this CPU, before it begins, and what takes less where that is long."""
    time = f"{job.recipe.iterations:,} iterations of {job.encoder.architecture} take {about_duration(seconds)}"
    if seconds < LONG or job.encoder.architecture != "conv4":
        return f"{time} on this CPU"
    return (
        f"{time} on this CPU; shipped encoders (crowdshot encoders) need no training, a head on a frozen one a minute"
        " (docs/training.md)"
    )


def tell(report: Report) -> str:
    """The report for a person."""
    if report["interrupted"]:
        return f"interrupted; the same command goes on from {report['files'][0]}"
    diverged = report["scores"].get("diverged_at_step")
    lines = [f"validation accuracy {report['validation_accuracy']:.4f}"] if report["validation_accuracy"] else []
    lines += [f"diverged at iteration {diverged:,}: these are the best weights before"] if diverged else []
    return "\n".join([*lines, *report["files"]])


def _card(
    data: TrainingData,
    learned_from: list[int],
    validated_on: list[int],
    tested_on: list[int],
    precision: str,
    command: Sequence[str],
) -> Report:
    return {
        "command": command_line(command) if command else "",
        "trained_on": f"{data.description['classes']:,} classes of {data.description['name']}",
        "source": {
            **data.description,
            "learned_from": len(learned_from),
            "validated_on": len(validated_on),
            "tested_on": len(tested_on),
        },
        "precision": precision,
    }


def _remove_rests(file: Path) -> None:
    """What a run that was killed while it wrote has left behind."""
    for rest in glob.glob(f".{glob.escape(file.name)}.*.tmp", root_dir=file.absolute().parent, include_hidden=True):
        with suppress(OSError):
            file.with_name(rest).unlink()


# ---- train ------------------------------------------------------------
#
# ``crowdshot train`` on the command line: its many options, turned into a recipe; `app` adds it.


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
    """As `crowdshot._cli.inputs.TrainingFiles`: what is learned from, what is written, which classes are kept."""

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
    """Of the episodes: `crowdshot.training.episodes.EpisodeShape`, as typed."""

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
    """`crowdshot._cli.inputs.Network`, as typed."""

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
    from crowdshot._cli.inputs import Network, TrainingFiles

    for_labelings = how.objective is Objective.LABELINGS
    recipe, *others = recipes(shape, how)
    report = train_encoder(
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
        fewer_labelings=for_labelings and shape.ways is None,
        command=sys.argv[1:],
    )
    if report.pop("leads"):
        typer.echo(json.dumps(report) if as_json else tell(report), err=report["interrupted"])
    if report["interrupted"]:
        raise SystemExit(130)


def recipes(shape: ShapeOptions, how: RecipeOptions) -> list[Recipe]:
    """One for each combination of steps and b."""
    from crowdshot.training.default_settings import KINDS, NARROW, WIDE
    from crowdshot.training.episodes import as_range
    from crowdshot.training.recipe import Recipe, sweep

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
