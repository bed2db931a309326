"""Test the paper's tables, with means, standard errors, tests and selection by hand."""

import math
import re
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from crowdshot.errors import CrowdshotError
from crowdshot_paper import layout, paper_comparison, paper_tables, published
from crowdshot_paper.encoder_plan import wanted
from crowdshot_paper.episode_cells import TARGETS, Cell
from crowdshot_paper.experiments import EXPERIMENTS
from crowdshot_paper.registry import METHODS
from crowdshot_paper.selection import choose, in_order, p_value, select, spread, summarise, system
from crowdshot_paper.store import Store
from forked import crowdshot
from paper_rows import CELL, LAST, both, keep, some

MAIN, MAIN_OURS = EXPERIMENTS["main"], METHODS["Ours"]


def together(*parts):
    return pd.concat(parts, ignore_index=True)


def shown(summary):
    return {row.method: row for row in summary.itertuples()}


# ---- the paper's numbers ---------------------------------------------------------------------------------------------

PRINTED = {  # the rows "Avg." of the paper's tables
    "omniglot": (0.892, 0.535, 0.551, 0.476, 0.496, 0.743, 0.653, 0.856, 0.858, 0.776, 0.795, 0.827, 0.747, 0.758),
    "miniimagenet": (0.542, 0.286, 0.288, 0.287, 0.291, 0.365, 0.338, 0.481, 0.495, 0.446, 0.454, 0.448, 0.401, 0.449),
    "labelme": (0.520, 0.247, 0.245, 0.229, 0.233, 0.343, 0.342, 0.490, 0.484, 0.387, 0.387, 0.477, 0.465, 0.401),
}


@pytest.mark.parametrize("dataset", PRINTED)
def test_copied_numbers_have_the_averages_of_the_paper(dataset):
    found = published.figures("main", dataset).groupby("method")["accuracy"].mean()
    assert [found[name] for name in published.IN_PAPER] == pytest.approx(
        PRINTED[dataset], abs=0.0012
    )  # the paper rounds


def test_numbers_of_other_tables_of_the_paper():
    found = published.figures("large-support", "miniimagenet")
    assert list(found["n_support"]) == [20, 40, 80, 120, 160]
    assert list(found["accuracy"]) == [0.674, 0.747, 0.766, 0.775, 0.774]
    assert published.figures("each-cell", "omniglot").equals(published.figures("main", "omniglot"))
    assert set(published.figures("labelme", "labelme")["n_annotators"]) == {0}
    assert not len(published.figures("large-support", "omniglot"))
    times = published.times().set_index("method")
    assert times.loc["MaDS", "meta_train_seconds"] == 3499.14
    assert times.loc["CNAL", "test_seconds"] == 166.21


# ---- selection -------------------------------------------------------------------------------------------------------


def test_the_candidate_has_the_best_mean_over_splits():
    rows = together(
        some("LRMV", [0.9], "C=1", "validation", split=0),
        some("LRMV", [0.1], "C=1", "validation", split=1),
        some("LRMV", [0.6], "C=0.1", "validation", split=0),
        some("LRMV", [0.7], "C=0.1", "validation", split=1),
        some("Ours", [0.5], "steps=10, b=1", "validation"),
        some("Ours", [0.5], "steps=2, b=100", "validation"),
        some("Ours", [0.5], "steps=2, b=10", "validation"),
        some("Ours", [0.4], "steps=1, b=1", "validation"),
    )
    found = choose(rows, "validation").set_index("method")["candidate"]
    assert found["LRMV"] == "C=0.1"  # mean 0.65, C=1 has 0.5
    assert found["Ours"] == "steps=2, b=10"  # ties: the first in the method's list of candidates


def test_a_candidate_with_a_missing_split_is_not_chosen():
    rows = together(
        both("Ours", [0.9], "steps=1, b=1", validation=0.9, split=0),
        both("Ours", [0.4], "steps=2, b=1", validation=0.4, split=0),
        both("Ours", [0.4], "steps=2, b=1", validation=0.4, split=1),
    )
    assert choose(rows, "validation")["candidate"].item() == "steps=2, b=1"
    assert len(select(rows, fair=True)) == 2


