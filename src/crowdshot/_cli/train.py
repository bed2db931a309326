"""``crowdshot train``: meta-train an encoder; an interrupted run continues when it is repeated."""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import print_json
from crowdshot._cli.options import EPISODES, INPUT, NETWORK, OUTPUT, TRAINING, AsJson, as_shares, flat
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import about_duration, command_line
from crowdshot.io.json_text import INLINE, OMITTED

if TYPE_CHECKING:
    from crowdshot._cli.inputs import Network, TrainingFiles
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.training.distributed import Processes
    from crowdshot.training.pools import ClassPool
    from crowdshot.training.recipe import Job, Recipe
    from crowdshot.training.sources import TrainingData

    Split = tuple[list[int], list[int], list[int]]  # classes for training, validation and test


LONG = 600  # seconds; slower training on a CPU prints alternatives


@dataclass(frozen=True)
class Scored:
    """The accuracy on the validation classes (None without such classes), and all scores for the encoder's card."""

    validation_accuracy: float | None
    scores: Mapping[str, Any]


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training run.

    Attributes
    ----------
    interrupted : bool
        Whether the run was interrupted; the same command continues it.
    seconds : float
        The duration.
    files : list of Path
        The written encoder, or the checkpoint of an interrupted run, and the history.
    scored : Scored or None
        The scores; None for an interrupted run.
    leads : bool
        Whether this is the first process of a distributed run, which writes and prints.
    """

    interrupted: bool
    seconds: float
    files: list[Path]
    scored: Scored | None = field(metadata=INLINE)
    leads: bool = field(metadata=OMITTED)


def train_encoder(
    files: TrainingFiles,
    recipe: Recipe,
    network: Network | None = None,
    *,
    others: Sequence[Recipe] = (),
    fewer_labelings: bool = False,
    command: Sequence[str] = (),
) -> TrainingResult:
    """Train an encoder and save it with a card that describes how it was trained.

    Under torchrun, every process has to call this function; the first one writes. An interrupted run (``interrupted``
    in the result) continues when it is started again with the same arguments.

    Parameters
    ----------
    files : TrainingFiles
        The data and the files to write.
    recipe : Recipe
        The training settings.
    network : Network, optional
        The network to train.
    others : sequence of Recipe
        Recipes that differ in settings which can be trained side by side, such as J or b. The encoder with the best
        validation accuracy is saved.
    fewer_labelings : bool
        Whether episodes may have fewer classes than the recipe says, if the source has too few.
    command : sequence of str
        The command as typed, for the card.
    """
    from crowdshot._cli.inputs import Network
    from crowdshot.encoders.networks import choose_device
    from crowdshot.training.distributed import join_world
    from crowdshot.training.loop import expected_seconds

    network = network or Network()
    world = join_world()
    recipe = replace(recipe, episodes=max(recipe.episodes, world.size))  # at least one per process
    _check_training(files, network, prepare=world.leads)
    data = _open_data(files, recipe)
    if fewer_labelings:
        recipe, *others = _with_fewer_classes([recipe, *others], data, files)
    split = data.split(recipe.ways[1], recipe.seed, files.validation_classes, files.test_classes)
    candidates = [replace(each, episodes=recipe.episodes) for each in (recipe, *others)]
    rivals = [] if files.rival is None else [replace(recipe, objective="prototypical", pseudo_annotation=False)]
    jobs = [_job(each, data, split, network, recipe.seed, command) for each in (*candidates, *rivals)]
    place = choose_device(network.device)
    pool = data.pool.to(place)
    resumed = files.progress.exists()
    if world.leads and world.size == 1 and place.type == "cpu" and not resumed:
        print(warn_time(expected_seconds(jobs, pool, network.precision), jobs[0]), file=sys.stderr, flush=True)
    began = time.monotonic()
    trained = _run(jobs, pool, files, network.precision, world, resumed)
    seconds = round(time.monotonic() - began, 2)
    scored: Scored | None = None
    if trained is not None:
        kept = [_best(trained[: len(candidates)]), *trained[len(candidates) :]]
        _score(kept, pool, split)
        scores = kept[0].card["scores"]
        scored = Scored(scores["validation_accuracy"], scores)
        if world.leads:
            _save(kept, files, network)
    written = [files.progress if trained is None else files.out, files.history]
    return TrainingResult(trained is None, seconds, written, scored, world.leads)


def _run(
    jobs: Sequence[Job], pool: ClassPool, files: TrainingFiles, precision: str, world: Processes, resumed: bool
) -> list[Encoder] | None:
    """Train all jobs and log the progress; return None if training was interrupted."""
    from torch import distributed as dist

    from crowdshot.training.distributed import _ignore, interruptions
    from crowdshot.training.loop import TrainingLog
    from crowdshot.training.loop import train as meta_train

    log = TrainingLog(files.history, resumed=resumed) if world.leads else None
    try:
        with interruptions() as interrupted:
            return meta_train(
                jobs,
                pool,
                precision=precision,
                checkpoint=files.progress,
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


def _check_training(files: TrainingFiles, network: Network, prepare: bool) -> None:
    """Refuse bad arguments; ``prepare``: also check the files to write and remove partly written ones."""
    from crowdshot.io.atomic import check_writable
    from crowdshot.training import encoder_scores

    if prepare:
        for file in (files.out, files.progress, files.history, *([files.rival] if files.rival else [])):
            check_writable(file)
            _remove_partial_files(file)
    if 0 < files.test_classes < encoder_scores.WAYS:
        expected = f"0, or {encoder_scores.WAYS} or more"
        message = f"is {files.test_classes}"
        raise CrowdshotError(message, argument="test_classes", found=files.test_classes, expected=expected)
    if network.backbone is not None and network.hidden:
        message = f"is {list(network.hidden)}, but a backbone has a single linear layer on top"
        raise CrowdshotError(message, argument="hidden", found=list(network.hidden), expected="none")


def _open_data(files: TrainingFiles, recipe: Recipe) -> TrainingData:
    from crowdshot.labels.formats import read_labels
    from crowdshot.training import encoder_scores
    from crowdshot.training.sources import open_source

    examples = recipe.shots[1] + recipe.queries
    return open_source(
        files.source,
        image_size=files.image_size,
        at_least=max(examples, encoder_scores.EXAMPLES) if files.test_classes else examples,
        rotate_classes=files.rotate_classes,
        annotations=None if files.annotations is None else read_labels(files.annotations).annotations,
        terms=files.terms,
    )


def _with_fewer_classes(recipes: Sequence[Recipe], data: TrainingData, files: TrainingFiles) -> list[Recipe]:
    ways = recipes[0].ways
    most = max(2, min(ways[1], data.most_labelings(files.validation_classes, files.test_classes)))
    return [replace(each, ways=(min(ways[0], most), most)) for each in recipes]


def _job(recipe: Recipe, data: TrainingData, split: Split, network: Network, seed: int, command: Sequence[str]) -> Job:
    from crowdshot.encoders.encoder_files import START, fresh_encoder, start_principal
    from crowdshot.encoders.networks import MLP
    from crowdshot.training.recipe import Job

    learned_from, validated_on, _ = split
    encoder = fresh_encoder(data.input, network.architecture, network.width, network.hidden, network.embedding, seed)
    if isinstance(encoder.module, MLP) and not network.hidden:
        examples = data.pool.take(learned_from).all_examples().float()
        start_principal(encoder.module, examples, START[recipe.objective])
    encoder.card |= _card(data, split, network.precision, command)
    return Job(encoder, learned_from, validated_on, recipe)


def _score(trained: Sequence[Encoder], pool: ClassPool, split: Split) -> None:
    """Add the best settings of the labeling search and the scores on test classes to the cards."""
    from crowdshot.training import encoder_scores

    _, validated_on, tested_on = split
    if len(validated_on) >= encoder_scores.WAYS and pool.smallest >= encoder_scores.EXAMPLES:
        for encoder in trained:
            if encoder.card["recipe"]["objective"] == "prototypical":
                validation = encoder_scores.embedded(pool.take(validated_on), encoder)
                encoder.card["labelings"] = encoder_scores.best_labelings(validation)
    if tested_on:
        _add_test_scores(trained, pool.take(tested_on))


def _save(trained: Sequence[Encoder], files: TrainingFiles, network: Network) -> None:
    from crowdshot.encoders.encoder_files import on_backbone, save_encoder

    paths = [files.out] if files.rival is None else [files.out, files.rival]
    for path, encoder in zip(paths, trained, strict=True):
        save_encoder(on_backbone(encoder) if network.backbone else encoder, path)
    files.progress.unlink(missing_ok=True)


def _best(trained: Sequence[Encoder]) -> Encoder:
    """Return the encoder with the best validation accuracy; its card lists all candidates."""
    best = max(
        trained, key=lambda encoder: encoder.card["scores"]["validation_accuracy"] or 0.0
    )  # None: training diverged
    if len(trained) > 1:
        names = ("steps", "b")
        best.card["chosen_from"] = [
            {**{k: e.card["recipe"][k] for k in names}, "validation_accuracy": e.card["scores"]["validation_accuracy"]}
            for e in trained
        ]
    return best


def _add_test_scores(trained: Sequence[Encoder], pool: ClassPool) -> None:
    """Add the accuracy on test classes to the cards; all encoders see the same episodes and labels."""
    from crowdshot.training import encoder_scores

    for encoder in trained:
        card = encoder.card
        card["scores"]["test"] = encoder_scores.unseen_scores(encoder, pool)
        if "labelings" in card:  # also score the default method
            classify = encoder_scores.by_labelings(card["labelings"])
            card["scores"]["test by Labelings"] = encoder_scores.score_table(
                encoder_scores.embedded(pool, encoder), classify
            )
    for encoder in trained[1:]:
        trained[0].card["scores"]["test of a prototypical network with soft votes"] = encoder.card["scores"]["test"]


def warn_time(seconds: float, job: Job) -> str:
    """Return a sentence about the expected duration on this CPU, with faster alternatives if it is long."""
    time = f"{job.recipe.iterations:,} iterations of {job.encoder.architecture} take {about_duration(seconds)}"
    if seconds < LONG or job.encoder.architecture != "conv4":
        return f"{time} on this CPU"
    return (
        f"{time} on this CPU. Shipped encoders (`crowdshot encoders`) need no training, and training a head on a frozen"
        " encoder takes a minute (docs/training.md)."
    )


def summarise(result: TrainingResult) -> str:
    """Return the result as text."""
    if result.scored is None:
        return f"interrupted; repeat the same command to continue from {result.files[0]}"
    accuracy, diverged = result.scored.validation_accuracy, result.scored.scores.get("diverged_at_step")
    lines = [f"validation accuracy {accuracy:.4f}"] if accuracy else []
    lines += [f"diverged at iteration {diverged:,}; the best weights before that were saved"] if diverged else []
    return "\n".join([*lines, *map(str, result.files)])


def _card(data: TrainingData, split: Split, precision: str, command: Sequence[str]) -> dict[str, Any]:
    learned_from, validated_on, tested_on = split
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


def _remove_partial_files(file: Path) -> None:
    """Remove what a run that was killed while writing has left."""
    for name in glob.glob(f".{glob.escape(file.name)}.*.tmp", root_dir=file.absolute().parent, include_hidden=True):
        with suppress(OSError):
            file.with_name(name).unlink()


# ---- options ----

# "\b" keeps the line breaks
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
    """The options for `crowdshot._cli.inputs.TrainingFiles`."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The training data: glyphs, a folder or zip file with one folder of images per class, or an .npz file"
            " of images or features with labels.",
        ),
    ]
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The encoder to write.", rich_help_panel=OUTPUT)]
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Labels of real annotators for the items, used in place of simulated ones. Where training needs clean"
            " labels, their consensus is used.",
            rich_help_panel=INPUT,
        ),
    ] = None
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Pixels per side (default: 28 for grey images, 84 for colour images).", rich_help_panel=INPUT
        ),
    ] = None
    rotate_classes: Annotated[
        bool,
        typer.Option(
            "--rotate-classes",
            help="Add classes of images rotated by 90, 180 and 270 degrees.",
            rich_help_panel=INPUT,
        ),
    ] = False
    terms: Annotated[
        str | None, typer.Option(help="The licence of the training data, for the card.", rich_help_panel=INPUT)
    ] = None
    validation_classes: Annotated[
        int | None,
        typer.Option(
            min=2, help="The number of classes for validation (default: about one in seven).", rich_help_panel=INPUT
        ),
    ] = None
    test_classes: Annotated[
        int,
        typer.Option(
            min=0,
            help="The number of classes for a final test. The card lists its scores.",
            rich_help_panel=INPUT,
        ),
    ] = 0
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file that stores progress (default: a file next to --out).",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            min=1, help="Iterations between checkpoints (default: as --validate-every).", rich_help_panel=TRAINING
        ),
    ] = None
    rival: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also train a prototypical network on clean labels, for comparison, and write it to this file.",
            rich_help_panel=OUTPUT,
        ),
    ] = None


