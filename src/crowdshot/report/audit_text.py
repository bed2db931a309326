"""Describe in sentences how far accepted labels can be trusted: the result of an audit, or why none is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from crowdshot.formatting import percent, plural, spread
from crowdshot.labels.auditing import CERTAIN, Audit
from crowdshot.labels.consensus import Unanimous


def describe_audit(audit: Audit) -> list[str]:
    """Return sentences about the accuracy of the accepted labels, their confidence, and the promised accuracy."""
    all_ = audit.overall
    return [
        f"{percent(all_.accuracy)} of the {plural(all_.items, 'label')} with a confidence of"
        f" {percent(audit.threshold)} or more are right (90 % interval"
        f" {spread(all_.low, all_.high)}), estimated from {plural(all_.checked, 'checked item')}.",
        _confidence(audit),
        recommend_threshold(audit),
    ]


def _confidence(audit: Audit) -> str:
    all_ = audit.overall
    claimed = f"their mean confidence is {percent(all_.confidence)}"
    if all_.confidence > all_.high:
        return f"The confidence is too high: {claimed}."
    if all_.confidence < all_.low:
        return f"The confidence is too low: {claimed}."
    return f"This agrees with their confidence: {claimed}."


def recommend_threshold(audit: Audit) -> str:
    """Return which threshold keeps the promised accuracy."""
    kept, promise, certain = audit.keeps, percent(audit.promise), percent(CERTAIN)
    if kept is not None:
        which = "All these labels keep" if kept is audit.overall else f"A threshold of {percent(kept.threshold)} keeps"
        these = plural(kept.items, "label")
        at_least = f"at least {100 * kept.at_least:.1f} % of these {these} are right"
        return f"{which} the promise of {promise}: {at_least} (lower bound, {certain} certain)."
    best = max(audit.estimates, key=lambda each: each.at_least)
    if all(each.high < audit.promise for each in audit.estimates):
        advice = "Have the accepted items labelled by more people, or review them yourself."
        return f"No threshold keeps the promise of {promise}. {advice}"
    shown = f"the best lower bound is {100 * best.at_least:.1f} %, at a threshold of {percent(best.threshold)}"
    return f"No threshold is shown to keep the promise of {promise}: {shown}. Check more items for a narrower interval."


COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def why_none_accepted(unanimous: Sequence[Unanimous], threshold: float) -> str:
    """Return why no item is accepted: the confidence that agreeing labels reach.

    >>> why_none_accepted([Unanimous(2, 30, 0.81), Unanimous(3, 9, 0.88)], 0.9)
    'No item is accepted: three agreeing labels, the most on an item, reach 88\xa0% here, and 90\xa0% is needed.'
    """
    if not unanimous:
        return f"No item is accepted: on no item do all labels agree, and {percent(threshold)} is needed."
    n, _, confidence = unanimous[-1]
    number = COUNTS[n] if n < len(COUNTS) else f"{n:,}"
    labels = "one label reaches" if n == 1 else f"{number} agreeing labels, the most on an item, reach"
    return f"No item is accepted: {labels} {percent(confidence)} here, and {percent(threshold)} is needed."
