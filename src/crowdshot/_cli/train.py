"""``crowdshot train``: meta-train an encoder; an interrupted run continues when it is repeated."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import print_json
from crowdshot._cli.option_values import as_shares
from crowdshot._cli.options import (
    AsJson,
    Checkpoint,
    FromText,
    episode_option,
    flat,
    input_option,
    network_option,
    output_option,
    training_option,
)
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import about_duration, command_line
from crowdshot.io.json_text import INLINE, OMITTED

if TYPE_CHECKING:
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.training.distributed import Processes
    from crowdshot.training.pools import ClassPool
    from crowdshot.training.recipe import Job, Recipe
    from crowdshot.training.sources import TrainingData

    Split = tuple[list[int], list[int], list[int]]  # classes for training, validation and test


LONG = 600  # seconds; slower training on a CPU prints alternatives

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot train omniglot/images_background.zip --out omniglot.safetensors
  crowdshot train photos.zip --out photos.safetensors --augment photo
  crowdshot train photos.zip --out paper.safetensors --objective mixture --ways 2:8 --labels-per-item 2:3
  crowdshot train features.npz --out head.safetensors --hidden none --embedding 128
  torchrun --nproc-per-node 2 -m crowdshot train photos.zip --out photos.safetensors
"""


def as_numbers(argument: str, text: str, kind: type[int] | type[float] = int) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        expected = "numbers like 2 or 1,2,3"
        raise CrowdshotError(f"is {text!r}", argument=argument, found=text, expected=expected) from None