@dataclass(frozen=True)
class ShapeOptions:
    """The options for the `crowdshot.training.episodes.EpisodeShape`."""

    ways: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="The number of classes (default: up to 16 for the objective labelings, else 4).",
            rich_help_panel=EPISODES,
        ),
    ] = None
    shots: Annotated[
        str, typer.Option(metavar="A:B", help="The number of labelled items per class.", rich_help_panel=EPISODES)
    ] = "1:5"
    annotators: Annotated[
        str, typer.Option(metavar="A:B", help="The number of annotators.", rich_help_panel=EPISODES)
    ] = "3:7"
    labels_per_item: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="The number of annotators who label each item (default: all).",
            rich_help_panel=EPISODES,
        ),
    ] = None
    queries: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of items per class in the loss (default: 5 for the objective labelings, else 10).",
            rich_help_panel=EPISODES,
        ),
    ] = None
    crowd: Annotated[
        str,
        typer.Option(
            help="The probability of each kind of simulated annotator: expert, hammer, spammer, flipper, classwise.",
            rich_help_panel=EPISODES,
        ),
    ] = "expert=0.1,hammer=0.7,spammer=0.2"
    augment: Annotated[Augment, typer.Option(help="photo: mirror and shift images.", rich_help_panel=EPISODES)] = (
        Augment.NONE
    )


