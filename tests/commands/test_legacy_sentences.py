"""Arguments inside sentences of errors without fields become options; delete this with `legacy_sentences`."""

import pytest

from crowdshot._cli.legacy_sentences import in_options


@pytest.mark.parametrize(
    ("sentence", "options", "told"),
    [
        ("steps is 0, expected 1 or more.", {"steps": "--steps"}, "--steps is 0, expected 1 or more."),
        ("labels_per_item is 9, expected 1 to 3.", {}, "labels_per_item is 9, expected 1 to 3."),
        (
            "out is not empty; overwrite=True writes into it.",
            {"overwrite": "--overwrite"},
            "out is not empty; --overwrite writes into it.",
        ),
        (
            "t, expected one; columns={'item': …} says which.",
            {"columns": "--columns"},
            "t, expected one; --columns item=… says which.",
        ),
        (
            """two; rename={"don't know": '','n/a': ''} makes no label of it.""",
            {"rename": "--rename"},
            """two; --rename 'don'"'"'t know=,n/a=' makes no label of it.""",
        ),
        ("one; rename={'-1': ''} says so.", {"rename": "--rename"}, "one; --rename -1= says so."),
        ("too many; method='ours' takes more.", {"method": "--method"}, "too many; --method ours takes more."),
        (
            "expected images= or features=.",
            {"images": "--images", "features": "--features"},
            "expected --images or --features.",
        ),
        (
            "a/out=3.csv is empty; like C=1,steps=3.",
            {"out": "--out", "steps": "--steps"},
            "a/out=3.csv is empty; like C=1,steps=3.",
        ),
        ("out=3.csv is empty.", {"out": "--out"}, "out=3.csv is empty."),
    ],
)
def test_a_command_calls_arguments_by_its_options(sentence, options, told):
    assert in_options(sentence, options) == told