def as_layers(text: str) -> list[int]:
    return [] if text == "none" else as_numbers("hidden", text)


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
class TrainingFiles:
    """The files of a training run, and the split of its classes."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The training data: glyphs, a folder or zip file with one folder of images per class, or an .npz file"
            " of images or features with labels.",
        ),
    ]
    out: Annotated[Path, output_option("--out", metavar="FILE", help="The encoder to write.")]
    annotations: Annotated[
        Path | None,
        input_option(
            metavar="FILE",
            help="Labels of real annotators for the items, used in place of simulated ones. Where training needs clean"
            " labels, their consensus is used.",
        ),
    ] = None
    image_size: Annotated[
        int | None, input_option(help="Pixels per side (default: 28 for grey images, 84 for colour images).")
    ] = None
    rotate_classes: Annotated[
        bool, input_option("--rotate-classes", help="Add classes of images rotated by 90, 180 and 270 degrees.")
    ] = False
    terms: Annotated[
        str | None, input_option(metavar="TEXT", help="The licence of the training data, for the card.")
    ] = None
    validation_classes: Annotated[
        int | None, input_option(min=2, help="The number of classes for validation (default: about one in seven).")
    ] = None
    test_classes: Annotated[
        int, input_option(min=0, help="The number of classes for a final test. The card lists its scores.")
    ] = 0
    checkpoint: Checkpoint = None
    checkpoint_every: Annotated[
        int | None, training_option(min=1, help="Iterations between checkpoints (default: as --validate-every).")
    ] = None
    rival: Annotated[
        Path | None,
        output_option(
            metavar="FILE",
            help="Also train a prototypical network on clean labels, for comparison, and write it to this file.",
        ),
    ] = None

    @property
    def progress(self) -> Path:
        """The checkpoint that exists while training runs."""
        return self.checkpoint or self.out.with_name(f"{self.out.name}.checkpoint")

    @property
    def history(self) -> Path:
        return self.out.with_name(f"{self.out.stem}.history.csv")


@dataclass(frozen=True)
class ShapeOptions:
    """The options for the `crowdshot.training.episodes.EpisodeShape`."""

    ways: Annotated[
        str | None,
        episode_option(
            metavar="A:B", help="The number of classes (default: up to 16 for the objective labelings, else 4)."
        ),
    ] = None
    shots: Annotated[str, episode_option(metavar="A:B", help="The number of labelled items per class.")] = "1:5"
    annotators: Annotated[str, episode_option(metavar="A:B", help="The number of annotators.")] = "3:7"
    labels_per_item: Annotated[
        str | None, episode_option(metavar="A:B", help="The number of annotators who label each item (default: all).")
    ] = None
    queries: Annotated[
        int | None,
        episode_option(
            min=1, help="The number of items per class in the loss (default: 5 for the objective labelings, else 10)."
        ),
    ] = None
    crowd: Annotated[
        str,
        episode_option(
            metavar="KIND=P,…",
            help="The probability of each kind of simulated annotator: expert, hammer, spammer, flipper, classwise.",
        ),
    ] = "expert=0.1,hammer=0.7,spammer=0.2"
    augment: Annotated[Augment, episode_option(help="photo: mirror and shift images.")] = Augment.NONE


@dataclass(frozen=True)
class RecipeOptions:
    """The other options for the `crowdshot.training.recipe.Recipe`."""

    objective: Annotated[
        Objective,
        training_option(
            help="labelings: a prototypical network on clean labels, which suits the default method; mixture: the"
            " objective of the paper; the others belong to the methods of `crowdshot methods` that need them."
        ),
    ] = Objective.LABELINGS
    clean: Annotated[
        bool,
        training_option(
            "--clean", help="Train on clean labels, without simulated errors. The objective labelings always does so."
        ),
    ] = False
    steps: Annotated[
        Sequence[int],
        FromText(partial(as_numbers, "steps", kind=int)),
        training_option(
            metavar="J[,J…]",
            help="The number of EM steps. Several values are trained side by side, and validation chooses one"
            " (default: 2).",
        ),
    ] = (2,)
    step_size: Annotated[float, training_option(help="The step size of the gradient steps of maml.")] = 0.1
    b: Annotated[
        Sequence[float],
        FromText(partial(as_numbers, "b", kind=float)),
        training_option(
            "--b",
            metavar="B[,B…]",
            help="The weight of equal class probabilities in their prior. Several values are possible, as for --steps"
            " (default: 100).",
        ),
    ] = (100.0,)
    prior: Annotated[
        Prior,
        training_option(
            help="The prior of confusion matrices: the constant of the paper, or one of the learned forms."
        ),
    ] = Prior.PAPER
    iterations: Annotated[int, training_option(min=1, help="The number of iterations.")] = 30_000
    episodes: Annotated[
        int, training_option(min=1, help="The number of episodes per iteration, over all processes.")
    ] = 1
    learning_rate: Annotated[float, training_option(help="The learning rate of Adam.")] = 1e-3
    validate_every: Annotated[int, training_option(min=1, help="Iterations between validations.")] = 1_000
    validation_episodes: Annotated[int, training_option(min=1, help="The number of episodes per validation.")] = 200
    patience: Annotated[
        int, training_option(min=0, help="Stop after this number of validations without improvement; 0: never.")
    ] = 0
    seed: Annotated[int, training_option(help="The random seed: the same seed gives the same result.")] = 0
    cool_down: Annotated[
        float | None,
        training_option(
            help="The share of iterations, at the end, in which the learning rate falls to zero (default: 0.3 for the"
            " objective labelings, else 0)."
        ),
    ] = None


@dataclass(frozen=True)
class Network:
    """The network to train, and where to train it."""

    architecture: Annotated[
        Architecture | None, network_option(help="conv4: for images; mlp: for features.", show_default=False)
    ] = None
    width: Annotated[int, network_option(min=1, help="The number of channels of conv4.")] = 64
    hidden: Annotated[
        Sequence[int],
        FromText(as_layers),
        network_option(metavar="N,N,…|none", help="The sizes of the hidden layers of mlp (default: 128)."),
    ] = (128,)
    embedding: Annotated[int, network_option(min=1, help="The number of outputs of mlp.")] = 64
    precision: Annotated[Precision, network_option(help="The precision of the network; all else is float32.")] = (
        Precision.FLOAT32
    )
    device: Annotated[str, network_option(metavar="auto|cpu|cuda", help="The device to train on.")] = "auto"
    backbone: Annotated[
        Backbone | None,
        network_option(
            help="The frozen network that computed the features. The saved encoder is this network with the trained"
            " layer on top."
        ),
    ] = None


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
    from crowdshot.encoders.networks import choose_device
    from crowdshot.training.distributed import join_world
    from crowdshot.training.encoder_scores import add_scores, best_of
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
    precision = str(network.precision)
    place = choose_device(network.device)
    pool = data.pool.to(place)
    resumed = files.progress.exists()
    if world.leads and world.size == 1 and place.type == "cpu" and not resumed:
        print(warn_time(expected_seconds(jobs, pool, precision), jobs[0]), file=sys.stderr, flush=True)
    began = time.monotonic()
    trained = _run(jobs, pool, files, precision, world, resumed)
    seconds = round(time.monotonic() - began, 2)
    scored: Scored | None = None
    if trained is not None:
        kept = [best_of(trained[: len(candidates)]), *trained[len(candidates) :]]
        add_scores(kept, pool, *split[1:])
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
    from crowdshot.io.atomic import check_writable, remove_leftovers
    from crowdshot.training import encoder_scores

    if prepare:
        for file in (files.out, files.progress, files.history, *([files.rival] if files.rival else [])):
            check_writable(file)
            remove_leftovers(file.absolute())
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
    architecture = None if network.architecture is None else str(network.architecture)
    encoder = fresh_encoder(data.input, architecture, network.width, network.hidden, network.embedding, seed)
    if isinstance(encoder.module, MLP) and not network.hidden:
        examples = data.pool.take(learned_from).all_examples().float()
        start_principal(encoder.module, examples, START[recipe.objective])
    encoder.card |= _card(data, split, str(network.precision), command)
    return Job(encoder, learned_from, validated_on, recipe)


def _save(trained: Sequence[Encoder], files: TrainingFiles, network: Network) -> None:
    from crowdshot.encoders.encoder_files import on_backbone, save_encoder

    paths = [files.out] if files.rival is None else [files.out, files.rival]
    for path, encoder in zip(paths, trained, strict=True):
        save_encoder(on_backbone(encoder) if network.backbone else encoder, path)
    files.progress.unlink(missing_ok=True)


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


@flat
def train(
    files: TrainingFiles,
    shape: ShapeOptions,
    how: RecipeOptions,
    network: Network,
    as_json: AsJson = False,
) -> None:
    """Meta-train an encoder on classes with clean labels.

    Training solves many small problems (episodes), drawn from these classes. From a range like 1:5, a number is drawn
    for every episode. If training is interrupted, repeat the same command to continue.
    """
    for_labelings = how.objective is Objective.LABELINGS
    recipe, *others = recipes(shape, how)
    fewer = for_labelings and shape.ways is None
    result = train_encoder(files, recipe, network, others=others, fewer_labelings=fewer, command=sys.argv[1:])
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
    return sweep(recipe, steps=how.steps, b=how.b)
