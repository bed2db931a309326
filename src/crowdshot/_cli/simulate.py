"""``crowdshot simulate``: simulate annotators and write labels.csv, truth.csv and annotators.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from crowdshot._cli.console import print_result
from crowdshot._cli.option_values import as_names, as_shares
from crowdshot._cli.options import AsJson, Folder, Overwrite, Seed, crowd_option
from crowdshot.errors import CrowdshotError, Use
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crowdshot._cli.inputs import Output
    from crowdshot.report.summary import Result


AT_ONCE = 20_000_000  # items × annotators × classes that are drawn together


@dataclass(frozen=True)
class Sizes:
    """The sizes of a simulated data set; all annotators label each item if ``labels_per_item`` is None."""

    items: int
    classes: int
    annotators: int
    labels_per_item: int | None = None


def simulate_kinds(output: Output, sizes: Sizes, crowd: Mapping[str, float], seed: int = 0) -> Result:
    """Simulate annotators of a few kinds with independent errors; classes have (nearly) equal sizes."""
    import numpy as np
    import torch

    from crowdshot.io.atomic import check_folder
    from crowdshot.training import default_settings
    from crowdshot.training import simulated_annotators as simulation

    check_folder(output.out, output.overwrite)
    generator = torch.Generator().manual_seed(seed)
    drawn = simulation.draw_annotators(sizes.annotators, sizes.classes, crowd, generator=generator)
    truth = (torch.arange(sizes.items) % sizes.classes)[torch.randperm(sizes.items, generator=generator)]
    draw_labels = partial(
        simulation.draw_labels, confusion=drawn.confusion, labels_per_item=sizes.labels_per_item, generator=generator
    )
    block = max(1, AT_ONCE // (sizes.annotators * sizes.classes))
    triples: list[NDArray[np.int64]] = []
    with progress("drawing labels") as tick:
        for start in range(0, sizes.items, block):
            triples.append(_triples(draw_labels(truth[start : start + block]).numpy(), start))
            tick(start + len(truth[start : start + block]), sizes.items)
    accuracy = drawn.confusion.diagonal(dim1=-2, dim2=-1).mean(-1).numpy()
    people = {"kind": [default_settings.KINDS[kind] for kind in drawn.kind.tolist()], "accuracy": accuracy}
    return _write(output, sizes, np.concatenate(triples, axis=1), truth.numpy(), people)


def simulate_world(output: Output, sizes: Sizes, without: Sequence[str] = (), seed: int = 0) -> Result:
    """Draw one crowd of the `World` that the label model is trained on: correlated errors, classes of any size."""
    import numpy as np
    import torch

    from crowdshot.io.atomic import check_folder
    from crowdshot.training.simulated_crowds import World, draw

    check_folder(output.out, output.overwrite)
    per_item = sizes.labels_per_item or sizes.annotators
    world = World()
    for ingredient in ("many-labels", "complete", *without):
        world = world.without(ingredient)
    world = replace(
        world,
        classes=(sizes.classes,),
        items=(sizes.items + 0.5,) * 2,  # the world rounds down
        annotators=(sizes.annotators + 0.5,) * 2,
        labels_an_item=(per_item, per_item),
        equal_classes=0.0,
    )
    crowd = draw(world, 1, torch.Generator().manual_seed(seed))
    triples, truth = torch.stack([crowd.item, crowd.annotator, crowd.label]).numpy(), crowd.truth.numpy()
    right, n = (np.bincount(triples[1], w, sizes.annotators) for w in (triples[2] == truth[triples[0]], None))
    accuracy = np.divide(right, n, out=np.full(sizes.annotators, np.nan), where=n > 0)
    return _write(output, sizes, triples, truth, {"accuracy": accuracy})


def _write(
    output: Output, sizes: Sizes, triples: NDArray[np.int64], truth: NDArray[np.int64], people: Mapping[str, Any]
) -> Result:
    """Write triples (3, L) of items, annotators and labels, the truth (N,) and columns of annotators."""
    import numpy as np
    import pandas as pd

    from crowdshot.io.atomic import csv_writers, write_folder
    from crowdshot.report.summary import CrowdCounts, Result

    item, annotator, label = triples
    names = [
        np.array([f"{word}-{i + 1:0{len(str(size))}d}" for i in range(size)], dtype=object)
        for word, size in (("item", sizes.items), ("annotator", sizes.annotators), ("class", sizes.classes))
    ]
    tables = {
        "labels": pd.DataFrame({"item": names[0][item], "annotator": names[1][annotator], "label": names[2][label]}),
        "truth": pd.DataFrame({"item": names[0], "truth": names[2][truth]}),
        "annotators": pd.DataFrame({"annotator": names[1], **people}),
    }
    files = write_folder(output.out, csv_writers(tables), output.overwrite)
    counts = CrowdCounts(sizes.items, sizes.annotators, len(label), names[2].tolist())
    return Result(counts=counts, left_out={}, files=files)


def _triples(labels: NDArray[np.int64], first_item: int) -> NDArray[np.int64]:
    """Return the triples (3, L) of items, annotators and labels in a matrix of labels (n, R)."""
    import numpy as np

    item, annotator = np.nonzero(labels >= 0)
    return np.stack([item + first_item, annotator, labels[item, annotator]])


EXAMPLES = """\b
Examples:
  crowdshot simulate --items 40 --annotators 7 --crowd hammer=0.8,spammer=0.2 --out simulated
  crowdshot aggregate simulated/labels.csv
  crowdshot simulate --items 500 --annotators 40 --labels-per-item 3 --crowd world --without copies --out odd
"""


def simulate(
    out: Folder,
    items: Annotated[int, crowd_option(min=1, help="The number of items.")] = 40,
    classes: Annotated[int, crowd_option(min=2, help="The number of classes.")] = 4,
    annotators: Annotated[int, crowd_option(min=1, help="The number of annotators.")] = 5,
    crowd: Annotated[
        str,
        crowd_option(
            "--crowd",
            "--mixture",  # its name in 0.1.0
            metavar="KIND=P,…|world",
            help="The probability of each kind of annotator: expert, hammer, spammer, flipper, classwise. world:"
            " annotators with correlated errors, as the label model is trained on (docs/research/inference.md).",
        ),
    ] = "expert=0.1,hammer=0.7,spammer=0.2",
    without: Annotated[
        str | None,
        crowd_option(metavar="NAME,…", help="Ingredients to leave out of --crowd world, like spammers,copies."),
    ] = None,
    labels_per_item: Annotated[
        int | None, crowd_option(min=1, help="The number of annotators who label each item (default: all).")
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Simulate annotators and their labels, to try things out.

    Writes labels.csv, truth.csv and annotators.csv.
    """
    from crowdshot._cli.inputs import Output
    from crowdshot.training.default_settings import KINDS

    sizes = Sizes(items, classes, annotators, labels_per_item)
    output = Output(out, overwrite)
    if crowd == "world":
        left_out = [] if without is None else as_names("without", without, like="spammers,copies")
        result = simulate_world(output, sizes, left_out, seed)
    elif without is not None:
        message = f"is {without}, but only the crowd 'world' has ingredients"
        raise CrowdshotError(message, argument="without", found=without, hint=Use(crowd="world"))
    else:
        result = simulate_kinds(output, sizes, as_shares("crowd", crowd, KINDS), seed)
    print_result(result, as_json)