def test_means_that_differ_by_rounding_are_ties():
    rows = together(
        some("LRMV", [0.1, 0.2, 0.3], "C=1", "validation"), some("LRMV", [0.3, 0.2, 0.1], "C=0.01", "validation")
    )
    assert choose(rows, "validation")["candidate"].item() == "C=0.01"


def test_candidates_are_chosen_per_cell():
    rows = together(
        some("Ours", [0.9], "steps=1, b=1", "validation"),
        some("Ours", [0.8], "steps=2, b=1", "validation"),
        some("Ours", [0.3], "steps=1, b=1", "validation", cell=(12, 5)),
        some("Ours", [0.4], "steps=2, b=1", "validation", cell=(12, 5)),
    )
    found = choose(rows, "validation").set_index("n_support")["candidate"]
    assert (found[4], found[12]) == ("steps=1, b=1", "steps=2, b=1")


def test_selection_on_validation_or_test_rows():
    rows = together(
        both("Ours", [0.5], "steps=1, b=1", validation=0.9),
        both("Ours", [0.8], "steps=2, b=1", validation=0.1),
        both("w/o PA", [0.4], "steps=1", validation=0.9),
        both("w/o PA", [0.7], "steps=2", validation=0.1),
    )
    papers = select(rows, fair=False).set_index("method")["accuracy"]
    fair = select(rows, fair=True).set_index("method")["accuracy"]
    assert (papers["Ours"], papers["w/o PA"]) == (0.5, 0.7)
    assert (fair["Ours"], fair["w/o PA"]) == (0.5, 0.4)


def test_settings_as_separate_methods():
    rows = together(both("Ours", [0.5], "steps=2, b=1"), both("Ours", [0.6], "steps=2, b=10"), both("PrMV", [0.3]))
    found = spread(rows, "b", "b")
    assert list(found["method"].unique()) == ["Ours b=1", "Ours b=10"]
    assert list(spread(rows, "steps", "J")["method"].unique()) == ["Ours J=2"]
    assert [system(name) for name in ("Ours b=10", "PrMV w/ PA", "PrMV (main)")] == ["Ours", "PrMV w/ PA", "PrMV"]


def test_methods_are_in_the_papers_order():
    assert in_order(["PrSV", "w/o PA", "PrMV", "CL", "Ours b=10", "Ours b=1", "MCL", "Ours"]) == [
        "Ours", "Ours b=1", "Ours b=10", "CL", "PrMV", "MCL", "w/o PA", "PrSV",
    ]  # fmt: skip


# ---- means, standard errors, tests -----------------------------------------------------------------------------------


def test_mean_and_standard_error_pool_splits_and_crowds():
    rows = together(some("PrMV", [0.2, 0.4]), some("PrMV", [0.6], split=1), some("PrMV", [0.8], crowd=LAST))
    found = shown(summarise(rows, ["n_support", "n_annotators"]))["PrMV"]
    assert found.accuracy == pytest.approx(0.5)
    # deviations -.3 -.1 .1 .3: variance 0.2 / 3, divided by four episodes
    assert found.stderr == pytest.approx(math.sqrt(0.2 / 3 / 4))
    assert found.episodes == 4


def test_averages_weight_cells_equally():
    rows = together(some("PrMV", [0.2, 0.4]), some("PrMV", [0.7, 0.8, 0.9, 1.0], cell=(12, 5)))
    found = shown(summarise(rows, []))["PrMV"]
    assert found.accuracy == pytest.approx((0.3 + 0.85) / 2)
    # standard errors of the cells: 0.1, and sqrt(0.05 / 3 / 4)
    assert found.stderr == pytest.approx(math.sqrt(0.01 + 0.05 / 12) / 2)


def test_a_method_with_a_missing_cell_has_no_average():
    rows = together(some("PrMV", [0.2, 0.4]), some("PrMV", [0.8, 0.9], cell=(12, 5)), some("PrDS", [0.9, 1.0]))
    assert set(shown(summarise(rows, []))) == {"PrMV"}
    assert set(summarise(rows, ["n_support"])["method"]) == {"PrMV", "PrDS"}


