"""Define the options of commands that mix questions with known answers into the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.options import METHOD

if TYPE_CHECKING:
    from crowdshot.labels.gold_questions import GoldRule


@dataclass(frozen=True, kw_only=True)
class GoldOptions:
    """The fields of `crowdshot.labels.gold_questions.GoldRule`."""

    gold_share: Annotated[
        float,
        typer.Option(
            "--gold-share",
            metavar="SHARE",
            help="Mix in questions about the items of --gold, as this share of all questions, like 0.1. Nobody can see"
            " which they are, or gets one twice.",
            rich_help_panel=METHOD,
        ),
    ] = 0.0
    pause_below: Annotated[
        float | None,
        typer.Option(
            "--pause-below",
            metavar="SHARE",
            help="Ask no more questions of annotators who gave the right answer to less than this share of items with"
            " known answers, like 0.6.",
            rich_help_panel=METHOD,
        ),
    ] = None
    after: Annotated[
        int,
        typer.Option(
            "--after",
            metavar="N",
            help="How many items with known answers somebody must have labelled before --pause-below applies.",
            rich_help_panel=METHOD,
        ),
    ] = 10

    def rule(self) -> GoldRule:
        from crowdshot.labels.gold_questions import GoldRule  # here, as it imports numpy

        return GoldRule(self.gold_share, self.pause_below, self.after)