@dataclass(frozen=True)
class RecipeOptions:
    """The other options for the `crowdshot.training.recipe.Recipe`."""

    objective: Annotated[
        Objective,
        typer.Option(
            help="labelings: a prototypical network on clean labels, which suits the default method; mixture: the"
            " objective of the paper; the others belong to the methods of `crowdshot methods` that need them.",
            rich_help_panel=TRAINING,
        ),
    ] = Objective.LABELINGS
    clean: Annotated[
        bool,
        typer.Option(
            "--clean",
            help="Train on clean labels, without simulated errors. The objective labelings always does so.",
            rich_help_panel=TRAINING,
        ),
    ] = False
    steps: Annotated[
        str,
        typer.Option(
            metavar="J[,J…]",
            help="The number of EM steps. Several values are trained side by side, and validation chooses one.",
            rich_help_panel=TRAINING,
        ),
    ] = "2"
    step_size: Annotated[
        float, typer.Option(help="The step size of the gradient steps of maml.", rich_help_panel=TRAINING)
    ] = 0.1
    b: Annotated[
        str,
        typer.Option(
            "--b",
            metavar="B[,B…]",
            help="The weight of equal class probabilities in their prior. Several values are possible, as for --steps.",
            rich_help_panel=TRAINING,
        ),
    ] = "100"
    prior: Annotated[
        Prior,
        typer.Option(
            help="The prior of confusion matrices: the constant of the paper, or one of the learned forms.",
            rich_help_panel=TRAINING,
        ),
    ] = Prior.PAPER
    iterations: Annotated[int, typer.Option(min=1, help="The number of iterations.", rich_help_panel=TRAINING)] = 30_000
    episodes: Annotated[
        int,
        typer.Option(min=1, help="The number of episodes per iteration, over all processes.", rich_help_panel=TRAINING),
    ] = 1
    learning_rate: Annotated[float, typer.Option(help="The learning rate of Adam.", rich_help_panel=TRAINING)] = 1e-3
    validate_every: Annotated[
        int, typer.Option(min=1, help="Iterations between validations.", rich_help_panel=TRAINING)
    ] = 1_000
    validation_episodes: Annotated[
        int, typer.Option(min=1, help="The number of episodes per validation.", rich_help_panel=TRAINING)
    ] = 200
    patience: Annotated[
        int,
        typer.Option(
            min=0,
            help="Stop after this number of validations without improvement; 0: never.",
            rich_help_panel=TRAINING,
        ),
    ] = 0
    seed: Annotated[
        int, typer.Option(help="The random seed: the same seed gives the same result.", rich_help_panel=TRAINING)
    ] = 0
    cool_down: Annotated[
        float | None,
        typer.Option(
            help="The share of iterations, at the end, in which the learning rate falls to zero (default: 0.3 for the"
            " objective labelings, else 0).",
            rich_help_panel=TRAINING,
        ),
    ] = None