@pytest.mark.parametrize(("ahead", "alike"), [(0.18, True), (0.19, False)])
def test_the_paired_test_at_the_significance_level(ahead, alike):
    # Differences ahead ± 0.1 over four episodes: t = ahead * sqrt(3) / 0.1, and t(3) leaves 0.05 beyond ± 3.182.
    base = np.array([0.1, 0.5, 0.3, 0.7])
    rows = together(some("PrMV", base), some("Ours", base + ahead + np.array([0.1, -0.1, 0.1, -0.1])))
    found = shown(summarise(rows, []))
    assert (found["Ours"].best, found["PrMV"].best) == (True, alike)
    assert found["PrMV"].p == pytest.approx(2 * student.sf(ahead * math.sqrt(3) / 0.1, 3))


def test_pairs_are_the_same_split_crowd_and_episode():
    """Episodes of only one method do not count, and the order of rows does not matter."""
    rows = together(
        some("Ours", [0.9, 0.5, 0.7], split=0),
        some("Ours", [0.8], split=1),
        some("PrMV", [0.6, 0.4, 0.6], split=0)[::-1],
        some("PrMV", [0.1], crowd=LAST),
    )
    d = np.array([0.3, 0.1, 0.1])
    t = d.mean() / (d.std(ddof=1) / math.sqrt(3))
    assert shown(summarise(rows, []))["PrMV"].p == pytest.approx(2 * student.sf(t, 2))


def test_paired_test_of_constant_differences():
    same, less = np.array([0.5, 0.25, 0.5]), np.array([0.4, 0.15, 0.4])
    assert p_value(same, same) == 1
    assert p_value(same, less) == 0
    assert math.isnan(p_value(same[:1], less[:1]))
    found = shown(summarise(together(some("Ours", same), some("PrMV", same), some("PrDS", less)), []))
    assert (found["Ours"].best, found["PrMV"].best, found["PrDS"].best) == (True, True, False)


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=2, max_size=12), st.randoms())
def test_a_summary_does_not_depend_on_order_or_level(counts, lots):
    values = np.array(counts).T / 80
    rows = together(*(some(name, row) for name, row in zip(("Ours", "PrMV", "CL"), values, strict=True)))
    one = summarise(rows, [])
    order = list(range(len(rows)))
    lots.shuffle(order)
    other = summarise(rows.iloc[order].assign(accuracy=lambda r: r["accuracy"] + 0.25), [])
    assert list(one["best"]) == list(other["best"])
    assert other["accuracy"].to_numpy() - 0.25 == pytest.approx(one["accuracy"].to_numpy())
    assert other["stderr"].to_numpy() == pytest.approx(one["stderr"].to_numpy(), abs=1e-12)


# ---- comparison with the paper ---------------------------------------------------------------------------------------


def test_comparison_with_the_paper_by_hand():
    rows = together(
        some("Ours", [0.5, 0.9]),  # 0.7 ± 0.2; the paper has 0.692 ± 0.009
        some("PrMV", [0.90, 0.91, 0.90, 0.91]),  # far above the paper's 0.666
        some("PrSV", [0.8, 0.9]),
    )
    both_there = paper_comparison.by_cell(
        MAIN, "omniglot", summarise(rows, ["n_support", "n_annotators"]), [CELL, (4, 5)]
    )
    found = paper_comparison.lookup(both_there, ["n_support", "n_annotators"])
    ours = found[CELL, "Ours"]
    assert ours.difference == pytest.approx(0.008)
    assert ours.in_standard_errors == pytest.approx(0.008 / math.sqrt(0.2**2 + 0.009**2))
    assert math.isnan(found[(4, 5), "Ours"].accuracy)
    assert found[(4, 5), "Ours"].paper == 0.814
    assert found[(), "Ours"].paper == pytest.approx((0.692 + 0.814) / 2)
    assert math.isnan(found[(), "Ours"].accuracy)  # one of two cells is missing
    assert "PrSV" not in set(both_there["method"])
    keys = ["n_support", "n_annotators"]
    assert paper_comparison.within(both_there, "Ours", keys) == (1, 1)
    assert paper_comparison.within(both_there, "PrMV", keys) == (0, 1)
    assert paper_comparison.within(both_there, "CL", keys) == (0, 0)


