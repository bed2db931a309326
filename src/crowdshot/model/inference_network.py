"""The three small networks of the learned inference: what they are made of, and what they begin with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crowdshot.model.problem import Array, Floats

Network = Mapping[str, Array]

ROUNDS = 3
HIDDEN = 8
CROWD_INPUTS, LABEL_INPUTS, ITEM_INPUTS = 11, 8, 11
START = {  # what a round's constants are before anything was learned: nearly `shrunk`
    "power": 0.2,  # n labels count as n^sigmoid(power)
    "skill": math.log(12.0),  # labels that the crowd's mean accuracy counts as, against an annotator's own
    "matrix": math.log(4.0),  # labels that skill and class difficulty count as, against an annotator's own matrix
    "sizes": math.log(40.0),  # items that equal classes count as
    "prior": 0.0,  # 2 sigmoid(prior): how far class sizes are believed
    "lift": 0.0,  # 2 sigmoid(lift): how far some classes are taken to be harder
    "shared": 0.0,  # labels that even mistakes count as, against those that all share
    "floor": 0.0,  # exp(floor) / 50: the least that a label is thought possible, over the number of classes
    "near": 0.0,  # where classes have an order: how much less likely a mistake is with every class further, in nats
}


def shapes(rounds: int = ROUNDS, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """The network's tensors: for each round and each of the three, two layers."""
    sizes = {
        "crowd": (CROWD_INPUTS, len(START)),
        "label": (LABEL_INPUTS + CROWD_INPUTS, 2),
        "item": (ITEM_INPUTS + CROWD_INPUTS, 2),
    }
    out: dict[str, tuple[int, ...]] = {}
    for step in range(rounds):
        for name, (inputs, outputs) in sizes.items():
            out[f"{name}.{step}.in.weight"], out[f"{name}.{step}.in.bias"] = (inputs, hidden), (hidden,)
            out[f"{name}.{step}.out.weight"], out[f"{name}.{step}.out.bias"] = (hidden, outputs), (outputs,)
    return out


def fresh(seed: int = 0, rounds: int = ROUNDS, hidden: int = HIDDEN) -> dict[str, Floats]:
    """A network that has learned nothing: all crowds have the constants of `START`."""
    randomness = np.random.default_rng(seed)
    out = {}
    for name, shape in shapes(rounds, hidden).items():
        if name.endswith("in.weight"):
            out[name] = randomness.normal(size=shape) / math.sqrt(shape[0])
        elif name.endswith("out.weight"):
            out[name] = randomness.normal(size=shape) * 0.02
        else:
            out[name] = (
                np.array(list(START.values())) if name.startswith("crowd") and "out" in name else np.zeros(shape)
            )
    return out


def constant(rounds: int = ROUNDS) -> dict[str, Floats]:
    """The network for which all crowds, labels and items are alike: rounds with the constants of `START`."""
    out = {name: np.zeros(shape) for name, shape in shapes(rounds, hidden=1).items()}
    for step in range(rounds):
        out[f"crowd.{step}.out.bias"] += list(START.values())
    return out


def first_rounds(network: Network, rounds: int) -> dict[str, Array]:
    """The network with so many of its rounds at most."""
    return {name: value for name, value in network.items() if int(name.split(".")[1]) < rounds}


def n_rounds(network: Network) -> int:
    return sum(name.startswith("crowd.") and name.endswith("in.bias") for name in network)


def layers(
    xp: Any,
    network: Network,
    name: str,
    x: Array,
    crowd: Array | None = None,
    own: Callable[[Array], Array] = lambda of_crowds: of_crowds,
) -> Array:
    """(n, inputs) -> (n, outputs). The last inputs may be what is seen of its ``crowd`` (G, inputs): each has its own.

    What the first layer makes of those is computed once for a crowd.
    """
    weight, bias = network[f"{name}.in.weight"], network[f"{name}.in.bias"]
    n = x.shape[-1]
    hidden = xp.tanh(x @ weight[:n] + (bias if crowd is None else own(crowd @ weight[n:] + bias)))
    return hidden @ network[f"{name}.out.weight"] + network[f"{name}.out.bias"]


def logit(xp: Any, p: Array, edge: float = 0.01) -> Array:
    p = p.clip(edge, 1 - edge)
    return xp.log(p) - xp.log(1 - p)


def sigmoid(xp: Any, x: Array) -> Array:
    return 1 / (1 + xp.exp(-x))
