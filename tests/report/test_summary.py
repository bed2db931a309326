"""What a job found, in words."""

from crowdshot.report.summary import _do_next, _verdicts, kinds_in_words, until_accepted, what_looks_were_worth

NONE = {"of": "images", "foretold": 0.61, "by_class_sizes": 0.13, "helped": True, "differ": 0, "differ_items": []}
NONE |= {"unsaid": 0, "unsaid_items": []}
SAME = "The consensus of every labelled item is what labels alone would give."


def test_what_images_were_worth():
    numbers = (
        "labels of items whose labels were hidden are foretold from them with probability 0.61 on average,"
        " by class sizes alone with 0.13."
    )
    assert what_looks_were_worth(NONE, 30) == [f"The images helped: {numbers}", SAME]
    few = f"Whether the images helped cannot be told from these few items: {numbers}"
    assert what_looks_were_worth(NONE | {"helped": None}, 30) == [few, SAME]
    not_so = what_looks_were_worth(NONE | {"helped": False, "of": "features"}, 30)
    assert not_so == ["The features did not help here, so the labels decide alone.", SAME]
    other_method = what_looks_were_worth(NONE | {"helped": None, "foretold": None, "by_class_sizes": None}, 30)
    assert other_method == [SAME]


def test_where_labels_alone_would_have_it_otherwise():
    differ = NONE | {"helped": False, "differ": 7, "differ_items": [*"abcdefg"], "unsaid": 1, "unsaid_items": ["c"]}
    assert what_looks_were_worth(differ, 1000) == [
        "The images did not help here, so the labels decide nearly alone.",
        "7 of 1,000 labelled items have a consensus that labels alone would not give: a, b, c, d, e and 2 more.",
        "1 of 1,000 labelled items has a label that nobody gave: c.",
    ]


def test_what_needs_a_person_and_what_the_classifier_may_do():
    kinds = {"open": 1200, "overruled": 0, "unlabelled": 3}
    assert kinds_in_words(kinds) == "1,200 not accepted, 3 without a label"
    known = {"share": 0.85, "low": 0.784, "high": 0.9, "verdict": "too low to label by itself at 90 %"}
    assert _verdicts(kinds, known) == [
        "1,203 items need a person: 1,200 not accepted, 3 without a label",
        "classifier on new items: 85\u00a0% right (78–90\u00a0%), too low to label by itself at 90 %",
    ]
    unknown = {"share": None, "low": None, "high": None, "verdict": "9 labelled items are too few"}
    assert _verdicts({"open": 0, "overruled": 1, "unlabelled": 0}, unknown) == [
        "1 item needs a person: 1 accepted against most labels",
        "what the classifier gets right on new items is not known: 9 labelled items are too few",
    ]
    assert _verdicts(dict.fromkeys(kinds, 0), known)[0] == "every item is accepted"


def test_how_many_labels_until_enough_is_settled():
    forecast = {"share": 0.95, "labels": 1200, "at_best": 800, "at_worst": None}
    told = "about 1,200 more labels should settle 95\u00a0% of the items (800 at best, and many more at worst)"
    assert until_accepted(forecast) == told
    assert until_accepted(forecast | {"at_worst": 3000}).endswith("(800 at best, 3,000 at worst)")
    assert until_accepted(forecast | {"labels": 0}) == "95\u00a0% of the items or more are accepted already"
    never = "no number of labels from people like these can be expected to settle 95\u00a0% of the items"
    assert until_accepted(forecast | {"labels": None}) == f"{never}, though 800 would do at best"
    assert until_accepted(forecast | {"labels": None, "at_best": None}) == never


def test_what_to_do_next_with_its_commands():
    steps = [{"text": "Look.", "command": "crowdshot adapt"}, {"text": "Talk.", "command": ""}]
    assert _do_next(steps).splitlines()[1:] == ["  1. Look.", "     crowdshot adapt", "  2. Talk."]
