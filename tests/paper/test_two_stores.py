"""Compare two stores: differences, standard errors and p-values by hand."""

import math

import pandas as pd
import pytest
from scipy.stats import t as student
from typer.testing import CliRunner

from crowdshot._cli.main import app
from crowdshot.errors import CrowdshotError
from crowdshot_paper import paper_comparison
from crowdshot_paper.store import Store
from paper_rows import both, keep


def stores(folder, one, other):
    for name, rows in (("a", one), ("b", other)):
        keep(folder / name, "main", pd.concat(rows, ignore_index=True))
    return folder / "a", folder / "b"


def test_a_cell_is_compared_by_episode(tmp_path):
    a, b = stores(tmp_path, [both("PrMV", [0.2, 0.4, 0.9])], [both("PrMV", [0.3, 0.6, 0.9])])
    (row,) = paper_comparison.compare(a, b).itertuples()
    # differences 0.1, 0.2, 0: mean 0.1, standard deviation 0.1
    assert (row.one, row.other, row.difference) == pytest.approx((0.5, 0.6, 0.1))
    assert row.stderr == pytest.approx(0.1 / math.sqrt(3))
    assert row.p == pytest.approx(2 * student.sf(math.sqrt(3), df=2))
    assert row.episodes == 3


def test_common_rows_are_compared_with_settings_chosen_on_validation(tmp_path):
    one = [
        both("PrDS", [0.5], "steps=1", validation=0.4),
        both("PrDS", [0.1], "steps=2", validation=0.6),
        both("PrDS", [0.9], "steps=10", validation=0.9),  # the other store does not have it
        both("PrMV", [0.5]),
    ]
    other = [
        both("PrDS", [0.7], "steps=1", validation=0.8),
        both("PrDS", [0.2], "steps=2", validation=0.1),
        both("PrSV", [0.5]),
    ]
    (row,) = paper_comparison.compare(*stores(tmp_path, one, other)).itertuples()
    assert (row.method, row.one_candidate, row.other_candidate) == ("PrDS", "steps=2", "steps=1")
    assert row.difference == pytest.approx(0.6)


def test_a_part_of_a_store_does_not_differ_from_it(tmp_path):
    """Validation prefers steps=1 over both splits (0.7 to 0.6), and steps=2 on the first split."""
    first = [both("PrDS", [0.2, 0.4], "steps=1", validation=0.5), both("PrDS", [0.6, 0.9], "steps=2", validation=0.6)]
    second = [
        both("PrDS", [0.5, 0.5], "steps=1", validation=0.9, split=1),
        both("PrDS", [0.5, 0.5], "steps=2", validation=0.6, split=1),
    ]
    a, b = stores(tmp_path, [*first, *second], first)
    (row,) = paper_comparison.compare(a, b).itertuples()
    assert (row.one_candidate, row.other_candidate, row.difference, row.p) == ("steps=2", "steps=2", 0, 1)
    assert "Validation chose different settings" not in paper_comparison.comparison_text(
        paper_comparison.compare(a, b), a, b
    )


def test_different_settings_are_reported(tmp_path):
    one = [both("PrDS", [0.5], "steps=1", validation=0.6), both("PrDS", [0.1], "steps=2", validation=0.4)]
    other = [both("PrDS", [0.5], "steps=1", validation=0.4), both("PrDS", [0.1], "steps=2", validation=0.6)]
    a, b = stores(tmp_path, [*one, both("PrMV", [0.5])], [*other, both("PrMV", [0.5])])
    text = paper_comparison.comparison_text(paper_comparison.compare(a, b), a, b)
    assert "Validation chose different settings: PrDS 4 3 (steps=1 → steps=2)." in text


def test_episodes_of_one_store_only_do_not_count(tmp_path):
    a, b = stores(tmp_path, [both("PrMV", [0.2, 0.4, 0.9])], [both("PrMV", [0.2, 0.4])])
    (row,) = paper_comparison.compare(a, b).itertuples()
    assert (row.episodes, row.one, row.difference, row.p) == (2, pytest.approx(0.3), 0, 1)


