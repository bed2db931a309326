"""What ``crowdshot train`` does: a source, a recipe and a network's size -> an encoder in a file, safe to interrupt."""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import distributed as dist

from crowdshot.commands.given import USUAL_NETWORK, Network, TrainingFiles
from crowdshot.encoders.architectures import MLP
from crowdshot.encoders.devices import choose_device
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.fresh import START, fresh_encoder, on_backbone, start_principal
from crowdshot.encoders.saved import save_encoder
from crowdshot.episodes.pools import ClassPool
from crowdshot.episodes.sources import TrainingData, open_source
from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import check_writable
from crowdshot.labels.formats import read_labels
from crowdshot.methods import scoring
from crowdshot.paper.plan import estimates, published
from crowdshot.training.history import TrainingLog
from crowdshot.training.job import Job
from crowdshot.training.loop import train
from crowdshot.training.pace import expected_seconds
from crowdshot.training.processes import _ignore, interruptions, join_world
from crowdshot.training.recipe import Recipe
from crowdshot.wording import retold

Report = dict[str, Any]
LONG = 600  # seconds, from which on other ways are told of
#: A source's name -> what the paper's figures for it (its Table 1) are called on a card.
TITLES = {
    "omniglot": "the paper, Omniglot",
    "tiny-imagenet-100": "the paper, miniImageNet (other images)",
}


def train_encoder(
    files: TrainingFiles,
    recipe: Recipe,
    network: Network = USUAL_NETWORK,
    *,
    others: Sequence[Recipe] = (),
    fewer_ways: bool = False,
    command: Sequence[str] = (),
) -> Report:
    """Train one encoder on a source and save it, with a card that says how it came about.

    ``others`` are further recipes, which differ in what a stack allows (say J or b): all are trained side by side, and
    the one with the best validation accuracy is kept. ``fewer_ways`` lets episodes have fewer classes than the recipe
    says, where the source has not so many.

    Under torchrun, every process is to call this; the first one writes. An interrupted run (``"interrupted"`` in the
    report) goes on when it is started again in the same way. ``command`` is what the user typed, for the card.
    """
    world = join_world()
    recipe = replace(recipe, episodes=max(recipe.episodes, world.size))  # one each, at least
    out, checkpoint, history, rival = files.out, files.progress, files.history, files.rival
    if world.leads:
        for file in (out, checkpoint, history, *([rival] if rival else [])):
            check_writable(file)
            _remove_rests(file)
    if 0 < files.test_classes < scoring.WAYS:
        raise CrowdshotError(f"test_classes is {files.test_classes}, expected 0, or {scoring.WAYS} or more.")
    if network.backbone is not None and network.hidden:
        raise CrowdshotError(
            f"hidden is {list(network.hidden)}, expected none, as a backbone has one linear layer on top."
        )
    needed = recipe.shots[1] + recipe.queries
    if files.test_classes:
        needed = max(needed, scoring.EXAMPLES)
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
    if fewer_ways:
        most = max(2, min(recipe.ways[1], data.most_ways(files.validation_classes, files.test_classes)))
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
        print(tell_time(expected_seconds(jobs, pool, network.precision), jobs[0]), file=sys.stderr, flush=True)
    log = TrainingLog(history, resumed=checkpoint.exists()) if world.leads else None
    began = time.monotonic()
    try:
        with interruptions() as interrupted:
            trained = train(
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
        if len(validated_on) >= scoring.WAYS and pool.smallest >= scoring.EXAMPLES:
            for encoder in kept:
                if encoder.card["recipe"]["objective"] == "prototypical":
                    validation = scoring.embedded(pool.take(validated_on), encoder)
                    encoder.card["labelings"] = scoring.best_labelings(validation)
        if tested_on:
            _add_test_scores(kept, pool.take(tested_on), Path(files.source).stem)
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


def _add_test_scores(trained: Sequence[Encoder], pool: ClassPool, source: str) -> None:
    """Accuracy on classes that training never touched; the same episodes and labels for all. The paper's beside it."""
    for encoder in trained:
        card = encoder.card
        card["scores"]["test"] = scoring.unseen_scores(encoder, pool)
        if "labelings" in card:  # the default method is what it will be used with
            classify = scoring.by_labelings(card["labelings"])
            card["scores"]["test by Labelings"] = scoring.score_table(scoring.embedded(pool, encoder), classify)
    for encoder in trained[1:]:
        trained[0].card["scores"]["test of a prototypical network with soft votes"] = encoder.card["scores"]["test"]
    trained[0].card["scores"] |= paper_scores(source)


def paper_scores(source: str) -> dict[str, dict[str, float]]:
    """The paper's figures beside an encoder's own, where it reports any for such a source."""
    if source not in TITLES:
        return {}
    theirs = published.figures("main", source).query("method == 'Ours'").set_index(["n_support", "n_annotators"])
    table = {
        scoring.cell_name(shots, annotators): float(theirs.loc[(shots * scoring.WAYS, annotators), "accuracy"])
        for shots in scoring.SHOTS
        for annotators in scoring.ANNOTATORS
    }
    return {TITLES[source]: {**table, "average": round(sum(table.values()) / len(table), 4)}}


def tell_time(seconds: float, job: Job) -> str:
    """How long it will take on this CPU, before it begins, and what takes less where that is long."""
    time = f"{job.recipe.iterations:,} iterations of {job.encoder.architecture} take {estimates.told(seconds)}"
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
        "command": retold(command) if command else "",
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