def test_adjustment_to_the_papers_episodes_by_hand():
    """Ours is 0.3 + 0.6 PrMV ± 0.02; PrMV has 0.6 here and 0.666 on the easier episodes of the paper."""
    x = np.tile([0.4, 0.6, 0.8], 4)
    rest = np.tile([0.02, -0.02], 6) * np.repeat([1, -1], 6)
    rows = together(some("PrMV", x), some("Ours", 0.3 + 0.6 * x + rest), some("PrSV", x))
    found = paper_comparison.lookup(
        paper_comparison.same_draw_by_cell(MAIN, "omniglot", rows), ["n_support", "n_annotators"]
    )
    ours = found[CELL, "Ours"]
    assert ours.accuracy == pytest.approx(0.66)
    assert ours.expected == pytest.approx(0.66 + 0.6 * 0.066)
    assert ours.difference == pytest.approx(ours.expected - 0.692)
    error = math.sqrt(12 * 0.02**2 / 10) * math.sqrt(2 / 12)
    assert ours.in_standard_errors == pytest.approx(ours.difference / error)
    assert found[(), "Ours"].in_standard_errors == pytest.approx(ours.in_standard_errors)
    assert set(found) == {(CELL, "Ours"), ((), "Ours")}, (
        "no PrMV, by which it is measured, no PrSV, of which the paper has nothing"
    )
    assert not len(paper_comparison.same_draw_by_cell(MAIN, "omniglot", some("Ours", x)))
    assert not len(
        paper_comparison.same_draw_by_cell(MAIN, "omniglot", together(some("PrMV", x[:9]), some("Ours", x[:9])))
    ), "too few"


def test_an_average_of_differences_has_the_error_of_a_mean():
    rows = together(some("Ours", [0.6, 0.8]), some("Ours", [0.7, 0.9], cell=(4, 5)))
    found = paper_comparison.by_cell(MAIN, "omniglot", summarise(rows, ["n_support", "n_annotators"]), [CELL, (4, 5)])
    ours = paper_comparison.lookup(found, ["n_support", "n_annotators"])[(), "Ours"]
    error = math.sqrt(0.1**2 + 0.1**2 + 0.009**2 + 0.007**2) / 2
    assert ours.in_standard_errors == pytest.approx((0.75 - (0.692 + 0.814) / 2) / error)


def test_our_standard_error_replaces_a_missing_one_of_the_paper():
    summary = pd.DataFrame({"dataset": ["omniglot"], "method": ["LNL"], "accuracy": [0.889], "stderr": [0.01]})
    found = paper_comparison.by_dataset(EXPERIMENTS["noisy-label-learning"], summary).set_index(["dataset", "method"])
    assert found.loc[("omniglot", "LNL"), "in_standard_errors"] == pytest.approx(-0.01 / (0.01 * math.sqrt(2)))
    assert math.isnan(found.loc[("labelme", "LNL"), "difference"])
    assert found.loc[("labelme", "LNL"), "paper"] == 0.484


# ---- tables as text --------------------------------------------------------------------------------------------------


def table_of(n_columns):
    columns = tuple(f"method {i}" for i in range(n_columns))
    lines = [layout.Line((str(i), "3"), ("**0.892** (0.003)",) * n_columns, ruled=i == 2) for i in range(3)]
    return layout.PrintedTable("t", "50% of A_B & C", ("N_S", "R"), columns, tuple(lines), pd.DataFrame({"a": [1.5]}))


@pytest.mark.parametrize("n_columns", [1, 3, 9, 25])
def test_markdown_columns_line_up_and_fit(n_columns):
    blocks = [b.splitlines() for b in layout.markdown(table_of(n_columns)).split("\n\n") if b.startswith("|")]
    for block in blocks:
        assert len({len(line) for line in block}) == 1
        assert len(block) == 2 + 3
        assert len(block[0]) <= layout.WIDTH + 20
        assert {tuple(i for i, sign in enumerate(line) if sign == "|") for line in block} == {
            tuple(i for i, sign in enumerate(block[0]) if sign == "|")
        }
    names = [word.strip() for block in blocks for word in block[0].strip("|").split("|")[2:]]
    assert names == [f"method {i}" for i in range(n_columns)]


def test_latex_is_escaped_and_balanced():
    text = layout.latex(table_of(9), "main-t")
    for part in (
        r"\caption{50\% of A\_B \& C}",
        r"\label{tab:main-t}",
        r"\textbf{0.892} (0.003)",
        r"$N_S$ & $R$ & met",
    ):
        assert part in text
    assert "**" not in text
    for word in ("tabular", "table*"):
        assert text.count(f"\\begin{{{word}}}") == text.count(f"\\end{{{word}}}") > 0
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\begin{tabular}")
    columns = re.search(r"\\begin\{tabular\}\{(l+)(r+)\}", text)
    row = next(line for line in text.splitlines() if line.startswith("0 & 3"))
    assert row.count("&") == len(columns[1]) + len(columns[2]) - 1
    assert layout.escaped("a_b 5% {x} `c_d` −1 † 2²") == r"a\_b 5\% \{x\} \texttt{c\_d} $-$1 $^\dagger$ 2$^2$"


