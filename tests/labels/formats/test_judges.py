"""Test logs of language models as judges: the judge, the item and the verdict of each row."""

import json

import pytest

from crowdshot import CrowdshotError
from crowdshot.labels.formats import read_labels
from label_exports import lines


@pytest.fixture
def read(tmp_path):
    def read_records(records, *, as_lines=True, **options):
        path = tmp_path / "log"
        path.write_text(lines(records) if as_lines else json.dumps(records))
        found = read_labels(path, **options)
        frame = found.annotations.to_frame()
        return found, sorted(frame.itertuples(index=False, name=None))

    return read_records


def record(model, item, verdict, **more):
    return {"model": model, "item": item, "verdict": verdict, **more}


@pytest.mark.filterwarnings("ignore:.*The label 'none' is read as a class")
@pytest.mark.parametrize("as_lines", [True, False])
def test_model_item_verdict(read, as_lines):
    found, labels = read(
        [
            record("m1", "q1", "safe"),
            record("m2", "q1", " **Unsafe**. "),
            record("m1", "q2", "It is rude, and I first thought [[unsafe]], but all in all [[safe]]"),
            record("m2", "q2", "Tie"),
            record("m1", "q3", "none"),  # which may be a class
            record("m2", "q3", True),
            record("m1", 4, 7.0),
            record("m2", 4, None),
            record("m2", 5, "I’m sorry, but I cannot judge this."),
            record("m2", 6, "As an AI language model, I have no opinion"),
            record("m2", 7, "refused"),
            record("m2", 8, "Both answers have their merits, and it is hard to say which of them is the better one."),
        ],
        as_lines=as_lines,
    )
    assert labels == [
        ("4", "m1", "7"),
        ("q1", "m1", "safe"),
        ("q1", "m2", "Unsafe"),
        ("q2", "m1", "safe"),
        ("q2", "m2", "tie"),
        ("q3", "m1", "none"),
        ("q3", "m2", "true"),
    ]
    assert found.left_out == {
        "refusals and verdicts that are missing": 4,
        "verdicts that are texts without a last word": 1,
    }
    assert found.annotations.columns == ("item", "model", "verdict")


def test_the_last_verdict_of_a_judge_counts(read):
    _, labels = read([record("m", "q", "a"), record("m", "q", "b"), record("n", "q", "a")])
    assert labels == [("q", "m", "b"), ("q", "n", "a")]


def test_ties_and_refusals_are_dropped_or_kept_by_options(read):
    records = [record("m", "q", "A"), record("n", "q", "tie"), record("o", "q", "refused")]
    assert read(records, rename={"tie": ""})[1] == [("q", "m", "A")]
    kept = read(records, format_name="long", columns={"annotator": "model"})[1]
    assert kept == [("q", "m", "A"), ("q", "n", "tie"), ("q", "o", "refused")]


def pair(question, first, second, g1, g2, judge="gpt-4", turn=1):
    compared = {"question_id": question, "model_1": first, "model_2": second, "g1_winner": g1, "g2_winner": g2}
    return {**compared, "judge": [judge, "pair-v2"], "g1_judgment": "…", "turn": turn, "tstamp": 1.5}


def test_two_games_of_mt_bench(read):
    found, labels = read(
        [
            pair(81, "alpaca", "vicuna", "model_2", "model_2"),
            pair(81, "alpaca", "vicuna", "model_2", "model_1", turn=2),  # the first answer wins both times
            pair(82, "alpaca", "vicuna", "tie", "tie"),
            pair(82, "alpaca", "vicuna", "model_1", "error", judge="claude"),
        ]
    )
    assert labels == [
        ("81, alpaca | vicuna, turn 1", "gpt-4", "B"),
        ("81, alpaca | vicuna, turn 2", "gpt-4", "tie"),
        ("82, alpaca | vicuna, turn 1", "claude", "A"),
        ("82, alpaca | vicuna, turn 1", "gpt-4", "tie"),
    ]
    assert found.left_out == {
        "refusals and verdicts that are missing": 1,
        "verdicts that changed with the order, taken for ties": 1,
    }


