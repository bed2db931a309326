"""The ways to a consensus by their names, for a crowd that lies anywhere (`crowdshot.model.parts`)."""

from __future__ import annotations

from crowdshot.labels.aggregate import VOTES
from crowdshot.labels.inferred import Network
from crowdshot.model import inference_network
from crowdshot.model.beliefs import Votes
from crowdshot.model.em import Coins, Em, Matrices
from crowdshot.model.network_file import network_of
from crowdshot.model.parts import Floats, Sizes, Way
from crowdshot.model.rounds import Rounds


def way_of(
    method: str,
    sizes: Sizes,
    n_labels: int,
    steps: int,
    *,
    ordered: bool = False,
    history: Floats | None = None,
    gold: bool = False,
    network: Network = None,
) -> Way:
    """As `aggregate.AGGREGATORS` has them. ``history`` (R, 2): labels that were right and wrong before."""
    if method in VOTES or sizes.classes < 2:
        return Votes(sizes)
    if method == "one-coin":
        return Em(sizes, n_labels, Coins(), steps, b=100.0, tolerance=1e-6)
    if method == "dawid-skene":
        return Em(sizes, n_labels, Matrices(), steps, b=0.0, tolerance=1e-6)
    if method == "shrunk":
        return Rounds(sizes, inference_network.constant(min(steps, 3)), gold=gold, power=1.0)
    right, wrong = (None, None) if history is None else history.T
    return Rounds(sizes, inference_network.first_rounds(network_of(network), steps), ordered, right, wrong, gold)