# ---- whole tables from a store ---------------------------------------------------------------------------------------


def two_methods(**place):
    """Return rows in which Ours is better than PrMV by 0.1 ± 0.02 and close to PrSV."""
    base = np.array([0.5, 0.6, 0.7, 0.6])
    return together(
        both("Ours", base + np.array([0.12, 0.08, 0.12, 0.08]), "steps=2, b=10", validation=0.9, **place),
        both("Ours", base + 0.3, "steps=1, b=1", validation=0.2, **place),
        both("PrMV", base, **place),
        both("PrSV", base + np.array([0.08, 0.1, 0.1, 0.1]), **place),
    )


@pytest.fixture
def results(tmp_path):
    keep(tmp_path, "main", two_methods())
    return tmp_path


def test_the_main_tables(results):
    assert paper_tables.make("main", results) == [f"main: 3 tables in {results / 'main' / 'tables.md'}."]
    text = (results / "main" / "tables.md").read_text()
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("| N_S"))
    cells = ([word.strip() for word in lines[i].strip("|").split("|")] for i in (head, head + 2))
    found = dict(zip(*cells, strict=True))
    assert (found["N_S"], found["R"]) == ("4", "3")
    # mean 0.7; deviations -.08 -.02 .12 -.02, so that the standard error is sqrt(0.0216 / 3 / 4)
    assert found["Ours"] == "**0.700** (0.042)"
    assert found["PrMV"] == "0.600 (0.041)"
    assert "LRMV" not in found, "nothing was run of it"
    for part in (
        " PrSV† |",
        "† Not in the paper",
        "Ours, chosen on validation: (4, 3) steps=2, b=10.",
        "would have (4, 3) 0.900, Avg. 0.900.",  # its best candidate on test
        "0.666",  # PrMV in the paper
        "1 of 1",  # Ours within two standard errors of the paper's 0.692
    ):
        assert part in text
    data = pd.read_csv(results / "main" / "omniglot.csv")
    ours = data[(data["method"] == "Ours") & (data["n_support"] == 4)].iloc[0]
    assert (ours["candidate"], ours["episodes"], ours["best"]) == ("steps=2, b=10", 4, True)
    assert {f"omniglot{kind}.{end}" for kind in ("", "-fair", "-twin") for end in ("csv", "tex")} <= {
        file.name for file in (results / "main").iterdir()
    }


def test_tables_are_reproducible(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    paper_tables.make("main", results, out)
    first = {file.name: file.read_bytes() for file in (out / "main").iterdir()}
    paper_tables.make("main", results, out)
    assert first == {file.name: file.read_bytes() for file in (out / "main").iterdir()}
    assert not (results / "main" / "tables.md").exists()


def test_experiments_that_were_not_run_are_reported(tmp_path):
    messages = paper_tables.make("all", tmp_path)
    assert len(messages) == len(EXPERIMENTS)
    assert "dirichlet-b: there are no rows; run `crowdshot paper run main` first." in messages
    assert "labelme: there are no rows; run `crowdshot paper run labelme` first." in messages
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CrowdshotError, match="no experiment 'nope'"):
        paper_tables.make("nope", tmp_path)


def test_methods_tested_on_the_first_episodes_are_reported(tmp_path):
    whole = both("Ours", [0.5, 0.6, 0.7], "steps=1, b=1")
    keep(tmp_path, "main", together(whole, both("CL", [0.4], "iterations=10")))
    paper_tables.make("main", tmp_path)
    note = "Omniglot, first episodes of each crowd and split only: CL (1 of 3)."
    assert note in (tmp_path / "main" / "tables.md").read_text()


def test_missing_rows_of_a_method_are_reported(results):
    keep(results, "main", two_methods(cell=(12, 5)).query("method != 'PrSV' and candidate != 'steps=1, b=1'"))
    paper_tables.make("main", results)
    text = (results / "main" / "tables.md").read_text()
    assert "Incomplete (cells by splits): PrSV (1 of 2)." in text
    assert "Some splits have fewer candidates: Ours (1 of 2)." in text
    assert "The average is over the cells that were run." in text


