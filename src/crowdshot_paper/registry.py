"""List the systems that the paper compares with, and further variants that the experiments use.

    from crowdshot.methods import METHODS, CrowdEpisodes
    probabilities = METHODS["LRDS"].predict(CrowdEpisodes(support, labels, query, n_classes), C=0.1)

Each module of `crowdshot_paper.compared` implements one family; its docstring describes the methods.

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

from crowdshot.methods import METHODS, PROTOTYPICAL, STEPS, WIDE, Method, Needs, Predict, grid
from crowdshot.methods import later as later_in

MAML = Needs("maml", by=("step_size",))
ITERATIONS = (10, 100, 300)  # of fine-tuning; these and the following values are the paper's candidates
STEP_SIZES = (1e-2, 1e-1, 1.0)  # of MAML
COSTS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TREES = (10, 50, 100, 200)
BASES = (5, 10, 20)


def later(family: str, function: str) -> Predict:
    """Return a function of `crowdshot_paper.compared` that is imported when first called."""
    return later_in(f"crowdshot_paper.compared.{family}", function)


_METHODS = [
    Method(
        "LRMV",
        "logistic regression on the raw items, labels by majority vote",
        later("regression", "logistic_regression"),
        grid(C=COSTS),
        {"C": 1.0},
    ),
    Method(
        "LRDS",
        "logistic regression on the raw items, labels by Dawid–Skene",
        later("regression", "logistic_regression"),
        grid(steps=STEPS, C=COSTS),
        {"steps": 2, "C": 1.0, "hard": False},
    ),
    Method(
        "RFMV",
        "a random forest on the raw items, labels by majority vote",
        later("forest", "random_forest"),
        grid(trees=TREES),
        {"trees": 200},
    ),
    Method(
        "RFDS",
        "a random forest on the raw items, labels by Dawid–Skene",
        later("forest", "random_forest"),
        grid(steps=STEPS, trees=TREES),
        {"steps": 2, "trees": 200, "hard": False},
    ),
    Method(
        "PrMV",
        "distances to class averages of embeddings, labels by majority vote",
        later("prototypical", "prototypical"),
        ({},),
        {},
        PROTOTYPICAL,
        on_embeddings=True,
    ),
    Method(
        "PrDS",
        "distances to class averages of embeddings, weighted by Dawid–Skene",
        later("prototypical", "prototypical"),
        grid(steps=STEPS),
        {"steps": 2, "hard": False},
        PROTOTYPICAL,
        on_embeddings=True,
    ),
    Method(
        "PrSV",
        "distances to class averages of embeddings, weighted by soft votes",
        later("prototypical", "soft_prototypical"),
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
        "class averages with lower weight for items far from the rest of their noisy class",
        later("lnl", "similarity_weighted"),
        grid(sharpness=(0.25, 0.5, 1.0, 2.0)),
        {"sharpness": 1.0},
        Needs("lnl", pseudo_annotation=True),
        on_embeddings=True,
    ),
]

COMPARED: dict[str, Method] = {method.name: method for method in _METHODS}
"""The compared systems by their names in the paper. "w/ PA": the encoder was trained with simulated annotators."""

for _name in ("PrMV", "PrDS", "MaMV", "MaDS", "MCL", "MCNAL"):
    _plain = COMPARED[_name]
    assert _plain.needs is not None
    COMPARED[f"{_name} w/ PA"] = replace(
        _plain,
        name=f"{_name} w/ PA",
        summary=f"{_plain.summary}; encoder meta-trained with simulated annotators",
        needs=replace(_plain.needs, pseudo_annotation=True),
    )

_LIBRARY = {name: METHODS.data[name] for name in ("labeling-search", "features", "combined", "Ours", "w/o PA")}
_PLAIN = {name: method for name, method in COMPARED.items() if not name.endswith("w/ PA")}
BUILT_IN: dict[str, Method] = {
    **{name: method for name, method in _LIBRARY.items() if name != "w/o PA"},
    **_PLAIN,
    "w/o PA": _LIBRARY["w/o PA"],
}
BUILT_IN |= COMPARED
"""All methods of this project, in the order of the tables."""

METHODS.data.update(COMPARED)  # for a source tree that is not installed and therefore has no entry points


# ---- variants and upper bounds ----
#
# The labeling search and its closest competitors with each other's encoders separate the effect of the inference from
# that of the encoder. "Ours wide" has an encoder trained by the same recipe as theirs. The upper bounds (`ceilings`)
# know the truth.


def _with(name: str, kind: str, needs: Needs) -> Method:
    plain = BUILT_IN[name]
    return replace(plain, name=f"{name} {kind}", summary=f"{plain.summary}; {kind} encoder", needs=needs)


_VARIANTS = [
    _with("labeling-search", "narrow", PROTOTYPICAL),
    _with("PrSV", "wide", WIDE),
    replace(
        BUILT_IN["PrSV"],
        name="PrKM",
        summary="class averages by soft votes, refined by three rounds of soft k-means; ignores who gave a label",
        run=later("prototypical", "soft_k_means"),
    ),
    _with("PrDS", "wide", WIDE),
    replace(
        BUILT_IN["w/o PA"],
        name="EM wide",
        summary="the paper's EM with the prior centred on the support set; wide encoder, as for labeling-search",
        candidates=grid(steps=STEPS, b=(1.0, 10.0, 100.0)),
        default={**BUILT_IN["w/o PA"].default, "centred": True},
        needs=WIDE,
    ),
    replace(
        BUILT_IN["Ours"],
        name="Ours wide",
        summary="Ours meta-trained by the wide recipe, with two EM steps",
        candidates=grid(steps=STEPS, centred=(False, True)),
        needs=replace(WIDE, objective="mixture", pseudo_annotation=True),
    ),
]
VARIANTS: dict[str, Method] = {variant.name: variant for variant in _VARIANTS}

_CEILINGS = [
    replace(
        BUILT_IN["PrSV"],
        name="True labels",
        summary="class averages by the true classes",
        run=later("ceilings", "true_labels"),
        needs=WIDE,
    ),
    replace(
        BUILT_IN["labeling-search"],
        name="True matrices",
        summary="labeling-search with the true confusion matrices",
        run=later("ceilings", "true_matrices"),
    ),
]
CEILINGS: dict[str, Method] = {ceiling.name: ceiling for ceiling in _CEILINGS}
