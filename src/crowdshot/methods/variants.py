"""Labelings and its closest rivals with each other's encoders: what is the inference's, and what the encoder's."""

from __future__ import annotations

from dataclasses import replace

from crowdshot.methods import METHODS, PROTOTYPICAL, WIDE
from crowdshot.methods.contract import Method, Needs


def _with(name: str, kind: str, needs: Needs) -> Method:
    plain = METHODS[name]
    return replace(plain, name=f"{name} {kind}", summary=f"{plain.summary}; {kind} encoder", needs=needs)


_VARIANTS = [
    _with("Labelings", "narrow", PROTOTYPICAL),
    _with("PrSV", "wide", WIDE),
    _with("PrDS", "wide", WIDE),
]
VARIANTS: dict[str, Method] = {variant.name: variant for variant in _VARIANTS}
