"""The systems that the paper compares with, and this project's own, behind one contract; the registry of them.

    from crowdshot.methods import METHODS, CrowdEpisodes
    probabilities = METHODS["LRDS"].predict(CrowdEpisodes(support, labels, query, n_classes), C=0.1)

One family a file; its docstring is the method's page: where it comes from, its idea, what the paper left open.

>>> import torch
>>> from crowdshot import METHODS
>>> from crowdshot.methods import CrowdEpisodes
>>> support = torch.tensor([[[0.0], [0.2], [5.0], [5.1]]])  # one episode of four items
>>> labels = torch.tensor([[[0, 0, 1], [0, -1, 0], [1, 1, 1], [1, 1, 0]]])  # of three annotators, -1 = no label
>>> METHODS["LRDS"].predict(CrowdEpisodes(support, labels, torch.tensor([[[0.1], [5.2]]]), 2), C=0.1).argmax(-1)
tensor([[0, 1]])
"""

from __future__ import annotations

from dataclasses import replace

from crowdshot.errors import CrowdshotError
from crowdshot.methods.contract import Candidate, CrowdEpisodes, Method, Needs, grid, later
from crowdshot.methods.outside import ALSO_TAKEN, Registry

__all__ = ["BUILT_IN", "METHODS", "Candidate", "CrowdEpisodes", "Method", "Needs", "find"]

PROTOTYPICAL = Needs("prototypical")
WIDE = Needs("prototypical", wide=True)
MAML = Needs("maml", by=("step_size",))
STEPS = (1, 2, 3, 4, 5, 10)  # of EM; these and what follows are the paper's candidates
ITERATIONS = (10, 100, 300)  # of fine-tuning
STEP_SIZES = (1e-2, 1e-1, 1.0)  # of MAML
COSTS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TREES = (10, 50, 100, 200)
BASES = (5, 10, 20)
MIXTURE = {"steps": 2, "b": 100.0, "tau": 1.0, "c": 1.0, "centred": False}

MAP_EM = later("ours", "map_em")

