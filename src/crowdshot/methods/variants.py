"""What experiments compare beside the methods, as data: rivals with each other's encoders, and perfect knowledge.

Labelings and its closest rivals with each other's encoders tell what is the inference's, and what the encoder's; the
`ceilings`, which know what nobody does, how much is left to gain.
"""

from __future__ import annotations

from dataclasses import replace

from crowdshot.methods import BUILT_IN, PROTOTYPICAL, WIDE
from crowdshot.methods.contract import Method, Needs, later


def _with(name: str, kind: str, needs: Needs) -> Method:
    plain = BUILT_IN[name]
    return replace(plain, name=f"{name} {kind}", summary=f"{plain.summary}; {kind} encoder", needs=needs)


_VARIANTS = [
    _with("Labelings", "narrow", PROTOTYPICAL),
    _with("PrSV", "wide", WIDE),
    _with("PrDS", "wide", WIDE),
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
        BUILT_IN["Labelings"],
        name="True matrices",
        summary="Labelings that knows the annotators",
        run=later("ceilings", "true_matrices"),
    ),
]
CEILINGS: dict[str, Method] = {ceiling.name: ceiling for ceiling in _CEILINGS}
