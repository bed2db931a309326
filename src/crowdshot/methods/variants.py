"""What experiments compare beside the methods, as data: rivals with each other's encoders, and perfect knowledge.

Labelings and its closest rivals with each other's encoders tell what is the inference's, and what the encoder's; Ours
wide has an encoder of its own, trained as theirs is. The `ceilings`, which know what nobody does, tell how much is left
to gain.
"""

from __future__ import annotations

from dataclasses import replace

from crowdshot.methods import BUILT_IN, PROTOTYPICAL, STEPS, WIDE
from crowdshot.methods.contract import Method, Needs, grid, later


def _with(name: str, kind: str, needs: Needs) -> Method:
    plain = BUILT_IN[name]
    return replace(plain, name=f"{name} {kind}", summary=f"{plain.summary}; {kind} encoder", needs=needs)


_VARIANTS = [
    _with("Labelings", "narrow", PROTOTYPICAL),
    _with("PrSV", "wide", WIDE),
    _with("PrDS", "wide", WIDE),
    replace(
        BUILT_IN["w/o PA"],
        name="EM wide",
        summary="the paper's EM around the support's centre; wide encoder, as Labelings has it",
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
        BUILT_IN["Labelings"],
        name="True matrices",
        summary="Labelings that knows the annotators",
        run=later("ceilings", "true_matrices"),
    ),
]
CEILINGS: dict[str, Method] = {ceiling.name: ceiling for ceiling in _CEILINGS}