@dataclass(frozen=True)
class NetworkOptions:
    """The options for `crowdshot._cli.inputs.Network`."""

    architecture: Annotated[
        Architecture | None,
        typer.Option(help="conv4: for images; mlp: for features.", show_default=False, rich_help_panel=NETWORK),
    ] = None
    width: Annotated[int, typer.Option(min=1, help="The number of channels of conv4.", rich_help_panel=NETWORK)] = 64
    hidden: Annotated[
        str,
        typer.Option(metavar="N,N,…|none", help="The sizes of the hidden layers of mlp.", rich_help_panel=NETWORK),
    ] = "128"
    embedding: Annotated[int, typer.Option(min=1, help="The number of outputs of mlp.", rich_help_panel=NETWORK)] = 64
    precision: Annotated[
        Precision,
        typer.Option(help="The precision of the network; all else is float32.", rich_help_panel=NETWORK),
    ] = Precision.FLOAT32
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="The device to train on.", rich_help_panel=NETWORK)
    ] = "auto"
    backbone: Annotated[
        Backbone | None,
        typer.Option(
            help="The frozen network that computed the features. The saved encoder is this network with the trained"
            " layer on top.",
            rich_help_panel=NETWORK,
        ),
    ] = None


@flat
def train(
    files: FileOptions,
    shape: ShapeOptions,
    how: RecipeOptions,
    network: NetworkOptions,
    as_json: AsJson = False,
) -> None:
    """Meta-train an encoder on classes with clean labels.

    Training solves many small problems (episodes), drawn from these classes. From a range like 1:5, a number is drawn
    for every episode. If training is interrupted, repeat the same command to continue.
    """
    from crowdshot._cli.inputs import Network, TrainingFiles

    for_labelings = how.objective is Objective.LABELINGS
    recipe, *others = recipes(shape, how)
    result = train_encoder(
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
    if result.leads and as_json:
        print_json(result, err=result.interrupted)
    elif result.leads:
        typer.echo(summarise(result), err=result.interrupted)
    if result.interrupted:
        raise SystemExit(130)


def recipes(shape: ShapeOptions, how: RecipeOptions) -> list[Recipe]:
    """Return a recipe for each combination of steps and b."""
    from crowdshot.training.default_settings import KINDS, NARROW, WIDE
    from crowdshot.training.episodes import as_range
    from crowdshot.training.recipe import Recipe, sweep

    for_labelings = how.objective is Objective.LABELINGS
    usual = WIDE if for_labelings else NARROW
    recipe = Recipe(
        ways=(usual.ways, usual.ways) if shape.ways is None else as_range(shape.ways, "ways"),
        shots=as_range(shape.shots, "shots"),
        annotators=as_range(shape.annotators, "annotators"),
        labels_per_item=None if shape.labels_per_item is None else as_range(shape.labels_per_item, "labels_per_item"),
        queries=usual.queries if shape.queries is None else shape.queries,
        crowd=as_shares("crowd", shape.crowd, KINDS),
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
    return sweep(recipe, steps=_numbers("steps", how.steps, int), b=_numbers("b", how.b, float))


def _numbers(argument: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        expected = "numbers like 2 or 1,2,3"
        raise CrowdshotError(f"is {text!r}", argument=argument, found=text, expected=expected) from None


def _layers(text: str) -> list[int]:
    return [] if text == "none" else _numbers("hidden", text, int)
