"""Test the printed summary of a run."""

from dataclasses import replace

from crowdshot.labels.consensus import kinds_in_words
from crowdshot.labels.labels_needed import Forecast, until_accepted
from crowdshot.report.summary import (
    FeatureEffect,
    NewItems,
    Recommendation,
    _do_next,
    _verdicts,
    describe_feature_effect,
)

NONE = FeatureEffect("images", 0.61, 0.13, True, 0, [], 0, [])
SAME = "Labels alone would give the same consensus for every labelled item."


def test_the_value_of_images():
    numbers = "they predict held-out labels with probability 0.61 (0.13 from class frequencies alone)."
    assert describe_feature_effect(NONE, 30) == [f"The images are informative: {numbers}", SAME]
    few = f"There are too few items to tell whether the images are informative: {numbers}"
    assert describe_feature_effect(replace(NONE, informative=None), 30) == [few, SAME]
    not_so = describe_feature_effect(replace(NONE, informative=False, kind="features"), 30)
    assert not_so == ["The features are not informative, so the consensus depends only on the labels.", SAME]
    other_method = replace(NONE, informative=None, held_out_probability=None, by_class_sizes=None)
    assert describe_feature_effect(other_method, 30) == [SAME]


def test_differences_to_the_consensus_of_labels_only():
    differ = FeatureEffect("images", 0.61, 0.13, False, 7, [*"abcdefg"], 1, ["c"])
    assert describe_feature_effect(differ, 1000) == [
        "The images are not informative, so the consensus depends almost only on the labels.",
        "Labels alone would give a different consensus for 7 of 1,000 labelled items: a, b, c, d, e and 2 more.",
        "1 of 1,000 labelled items has a consensus label that no annotator chose: c.",
    ]


def test_items_for_review_and_verdict_on_the_classifier():
    kinds = {"open": 1200, "overruled": 0, "unlabelled": 3}
    assert kinds_in_words(kinds) == "1,200 not accepted, 3 unlabelled and not accepted"
    known = NewItems(0.85, 0.784, 0.9, "not accurate enough")
    assert _verdicts(kinds, known) == [
        "1,203 items need review: 1,200 not accepted, 3 unlabelled and not accepted",
        "classifier on new items: 85\u00a0% correct (90 % interval 78–90\u00a0%), not accurate enough",
    ]
    unknown = NewItems(None, None, None, "9 labelled items are too few")
    assert _verdicts({"open": 0, "overruled": 1, "unlabelled": 0}, unknown) == [
        "1 item needs review: 1 accepted against the majority",
        "classifier on new items: accuracy not known (9 labelled items are too few)",
    ]
    assert _verdicts(dict.fromkeys(kinds, 0), known)[0] == "every item is accepted"


def test_forecast_of_needed_labels():
    forecast = Forecast(0.95, 1200, 800, None)
    assert until_accepted(forecast) == (
        "about 1,200 more labels are needed until 95\u00a0% of the items are accepted (800 at best, many more at worst)"
    )
    assert until_accepted(forecast._replace(at_worst=3000)).endswith("(800 at best, 3,000 at worst)")
    assert until_accepted(forecast._replace(labels=0)) == "95\u00a0% of the items or more are already accepted"
    never = "more labels from annotators like these are not expected to be enough to accept 95\u00a0% of the items"
    assert until_accepted(forecast._replace(labels=None)) == f"{never} (800 labels at best)"
    assert until_accepted(forecast._replace(labels=None, at_best=None)) == never


def test_next_steps_with_commands():
    steps = [Recommendation("Look.", "crowdshot adapt"), Recommendation("Talk.", "")]
    assert _do_next(steps).splitlines()[1:] == ["  1. Look.", "     crowdshot adapt", "  2. Talk."]