def test_averages_by_dataset_use_ours_from_main(results):
    keep(results, "main", two_methods(dataset="miniimagenet"))
    keep(results, "noisy-label-learning", both("LNL", [0.9, 0.9, 0.9, 0.8]))
    paper_tables.make("noisy-label-learning", results)
    data = pd.read_csv(results / "noisy-label-learning" / "average.csv").set_index(["dataset", "method"])
    assert data.loc[("omniglot", "LNL"), "accuracy"] == pytest.approx(0.875)
    assert data.loc[("omniglot", "Ours"), "accuracy"] == pytest.approx(0.7)
    text = (results / "noisy-label-learning" / "tables.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| miniImageNet")]
    assert lines[0].replace(" ", "").endswith("|0.700(0.042)|–|")  # no other method to compare with
    assert "PrMV" not in text
    twin = pd.read_csv(results / "noisy-label-learning" / "average-twin.csv").set_index(["dataset", "method"])
    assert twin.loc[("miniimagenet", "Ours"), "paper"] == 0.542


def test_tables_name_the_precision_of_meta_training(results):
    assert "meta-trained" not in made(results)
    Store(results, "main", "omniglot").note_run({"command": "crowdshot paper run main", "precision": "bfloat16"})
    assert "Omniglot: encoders were meta-trained in bfloat16." in made(results)


def made(results):
    paper_tables.make("main", results)
    return (results / "main" / "tables.md").read_text()


def test_main_has_the_same_settings_as_other_encoders(results):
    keep(results, "main", together(two_methods(), both("Ours", [0.3] * 4, "steps=2, b=100", validation=0.1)))
    keep(results, "each-cell", together(both("Ours", [0.4] * 4, "steps=2, b=100"), both("PrMV", [0.2] * 4)))
    paper_tables.make("each-cell", results)
    data = pd.read_csv(results / "each-cell" / "omniglot.csv").dropna(subset="n_support").set_index("method")
    expected = {"Ours": 0.4, "Ours (main)": 0.3, "PrMV": 0.2, "PrMV (main)": 0.6}
    assert dict(data["accuracy"]) == pytest.approx(expected)
    twin = pd.read_csv(results / "each-cell" / "omniglot-twin.csv").dropna(subset="accuracy").set_index("method")
    assert dict(twin["paper"]) == {"Ours": 0.692, "Ours (main)": 0.692, "PrMV": 0.666, "PrMV (main)": 0.666}


def test_ours_by_b_chooses_j_on_validation(results):
    paper_tables.make("dirichlet-b", results)
    data = pd.read_csv(results / "dirichlet-b" / "average.csv").set_index("method")["accuracy"]
    assert dict(data) == pytest.approx({"Ours b=1": 0.9, "Ours b=10": 0.7})


def test_ours_by_steps_chooses_b_on_validation(results):
    more = [both("w/o PA", [0.2 * steps] * 4, f"steps={steps}") for steps in (1, 2)]
    keep(results, "main", together(two_methods(), both("Ours", [0.1] * 4, "steps=2, b=1", validation=0.3), *more))
    paper_tables.make("em-steps", results)
    data = pd.read_csv(results / "em-steps" / "omniglot.csv").set_index(["J", "method"])["accuracy"]
    assert dict(data) == pytest.approx({(1, "Ours"): 0.9, (2, "Ours"): 0.7, (1, "w/o PA"): 0.2, (2, "w/o PA"): 0.4})


def test_settings_are_compared_on_the_same_episodes(results):
    """The second cell has only two steps; averages with it would mix the effects of cells and of J."""
    keep(results, "main", both("Ours", [0.1] * 4, "steps=2, b=10", cell=(12, 5)))
    paper_tables.make("em-steps,dirichlet-b", results)
    data = pd.read_csv(results / "em-steps" / "omniglot.csv").set_index("J")["accuracy"]
    assert dict(data) == pytest.approx({1: 0.9, 2: 0.7})
    data = pd.read_csv(results / "dirichlet-b" / "average.csv").set_index("method")["accuracy"]
    assert dict(data) == pytest.approx({"Ours b=1": 0.9, "Ours b=10": 0.7})
    for name in ("em-steps", "dirichlet-b"):
        message = "Over the 1 of 2 cells and splits that were run with all these settings."
        assert message in (results / name / "tables.md").read_text()


