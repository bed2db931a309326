"""What ``crowdshot train`` does: a source, a recipe and a network's size -> an encoder in a file, safe to interrupt."""

from __future__ import annotations

import glob
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from crowdshot import evaluation, lite0
from crowdshot.devices import choose_device
from crowdshot.distributed import join_world
from crowdshot.encoders import MLP, Encoder, build_encoder, save_encoder
from crowdshot.episodes import ClassPool
from crowdshot.errors import CrowdshotError
from crowdshot.features import FeatureInput
from crowdshot.formats import read_labels
from crowdshot.images import ImageInput
from crowdshot.recipes import Recipe
from crowdshot.results import check_file
from crowdshot.sources import Source, open_source
from crowdshot.training import Job, train
from crowdshot.training_log import TrainingLog

Report = dict[str, Any]

START = {"mixture": 16.0, "prototypical": 16.0, "lnl": 1.0, "maml": 256.0}
"""Mean squared norm of the embeddings that a linear layer starts with: the best of 1, 4, 16, 64, … on validation.

Prototypes do not mind. Where embeddings are long, LNL, whose weights go by exp(-distance), hears one item of a class;
where they are short, MAML's few steps lead nowhere.
"""
SMALLEST = 16  # pixels a side: Conv4 halves them four times


def train_encoder(
    source: str,
    out: Path,
    recipe: Recipe,
    *,
    others: Sequence[Recipe] = (),
    fewer_ways: bool = False,
    annotations: Path | None = None,
    image_size: int | None = None,
    rotate_classes: bool = False,
    terms: str | None = None,
    architecture: str | None = None,
    width: int = 64,
    hidden: Sequence[int] = (128,),
    embedding: int = 64,
    precision: str = "float32",
    device: str = "auto",
    checkpoint: Path | None = None,
    checkpoint_every: int | None = None,
    validation_classes: int | None = None,
    test_classes: int = 0,
    rival: Path | None = None,
    backbone: str | None = None,
    command: Sequence[str] = (),
) -> Report:
    """Train one encoder on a source (`crowdshot.sources`) and save it, with a card that says how it came about.

    ``others`` are further recipes, which differ in what a stack allows (say J or b): all are trained side by side, and
    the one with the best validation accuracy is kept. ``fewer_ways`` lets episodes have fewer classes than the recipe
    says, where the source has not so many. With ``test_classes``, classes that training never touches, the
    card also has accuracies on these by shots and annotators. ``rival`` is where a prototypical network goes, trained
    beside it on the same classes with clean labels: what the encoder should be compared with. ``backbone`` "lite0" says
    that the features are EfficientNet-Lite0's: what is saved then takes images and is that network with the trained
    linear layer on top.

    Under torchrun, every process is to call this; the first one writes. An interrupted run (``"interrupted"`` in the
    report) goes on when it is started again in the same way. ``command`` is what the user typed, for the card.
    """
    world = join_world()
    recipe = replace(recipe, episodes=max(recipe.episodes, world.size))  # one each, at least
    checkpoint = checkpoint or out.with_name(f"{out.name}.checkpoint")
    history = out.with_name(f"{out.stem}.history.csv")
    if world.leads:
        for file in (out, checkpoint, history, *([rival] if rival else [])):
            check_writable(file)
            _remove_rests(file)
    if 0 < test_classes < evaluation.WAYS:
        raise CrowdshotError(f"test_classes: found {test_classes}, expected 0, or {evaluation.WAYS} or more")
    if backbone is not None and hidden:
        raise CrowdshotError("backbone: found hidden layers, expected a single linear layer on top; --hidden none")
    needed = recipe.shots[1] + recipe.queries
    if test_classes:
        needed = max(needed, evaluation.EXAMPLES)
    place = choose_device(device)
    labels = None if annotations is None else read_labels(annotations).annotations
    data = open_source(
        source,
        image_size=image_size,
        at_least=needed,
        rotate_classes=rotate_classes,
        annotations=labels,
        terms=terms,
    )
    if fewer_ways:
        most = max(2, min(recipe.ways[1], data.most_ways(validation_classes, test_classes)))
        ways = (min(recipe.ways[0], most), most)
        recipe, *others = (replace(each, ways=ways) for each in (recipe, *others))
    learned_from, validated_on, tested_on = data.split(recipe.ways[1], recipe.seed, validation_classes, test_classes)
    candidates = [replace(each, episodes=recipe.episodes) for each in (recipe, *others)]
    rivals = [] if rival is None else [replace(recipe, objective="prototypical", pseudo_annotation=False)]
    jobs = []
    for each in (*candidates, *rivals):
        encoder = fresh_encoder(data.input, architecture, width, hidden, embedding, recipe.seed)
        if isinstance(encoder.module, MLP) and not hidden:
            start_principal(encoder.module, data.pool.take(learned_from), START[each.objective])
        encoder.card |= _card(data, learned_from, validated_on, tested_on, precision, command)
        jobs.append(Job(encoder, learned_from, validated_on, each))
    pool = data.pool.to(place)
    log = TrainingLog(history, resumed=checkpoint.exists()) if world.leads else None
    began = time.monotonic()
    try:
        with interruptions() as interrupted:
            trained = train(
                jobs,
                pool,
                precision=precision,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
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
        if len(validated_on) >= evaluation.WAYS and pool.smallest >= evaluation.EXAMPLES:
            for encoder in kept:
                if encoder.card["recipe"]["objective"] == "prototypical":
                    validation = evaluation.embedded(pool.take(validated_on), encoder)
                    encoder.card["labelings"] = evaluation.best_labelings(validation)
        if tested_on:
            _add_test_scores(kept, pool.take(tested_on), Path(source).stem)
        scores = kept[0].card["scores"]
        report |= {"validation_accuracy": scores["validation_accuracy"], "scores": scores}
        if world.leads:
            for place_of, encoder in zip([out] if rival is None else [out, rival], kept, strict=True):
                save_encoder(on_backbone(encoder) if backbone else encoder, place_of)
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


def _add_test_scores(trained: Sequence[Encoder], pool: ClassPool, source: str) -> None:
    """Accuracy on classes that training never touched; the same episodes and labels for all. The paper's beside it."""
    for encoder in trained:
        card = encoder.card
        card["scores"]["test"] = evaluation.unseen_scores(encoder, pool)
        if "labelings" in card:  # the default method is what it will be used with
            classify = evaluation.by_labelings(card["labelings"])
            card["scores"]["test by Labelings"] = evaluation.score_table(evaluation.embedded(pool, encoder), classify)
    for encoder in trained[1:]:
        trained[0].card["scores"]["test of a prototypical network with soft votes"] = encoder.card["scores"]["test"]
    trained[0].card["scores"] |= evaluation.paper_scores(source)


def tell(report: Report) -> str:
    """The report for a person."""
    if report["interrupted"]:
        return f"interrupted; the same command goes on from {report['files'][0]}"
    diverged = report["scores"].get("diverged_at_step")
    lines = [f"validation accuracy {report['validation_accuracy']:.4f}"] if report["validation_accuracy"] else []
    lines += [f"diverged at step {diverged:,}: these are the best weights before"] if diverged else []
    return "\n".join([*lines, *report["files"]])


def fresh_encoder(
    fed: ImageInput | FeatureInput,
    architecture: str | None = None,
    width: int = 64,
    hidden: Sequence[int] = (128,),
    embedding: int = 64,
    seed: int = 0,
) -> Encoder:
    """Conv4 of ``width`` channels for images; for feature vectors an MLP with ``embedding`` numbers out."""
    suits = "conv4" if isinstance(fed, ImageInput) else "mlp"
    if architecture not in (None, suits):
        raise CrowdshotError(f"architecture: found {architecture}, but the source holds {fed.describe()}; use {suits}")
    arguments: dict[str, Any]
    if isinstance(fed, ImageInput):
        if min(fed.size) < SMALLEST:
            raise CrowdshotError(f"image_size: found {min(fed.size)}, expected {SMALLEST} or more")
        arguments = {"channels": fed.channels, "width": width}
    else:
        arguments = {"n_features": fed.n_features, "hidden": list(hidden), "n_out": embedding}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_encoder(suits, arguments, fed)


@torch.no_grad()
def start_principal(module: MLP, pool: ClassPool, norm: float) -> None:
    """Start a single linear layer as the features' principal components, brought to that mean squared norm.

    From random weights, training on few classes forgets more of what a good network knows than it learns.
    """
    real = torch.arange(pool.examples.shape[1]) < pool.counts[:, None]
    features = pool.examples[real].float()
    (layer,) = (part for part in module.layers if isinstance(part, nn.Linear))
    mean = features.mean(0)
    _, vectors = torch.linalg.eigh((features - mean).mT @ (features - mean))
    components = vectors.flip(1)[:, : layer.out_features].mT  # the largest first
    if len(components) < layer.out_features:
        raise CrowdshotError(
            f"embedding: found {layer.out_features}, expected at most the {layer.in_features} features of the source"
        )
    components = components * (norm / ((features - mean) @ components.mT).square().sum(-1).mean()).sqrt()
    layer.weight.copy_(components)
    layer.bias.copy_(-components @ mean)


def on_backbone(encoder: Encoder) -> Encoder:
    """A linear layer that was trained on EfficientNet-Lite0's features, as an encoder of images."""
    assert isinstance(encoder.module, MLP)
    layer, fed = encoder.module.layers[0].state_dict(), encoder.input
    images = ImageInput((lite0.SIDE, lite0.SIDE), 3, mean=lite0.MEAN, std=lite0.STD)
    state = {f"head.{name}": value for name, value in layer.items()}
    if isinstance(fed, FeatureInput) and fed.mean:
        state |= {"body.mean": torch.tensor(fed.mean), "body.std": torch.tensor(fed.std)}
    arguments = {"n_out": len(layer["bias"]), "standardised": "body.mean" in state}
    head = build_encoder("lite0", arguments, images, encoder.card)
    head.module.load_state_dict(state)
    return head


def told_command(arguments: Sequence[str]) -> str:
    """A command line for a card: what was typed, but files by their names alone."""

    def bare(word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        return f"{option}{equals}{Path(value).name if os.sep in value else value}"

    return shlex.join(["crowdshot", *map(bare, arguments)]) if arguments else ""


def _ignore(*_: Any) -> None:
    pass


def _card(
    data: Source,
    learned_from: list[int],
    validated_on: list[int],
    tested_on: list[int],
    precision: str,
    command: Sequence[str],
) -> Report:
    return {
        "command": told_command(command),
        "trained_on": f"{data.description['classes']:,} classes of {data.description['name']}",
        "source": {
            **data.description,
            "learned_from": len(learned_from),
            "validated_on": len(validated_on),
            "tested_on": len(tested_on),
        },
        "precision": precision,
    }


# ---- safety ---------------------------------------------------------------------------------------------------------


def check_writable(file: Path) -> None:
    """Before hours of work: can this file be written? By trying, because only that tells."""
    check_file(file)
    try:
        with tempfile.TemporaryFile(dir=file.absolute().parent):
            pass
    except OSError as error:
        raise CrowdshotError(
            f"{file} cannot be written to the folder {file.absolute().parent} ({error.strerror or error})."
        ) from None


def _remove_rests(file: Path) -> None:
    """What a run that was killed while it wrote has left behind."""
    for rest in glob.glob(f".{glob.escape(file.name)}.*.tmp", root_dir=file.absolute().parent, include_hidden=True):
        with suppress(OSError):
            file.with_name(rest).unlink()


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C or SIGTERM is only noted; a second one has its usual effect."""
    noted = False
    usual: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        nonlocal noted
        noted = True
        signal.signal(number, usual[number])

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not in the main thread
                usual[number] = signal.signal(number, note)
        yield lambda: noted
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)