_METHODS = [
    Method(
        "Labelings",
        "an average over the most probable true labels of the labelled items, on meta-learned embeddings",
        later("labelings", "average"),
        grid(scale=(10.0, 20.0, 40.0), tau=(0.15, 0.5, 1.5)),
        {"scale": 20.0, "tau": 0.5, "width": 32},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "Learned",
        "labels by an inference that learned from crowds, and looks as far as they foretell labels",
        later("learned", "by_looks"),
        ({},),
        {},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "Both",
        "Labelings and Learned, each believed in part, where the search foretells hidden labels as well",
        later("both", "pooled"),
        grid(scale=(10.0, 20.0, 40.0), tau=(0.15, 0.5, 1.5)),
        {"scale": 20.0, "tau": 0.5, "width": 32},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "Ours",
        "a mixture of Gaussians with a confusion matrix for each annotator, on meta-learned embeddings",
        MAP_EM,
        grid(steps=STEPS, b=(1.0, 10.0, 100.0)),
        MIXTURE,
        Needs("mixture", pseudo_annotation=True, by=("steps", "b")),
        on_embeddings=True,
    ),
    Method(
        "LRMV",
        "logistic regression on the items as they are, labels by majority vote",
        later("regression", "logistic_regression"),
        grid(C=COSTS),
        {"C": 1.0},
    ),
    Method(
        "LRDS",
        "logistic regression on the items as they are, labels by Dawid–Skene",
        later("regression", "logistic_regression"),
        grid(steps=STEPS, C=COSTS),
        {"steps": 2, "C": 1.0, "hard": False},
    ),
    Method(
        "RFMV",
        "a random forest on the items as they are, labels by majority vote",
        later("forest", "random_forest"),
        grid(trees=TREES),
        {"trees": 200},
    ),
    Method(
        "RFDS",
        "a random forest on the items as they are, labels by Dawid–Skene",
        later("forest", "random_forest"),
        grid(steps=STEPS, trees=TREES),
        {"steps": 2, "trees": 200, "hard": False},
    ),
    Method(
        "PrMV",
        "distances to class averages of embeddings, labels by majority vote",
        later("prototypes", "prototypical"),
        ({},),
        {},
        PROTOTYPICAL,
        on_embeddings=True,
    ),
    Method(
        "PrDS",
        "distances to class averages of embeddings, weighted by Dawid–Skene",
        later("prototypes", "prototypical"),
        grid(steps=STEPS),
        {"steps": 2, "hard": False},
        PROTOTYPICAL,
        on_embeddings=True,
    ),
    Method(
        "PrSV",
        "distances to class averages of embeddings, every label counting alike",
        later("prototypes", "soft_prototypical"),
        ({},),
        {},
        PROTOTYPICAL,
        on_embeddings=True,
    ),
    Method(
        "MaMV",
        "three gradient steps from meta-learned weights (MAML), labels by majority vote",
        later("maml", "maml"),
        grid(step_size=STEP_SIZES),
        {"step_size": 0.1, "gradient_steps": 3},
        MAML,
    ),
    Method(
        "MaDS",
        "three gradient steps from meta-learned weights (MAML), labels by Dawid–Skene",
        later("maml", "maml"),
        grid(steps=STEPS, step_size=STEP_SIZES),
        {"steps": 2, "step_size": 0.1, "gradient_steps": 3, "hard": False},
        MAML,
    ),
    Method(
        "CL",
        "a network from scratch with a layer for each annotator (crowd layer)",
        later("crowd_layer", "crowd_layer_from_scratch"),
        grid(iterations=ITERATIONS),
        {"iterations": 300},
    ),
    Method(
        "MCL",
        "the crowd layer on a meta-learned encoder",
        later("crowd_layer", "crowd_layer"),
        grid(iterations=ITERATIONS),
        {"iterations": 300, "frozen": False},
        PROTOTYPICAL,
    ),
    Method(
        "CNAL",
        "a network from scratch with common and individual confusions (CoNAL)",
        later("conal", "common_noise_from_scratch"),
        grid(iterations=ITERATIONS),
        {"iterations": 300},
    ),
    Method(
        "MCNAL",
        "CoNAL on a meta-learned encoder",
        later("conal", "common_noise"),
        grid(iterations=ITERATIONS),
        {"iterations": 300, "frozen": False},
        PROTOTYPICAL,
    ),
    Method(
        "LF",
        "a network from scratch that corrects and weighs labels item by item (label fusion)",
        later("label_fusion", "label_fusion_from_scratch"),
        grid(bases=BASES, iterations=ITERATIONS),
        {"bases": 10, "iterations": 300},
    ),
    Method(
        "MLF",
        "label fusion on a meta-learned encoder",
        later("label_fusion", "label_fusion"),
        grid(bases=BASES, iterations=ITERATIONS),
        {"bases": 10, "iterations": 300, "frozen": False},
        PROTOTYPICAL,
    ),
    Method(
        "LNL",
        "class averages that listen less to items far from the rest of their noisy class",
        later("lnl", "similarity_weighted"),
        grid(sharpness=(0.25, 0.5, 1.0, 2.0)),
        {"sharpness": 1.0},
        Needs("lnl", pseudo_annotation=True),
        on_embeddings=True,
    ),
    Method(
        "w/o PA",
        "Ours with an encoder that has not met simulated annotators",
        MAP_EM,
        grid(steps=STEPS),
        MIXTURE,
        PROTOTYPICAL,
        on_embeddings=True,
    ),
]

BUILT_IN: dict[str, Method] = {method.name: method for method in _METHODS}
"""The paper's name of each system -> the system. "w/ PA" are those whose encoder met simulated annotators."""

for _name in ("PrMV", "PrDS", "MaMV", "MaDS", "MCL", "MCNAL"):
    _plain = BUILT_IN[_name]
    assert _plain.needs is not None
    BUILT_IN[f"{_name} w/ PA"] = replace(
        _plain,
        name=f"{_name} w/ PA",
        summary=f"{_plain.summary}; encoder meta-trained with simulated annotators",
        needs=replace(_plain.needs, pseudo_annotation=True),
    )

METHODS = Registry(BUILT_IN)
"""The same, and those that other packages add by entry points (`crowdshot.methods.outside`)."""


def find(name: str) -> Method:
    """By name, in capitals or not."""
    by_name = {known.lower(): known for known in BUILT_IN}
    if str(name).lower() not in by_name:
        by_name = {known.lower(): known for known in METHODS}
    if str(name).lower() not in by_name:
        raise CrowdshotError(f"method is {name!r}, expected {', '.join((*ALSO_TAKEN, *METHODS))}.")
    return METHODS[by_name[str(name).lower()]]