def test_settings_for_spammers_are_chosen_per_cell(tmp_path):
    rows = together(
        both("CL", [0.9, 0.9], "iterations=10"),
        some("CL", [0.1, 0.1], "iterations=10", crowd=LAST),
        both("CL", [0.6, 0.6], "iterations=100"),
        some("CL", [0.5, 0.5], "iterations=100", crowd=LAST),
    )
    keep(tmp_path, "main", rows)
    paper_tables.make("spammers", tmp_path)
    data = pd.read_csv(tmp_path / "spammers" / "omniglot.csv").set_index("spammers")["accuracy"]
    assert dict(data) == pytest.approx({0.1: 0.6, 0.4: 0.5})  # 100 iterations have a mean of 0.55, 10 have 0.5


def test_tables_of_toy_runs_are_marked(results):
    Store(results, "main", "omniglot").note_run({"command": "crowdshot paper run main --quick"})
    paper_tables.make("main", results)
    assert "TOY SIZE" in (results / "main" / "tables.md").read_text()


def test_a_method_of_a_missing_package_is_marked(results):
    keep(results, "main", together(both("Ours plus", [0.3] * 4), both("Stars", [0.3] * 4)))
    paper_tables.make("main", results)
    text = (results / "main" / "tables.md").read_text()
    assert " Ours plus† |" in text
    assert " Stars† |" in text
    assert "† Not in the paper. Ours plus: from a package that is not installed. PrSV: distances" in text
    assert "Stars: from a package that is not installed." in text


def test_methods_added_to_the_papers_are_marked(monkeypatch):
    monkeypatch.setattr(paper_comparison, "ADDED", ("PrSV", "NN", "NNMV"))
    names = ["Ours", "PrSV", "PrSV wide", "NNMV", "NN b=2", "labeling-search"]
    assert [*map(paper_comparison.column_name, names)] == [
        "Ours",
        "PrSV†",
        "PrSV† wide",
        "NNMV†",
        "NN† b=2",
        "labeling-search",
    ]


# ---- sources of tables -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tables_name_their_rows(tmp_path):
    def last_line():
        paper_tables.make("main", tmp_path)
        return (tmp_path / "main" / "tables.md").read_text().splitlines()[-1]

    keep(tmp_path, "main", both("CL", [0.6, 0.7], "iterations=10"))
    Store(tmp_path, "main", "omniglot").compact()
    first = last_line()
    assert re.fullmatch(r"Made of the rows main/omniglot \([0-9a-f]{8}\)\.", first)
    assert last_line() == first
    keep(tmp_path, "main", both("PrMV", [0.6, 0.7], ""))
    Store(tmp_path, "main", "omniglot").compact()
    assert last_line() != first


COMMITTED = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("page", sorted(COMMITTED.glob("*/tables.md")), ids=lambda page: page.parent.name)
def test_committed_tables_belong_to_the_committed_rows(page):
    """Run `crowdshot paper tables` after every change of rows; many tables use rows of other experiments."""
    sources = re.findall(r"([\w-]+/[\w-]+) \(([0-9a-f]{8})\)", page.read_text().splitlines()[-1])
    assert sources
    for place, number in sources:
        assert f"{zlib.crc32((COMMITTED / place / 'rows.parquet').read_bytes()):08x}" == number, place


# ---- cost ------------------------------------------------------------------------------------------------------------