def test_methods_are_compared_with_another_one(tmp_path):
    """Settings are chosen on validation: steps=2 of PrDS, although steps=1 is better on test."""
    one = [both("Ours", [0.5, 0.6, 0.7]), both("PrMV", [0.2, 0.2, 0.2])]
    other = [
        both("PrDS", [0.9, 0.9, 0.9], "steps=1", validation=0.4),
        both("PrDS", [0.6, 0.8, 0.7, 0.1], "steps=2", validation=0.6),  # Ours does not have the fourth episode
        both("PrMV", [0.5, 0.6, 0.7]),
    ]
    a, b = stores(tmp_path, one, other)
    table = paper_comparison.compare(a, b, against="Ours").set_index("method")
    assert sorted(table.index) == ["PrDS", "PrMV"]
    # differences 0.1, 0.2, 0: mean 0.1, standard deviation 0.1
    assert tuple(table.loc["PrDS", ["one", "other", "difference", "episodes"]]) == pytest.approx((0.6, 0.7, 0.1, 3))
    assert table.loc["PrDS", "p"] == pytest.approx(2 * student.sf(math.sqrt(3), df=2))
    assert table.loc["PrDS", "other_candidate"] == "steps=2"
    assert table.loc["PrMV", "difference"] == 0
    (alone,) = paper_comparison.compare(a, a, against="Ours").itertuples()  # not with itself
    assert (alone.method, alone.difference) == ("PrMV", pytest.approx(-0.4))
    done = CliRunner().invoke(app, ["paper", "compare", str(a), str(b), "--against", "Ours", "--methods", "PrDS"])
    assert done.exit_code == 0
    assert "minus Ours of" in done.stdout
    assert "different settings" not in done.stdout
    with pytest.raises(CrowdshotError) as error:
        paper_comparison.compare(a, b, against="LRMV")
    assert error.value.found == "LRMV"


@pytest.mark.parametrize(("numbers", "refused"), [((50, 60), True), ((60, 60), False), ((50, 10), False)])
def test_runs_that_drew_other_episodes_are_not_compared(tmp_path, numbers, refused):
    a, b = stores(tmp_path, [both("PrMV", [0.2, 0.4])], [both("PrMV", [0.2, 0.4])])
    for folder, number in zip((a, b), numbers, strict=True):
        Store(folder, "main", "omniglot").note_run({"episodes": number})
    if not refused:
        assert len(paper_comparison.compare(a, b)) == 1
        return
    with pytest.raises(CrowdshotError) as error:
        paper_comparison.compare(a, b)
    assert error.value.found == [50, 60]


def test_averages_weight_cells_equally(tmp_path):
    one = [both("PrMV", [0.2, 0.4]), both("PrMV", [0.5, 0.5, 0.5, 0.5], cell=(12, 5))]
    other = [both("PrMV", [0.4, 0.8]), both("PrMV", [0.5, 0.5, 0.5, 0.7], cell=(12, 5))]
    table = paper_comparison.compare(*stores(tmp_path, one, other))
    average = table[table["n_support"].isna()].iloc[0]
    assert average["difference"] == pytest.approx((0.3 + 0.05) / 2)
    assert average["stderr"] == pytest.approx(math.hypot(0.1, 0.05) / 2)


def test_the_command(tmp_path):
    a, b = stores(tmp_path, [both("PrMV", [0.2, 0.4, 0.9])], [both("PrMV", [0.3, 0.6, 0.9])])
    done = CliRunner().invoke(app, ["paper", "compare", str(a), str(b), "--out", str(tmp_path / "d.csv")])
    assert done.exit_code == 0, done.output
    assert "| PrMV   | 4   | 3   |" in done.stdout
    assert "+0.100 ± 0.058 | 0.23 |" in done.stdout
    assert "1 cell in common; 0 differ at p < 0.05 (expected by chance: 0.1)" in done.stdout
    assert pd.read_csv(tmp_path / "d.csv")["difference"].item() == pytest.approx(0.1)


def test_stores_without_common_cells_are_refused(tmp_path):
    a, b = stores(tmp_path, [both("PrMV", [0.2])], [both("PrSV", [0.3])])
    with pytest.raises(CrowdshotError, match="has no cell in common"):
        paper_comparison.compare(a, b)
    with pytest.raises(CrowdshotError, match="is not a folder"):
        paper_comparison.compare(a, tmp_path / "nowhere")
    done = CliRunner().invoke(app, ["paper", "compare", str(a), str(b)])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
