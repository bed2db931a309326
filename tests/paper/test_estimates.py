"""Test estimates of the work and time of an experiment, counted by hand."""

from pathlib import Path

import pytest

from crowdshot.formatting import about_duration
from crowdshot_paper import encoder_plan, runner, work
from crowdshot_paper.experiments import EXPERIMENTS, PAPER

RESULTS = Path(__file__).parents[2] / "results"


def test_a_share_counts_episodes_and_encoders():
    share = next(one for one in encoder_plan.shares(EXPERIMENTS["main"], "omniglot") if one.method == "Ours")
    # five splits; nine sizes of four crowds and a validation, 50 episodes each
    assert share.episodes == 5 * (9 * 4 * 50 + 9 * 50)
    assert len(share.encoders) == 18, "six J by three b"
    assert [len(needed) for needed in share.encoders] == [5] * 18, "one a split"
    assert share.kept(RESULTS) == 1, "J = 2 and b = 100"
    assert share.kept(RESULTS / "nowhere") == 0


def test_ten_times_as_many_episodes_and_an_encoder_for_each_cell():
    more = encoder_plan.shares(EXPERIMENTS["beyond-more-episodes"], "labelme")[0]
    assert more.episodes == 5 * (3 * 100 + 3 * 100), "three sizes of 10 × 10 episodes; as many for validation"
    own = next(one for one in encoder_plan.shares(EXPERIMENTS["each-cell"], "omniglot") if one.method == "Ours")
    assert [len(needed) for needed in own.encoders] == [45], "five splits by nine cells"


def test_seconds_add_up():
    (ours,) = [one for one in encoder_plan.shares(EXPERIMENTS["centred"], "omniglot") if one.method == "Ours"]
    all_of_it = encoder_plan.time_of([ours])
    trained = 90 * 30 * encoder_plan.TRAINING["narrow"].core  # 90 encoders, 30 thousand iterations
    tested = 18 * ours.episodes / 1_000 * encoder_plan.EMBEDDING.core
    assert all_of_it.core == pytest.approx(trained + tested)
    assert encoder_plan.time_of([ours], RESULTS).core == pytest.approx(tested / 18), "one candidate's encoders are kept"
    assert encoder_plan.testing("CL", "labelme", 1_000).gpu == 9 * encoder_plan.TESTING["CL"].gpu, "photographs"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3, "some seconds"), (100, "about 100 s"), (130, "about 2 min"), (7_300, "about 2 h"), (200_000, "about 2 days")],
)
def test_time_is_printed_in_a_suitable_unit(seconds, words):
    assert about_duration(seconds) == words


def test_before_a_run_kept_encoders_are_offered(tmp_path):
    place = work.Place(RESULTS, tmp_path, None, PAPER)
    pieces = runner.missing(
        [EXPERIMENTS["beyond"]], ["omniglot"], ["labeling-search"], work.Place(tmp_path, tmp_path, None, PAPER)
    )
    hint, kept = runner.expect(pieces, place, ["cpu", "cpu"])
    # 5 × 15 thousand iterations at 100 s, 9 candidates on 11,250 episodes at 2 ms; two cores
    assert hint == "5 encoders to meta-train and 45 pieces to test: about 64 min on 2 CPU cores."
    assert kept == f"5 of these encoders exist in {RESULTS}. Use --work {RESULTS} to use them."
    there = work.Place(RESULTS, RESULTS, None, PAPER)
    assert runner.expect(pieces, there, ["cuda:0"] * 4) == [
        "0 encoders to meta-train and 45 pieces to test: about 30 s on 1 GPU."
    ]