def test_swapped_pairs_are_the_same_item(read):
    def arena(first, second, winner, judge):
        return {"question_id": "q", "model_a": first, "model_b": second, "winner": winner, "judge": judge}

    found, labels = read(
        [
            arena("x", "y", "model_a", "j1"),
            arena("y", "x", "model_b", "j1"),  # x again
            arena("x", "y", "model_a", "j2"),
            arena("y", "x", "model_a", "j2"),  # always the first answer
            arena("y", "x", "y", "j3"),  # by its name
            arena("y", "x", "A>>B", "j4"),
            arena("x", "y", "tie (bothbad)", "j5"),
            arena("x", "y", "My verdict is [[C]]", "j6"),
        ]
    )
    assert [(judge, label) for _, judge, label in labels] == [
        ("j1", "A"),
        ("j2", "tie"),
        ("j3", "B"),
        ("j4", "B>>A"),
        ("j5", "tie"),
        ("j6", "tie"),
    ]
    assert {item for item, _, _ in labels} == {"q, x | y"}
    assert found.left_out == {"verdicts that changed with the order, taken for ties": 1}


def test_alpaca_eval(read):
    def compared(instruction, preference):
        models = {"generator_1": "base", "generator_2": "mine", "annotator": "alpaca_eval_gpt4"}
        return {"instruction": instruction, "output_1": "…", "output_2": "…", **models, "preference": preference}

    words = {"a": 1.0, "b": 2, "c": 1.5, "d": 0.0, "e": 1.03, "f": 1.97, "g": None}
    _, labels = read([compared(name, preference) for name, preference in words.items()], as_lines=False)
    assert [label for _, _, label in labels] == ["A", "B", "tie", "tie", "A", "B"]
    assert labels[0][:2] == ("a, base | mine", "alpaca_eval_gpt4")


def test_scores_of_single_answers(read):
    def graded(question, model, score):
        return {
            "question_id": question,
            "model": model,
            "judge": ["gpt-4", "single-v1"],
            "judgment": "…",
            "score": score,
        }

    _, labels = read([graded(1, "x", 9), graded(1, "y", 10), graded(2, "x", -1)], format_name="judges")
    assert labels == [("1, x", "gpt-4", "9"), ("1, y", "gpt-4", "10")]


def test_people_and_models_together(tmp_path):
    (tmp_path / "log.jsonl").write_text(lines([record("m1", "q1", "safe"), record("m2", "q1", "unsafe")]))
    (tmp_path / "people.csv").write_text("item,annotator,label\nq1,ann,safe\nq2,ann,unsafe\n")
    both = read_labels([tmp_path / "log.jsonl", tmp_path / "people.csv"]).annotations
    assert list(both.annotators) == ["m1", "m2", "ann"]
    assert list(both.classes) == ["safe", "unsafe"]


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ([record("m", None, "a")], {}, "log, row 1 has a verdict but no 'item'"),
        ([record("m", "q", "a"), record([], "q", "a")], {}, "log, row 2 has a verdict but no 'model'"),
        ([record("m", "q", ["a", "b"])], {}, "log, row 1, 'verdict' holds a list, expected a verdict"),
        ([record("m", "q", "refused")], {}, r"no label that can be used \(1 refusal"),
        ([{"x": 1}], {"format_name": "judges"}, "log has no field for the item, expected a field called prompt_id, "),
        ([{"item": 1}], {"format_name": "judges"}, "log has no field for the judge, expected a field called judge, "),
        ([record("m", "q", "a")], {"columns": {"judge": "model"}}, "columns names 'judge'"),
    ],
)
def test_refused(read, records, options, message):
    with pytest.raises(CrowdshotError, match=message):
        read(records, **options)