def test_seconds_by_hand(tmp_path):
    cell = {"cell": (4, 5)}
    keep(tmp_path, "main", both("Ours", [0.8, 0.9], "steps=2, b=10", **cell), {"seconds": 9.0, "candidates": 18})
    keep(tmp_path, "main", both("CL", [0.6, 0.7], "iterations=10", **cell), {"seconds": 30.0, "candidates": 3})
    here, other = (
        wanted(MAIN_OURS, MAIN_OURS.default, TARGETS["omniglot"], Cell(4, 5, LAST), 0, trained_for)
        for trained_for in (MAIN.encoders, "cell")
    )
    store = Store(tmp_path, "main", "omniglot")
    about = {"candidates": 90, "device": "GPU", "split": 0}
    store.note_training("one", [{"encoder": here.name, "seconds": 4.0, **about}])
    store.note_training("two", [{"encoder": other.name, "seconds": 99.0, **about}])
    store.note_training("few", [{"encoder": here.name, "seconds": 20.0, **about, "candidates": 5}])  # a smaller stack
    found = paper_tables.seconds(paper_tables.all_times(tmp_path), store.rows()).set_index("method")
    ours = found.loc["Ours"]
    assert (ours["meta_train_seconds"], ours["stack"], ours["stack_seconds"]) == (4.0, 90, 360.0)
    assert ours["test_seconds_all"] == pytest.approx(9 / 250 * 50)
    assert ours["test_seconds"] == pytest.approx(9 / 250 * 50 / 18)
    assert (ours["accuracy"], ours["paper_accuracy"]) == pytest.approx((0.85, 0.814))
    assert found.loc["CL", "test_seconds"] == pytest.approx(2.0)
    assert math.isnan(found.loc["CL", "meta_train_seconds"])
    assert math.isnan(found.loc["PrMV", "test_seconds"])
    paper_tables.make("cost", tmp_path)
    bill = pd.read_csv(tmp_path / "cost" / "bill.csv").set_index("what")["minutes"]
    assert dict(bill) == pytest.approx({"test": 39 / 60, "meta-training": 123 / 60}, rel=1e-4)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command(results):
    done = crowdshot(results, "paper", "tables", "main,labelme", "--results", results)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"main: 3 tables in {results / 'main' / 'tables.md'}.",
        "labelme: there are no rows; run `crowdshot paper run labelme` first.",
    ]
    assert (results / "main" / "omniglot.tex").exists()


# ---- beyond the paper ------------------------------------------------------------------------------------------------


def test_share_of_the_gap_closed_by_labelings():
    """Means: soft votes 0.5, Labelings 0.6, true matrices 0.75, true labels 0.9, other methods 0.55 and 0.4."""
    accuracies = {
        "labeling-search": (0.5, 0.7),
        "PrSV wide": (0.4, 0.6),
        "EM wide": (0.5, 0.62),
        "labeling-search narrow": (0.9, 0.9),  # variants, upper bounds and our own methods are not compared methods
        "combined": (0.9, 0.9),
        "True matrices": (0.7, 0.8),
        "True labels": (0.9, 0.9),
        "PrDS": (0.52, 0.58),
        "PrMV": (0.3, 0.5),
    }
    rows = together(
        *(
            both(name, [value] * 2, cell=cell)
            for name, pair in accuracies.items()
            for cell, value in zip([(4, 3), (4, 5)], pair, strict=True)
        )
    )
    found = paper_tables.table({"omniglot": rows, "labelme": rows[rows["method"] != "True labels"]})
    assert found is not None
    ((label,), cells, _) = found.lines[0]
    assert len(found.lines) == 1, "LabelMe lacks a ceiling"
    values = dict(zip(found.columns, cells, strict=True))
    assert label == "Omniglot"
    assert values["best rival"] == "0.550 (PrDS)"
    assert values["best rival, wide"] == "0.560 (EM wide)"
    assert (values["labeling-search"], values["ahead"]) == ("0.600", "1 of 2")
    assert (values["closed"], values["closed of that"]) == ("40%", "25%")
    assert values["calibration error"] == "0.100"
    assert paper_tables.table({"omniglot": rows[rows["method"] == "labeling-search"]}) is None


def test_captions_name_methods_chosen_on_validation():
    rows = together(
        both("Ours", [0.5], "steps=2, b=100"),
        both("PrDS", [0.4], "steps=2"),
        both("labeling-search", [0.6], "scale=20, tau=0.5"),
    )
    beyond = EXPERIMENTS["beyond"]
    papers, fair = paper_tables._by_cell(beyond, "omniglot", rows, [])[:2]
    assert papers.caption.endswith(
        "Ours and labeling-search show the candidate that is best on validation, every other method its best on test, "
        "as in the paper."
    )
    assert fair.caption.endswith(paper_tables.FAIR)
    assert papers.columns == ("Ours", "PrDS", "labeling-search"), "nothing was run of the others"
    (note_of_missing,) = [note for note in papers.notes if note.startswith("Not run: ")]
    assert note_of_missing.split(": ")[1].startswith("features, combined, labeling-search narrow")
