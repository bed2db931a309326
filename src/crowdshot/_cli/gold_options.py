"""Define the options of commands that mix questions with known answers into the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from crowdshot._cli.options import method_option

if TYPE_CHECKING:
    from crowdshot.labels.gold_questions import GoldRule


@dataclass(frozen=True, kw_only=True)
class GoldOptions:
    """The fields of `crowdshot.labels.gold_questions.GoldRule`."""

    gold_share: Annotated[
        float,
        method_option(
            "--gold-share",
            metavar="SHARE",
            help="Mix in questions about the items of --gold, as this share of all questions, like 0.1. Nobody can see"
            " which they are, or gets one twice.",
        ),
    ] = 0.0
    pause_below: Annotated[
        float | None,
        method_option(
            "--pause-below",
            metavar="SHARE",
            help="Ask no more questions of annotators who gave the right answer to less than this share of items with"
            " known answers, like 0.6.",
        ),
    ] = None
    after: Annotated[
        int,
        method_option(
            "--after",
            metavar="N",
            help="How many items with known answers somebody must have labelled before --pause-below applies.",
        ),
    ] = 10

    def rule(self) -> GoldRule:
        from crowdshot.labels.gold_questions import GoldRule  # here, as it imports numpy

        return GoldRule(self.gold_share, self.pause_below, self.after)
