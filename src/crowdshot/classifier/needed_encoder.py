"""Which shipped encoder meets a method's need, by name; and the command that makes one where none does."""

from __future__ import annotations

from dataclasses import replace

from crowdshot.encoders.shipped import PROTOTYPICAL
from crowdshot.methods.contract import Needs
from crowdshot.wording import command

BASES = ("glyphs", "photo-lite0", "photo")  # what `default_encoder` chooses from for images
SHIPPED = {
    Needs("mixture", pseudo_annotation=True): "",
    Needs("prototypical"): PROTOTYPICAL,
    Needs("prototypical", pseudo_annotation=True): PROTOTYPICAL + "-pa",
    Needs("lnl", pseudo_annotation=True): "-lnl",
    Needs("maml"): "-maml",
    Needs("maml", pseudo_annotation=True): "-maml-pa",
}
"""What an encoder that meets a need is called, after its base."""


def shipped_names(needs: Needs) -> list[str]:
    """What the encoders for images are called, shipped or not."""
    return [base + suffix(needs) for base in BASES]


def suffix(needs: Needs) -> str:
    """Of a need that no method of our own has, a name that is not shipped."""
    clean = "" if needs.pseudo_annotation else "-clean"
    return SHIPPED.get(replace(needs, by=(), wide=False), f"-{needs.objective}{clean}")


def training_command(needs: Needs) -> str:
    """What makes an encoder that meets the need."""
    options = {} if needs.wide else {"objective": needs.objective, "clean": not needs.pseudo_annotation}
    return command("train", (), options)
