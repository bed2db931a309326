"""Test the paper's figures: their values, their files, and illustrations without their encoders."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.encoders.encoder_files import build_encoder, save_encoder
from crowdshot_paper import experiments, figures, illustrations, work
from crowdshot_paper.draws import split_classes, toy_dataset
from crowdshot_paper.encoder_plan import wanted
from crowdshot_paper.episode_cells import TARGETS
from crowdshot_paper.experiments import EXPERIMENTS
from crowdshot_paper.registry import METHODS
from crowdshot_paper.selection import reader
from forked import crowdshot
from paper_rows import CELL, LAST, both, keep, some


def place(root):
    return work.Place(root / "results", root / "work", None, experiments.QUICK)


def together(*parts):
    return pd.concat(parts, ignore_index=True)


def rows_of(**place):
    """Return rows of Ours with two numbers of steps and two values of b, and of three other methods, for two crowds."""
    parts = []
    for crowd, less in ((None, 0.0), (LAST, 0.1)):
        base = np.array([0.5, 0.6, 0.7]) - less
        for steps in (1, 2):
            parts.append(some("Ours", base + 0.1 * steps, f"steps={steps}, b=10", crowd=crowd, **place))
            parts.append(some("w/o PA", base - 0.1 * steps, f"steps={steps}", crowd=crowd, **place))
        parts += [some("PrMV", base, crowd=crowd, **place), some("PrSV", base + 0.05, crowd=crowd, **place)]
    tested = together(*parts)
    known = tested[tested["episode"] == 0].drop_duplicates(["method", "candidate"])
    return together(tested, known.assign(role="validation", mixture="E0.1 H0.7 S0.2"))


def texts(file):
    return file.with_suffix(".svg").read_text()


# ---- layout ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0.001, 0.3))
def test_names_keep_their_distance_and_their_order(heights, gap):
    wished = np.sort(heights)
    placed = figures.spaced(wished, gap)
    assert (np.diff(placed) >= gap - 1e-9).all()
    assert placed.mean() == pytest.approx(wished.mean())
    if (np.diff(wished) >= gap).all():
        assert placed == pytest.approx(wished)


def test_two_names_at_one_height_are_moved_equally():
    assert figures.spaced(np.array([0.5, 0.5, 0.9]), 0.1) == pytest.approx([0.45, 0.55, 0.9])


# ---- from rows -------------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_dot_plot():
    rows = together(
        both("Ours", [0.6, 0.8], "steps=2, b=10"),
        both("CL", [0.5, 0.5], "iterations=10", validation=0.9),
        both("CL", [0.7, 0.7], "iterations=100", validation=0.1),
    )
    table = figures.average_table(EXPERIMENTS["main"], "omniglot", rows).set_index("method")
    assert table.loc["Ours", ["accuracy", "stderr", "fair", "paper"]].tolist() == pytest.approx([0.7, 0.1, 0.7, 0.692])
    assert table.loc["CL", ["accuracy", "fair", "paper"]].tolist() == pytest.approx([0.7, 0.5, 0.569])
    assert np.isnan(table.loc["PrMV", "accuracy"])  # not run, but the paper has it
    assert table.loc["PrMV", "paper"] == 0.666


@pytest.mark.slow
@pytest.mark.parametrize("name", ["main", "spammers", "em-steps"])
def test_drawing_is_reproducible(tmp_path, name):
    keep(tmp_path / "results", "main", rows_of())
    messages = figures.make(name, place(tmp_path))
    file = tmp_path / "results" / name / f"{name}.png"
    assert messages == [f"{name}: {file} and {name}.svg."]
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "miniImageNet" not in texts(file)  # not run
    assert "Ours" in texts(file)
    first = texts(file)
    figures.make(name, place(tmp_path), tmp_path / "again")
    assert (tmp_path / "again" / name / f"{name}.svg").read_text() == first


def test_the_papers_curve_is_drawn_with_ours(tmp_path):
    for shots in (5, 10):
        keep(tmp_path / "results", "large-support", rows_of(cell=(4 * shots, 7), dataset="miniimagenet"))
    figures.make("large-support", place(tmp_path))
    text = texts(tmp_path / "results" / "large-support" / "large-support.png")
    assert "Ours, paper" in text
    assert "miniImageNet" in text
    assert "not in the paper" in text  # PrSV


def test_spammers_are_drawn_at_their_share(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(figures, "draw_lines", lambda ax, courses, ticks: seen.extend(courses))
    figures.spammers(EXPERIMENTS["spammers"], {"omniglot": rows_of()})
    ours = next(course for course in seen if course.name == "Ours")
    assert ours.x == [0.1, 0.4]
    # validation chooses two steps: means 0.6 and 0.5 plus 0.2
    assert ours.y == pytest.approx([0.8, 0.7])
    assert ours.error == pytest.approx([0.1 / np.sqrt(3)] * 2)


def test_missing_rows_are_reported(tmp_path):
    messages = figures.make("main,cost,labelme,embedding", place(tmp_path))
    assert messages[0] == "main: there are no rows; run `crowdshot paper run main` first."
    assert messages[1].startswith("cost: there are no rows")
    assert messages[2] == "labelme: there are no rows; run `crowdshot paper run labelme` first."
    assert "encoder of Ours" in messages[3]
    assert "`crowdshot paper run main --dataset omniglot --methods 'Ours,w/o PA'`" in messages[3]
    assert not (tmp_path / "results").exists()


# ---- illustrations ---------------------------------------------------------------------------------------------------


@pytest.fixture
def encoded(tmp_path):
    """Return settings whose work folder has untrained encoders in place of trained ones."""
    told, spec = place(tmp_path), toy_dataset("omniglot").input
    last = told.protocol.cells(EXPERIMENTS["main"], "omniglot")[-1]
    for name in ("Ours", "w/o PA"):
        method = METHODS[name]
        for candidate in told.protocol.candidates(method):
            one = wanted(
                method, candidate, TARGETS["omniglot"], last, 0, EXPERIMENTS["main"].encoders, told.protocol.iterations
            )
            one.file(told.work).parent.mkdir(parents=True, exist_ok=True)
            save_encoder(build_encoder("conv4", {"channels": 1, "width": 4}, spec), one.file(told.work))
    return told


@pytest.mark.slow
def test_illustrations_are_drawn_without_their_encoders(encoded, tmp_path):
    told = figures.make("embedding,confusion", encoded)
    assert [line.split(":")[0] for line in told] == ["embedding", "confusion"]
    assert all(line.endswith(".svg.") for line in told)
    points = pd.read_csv(illustrations.stored(encoded.results, "embedding"))
    counts = points.groupby(["panel", "role"]).size()
    assert dict(counts["Original"]) == {"query": 40, "support": 12}
    assert dict(counts["Ours"]) == dict(counts["w/o PA"]) == {"query": 40, "support": 12, "prototype": 4}
    assert points["accuracy"].between(0, 1).sum() == 2 * 56
    for file in (encoded.work / "encoders" / "omniglot").iterdir():
        file.unlink()
    again = figures.make("embedding,confusion", encoded, tmp_path / "again")
    assert all(line.endswith(".svg.") for line in again)
    for name in ("embedding", "confusion"):
        first, second = (root / name / f"{name}.svg" for root in (encoded.results, tmp_path / "again"))
        assert first.read_bytes() == second.read_bytes()


def test_confusion_by_hand(encoded):
    table = illustrations.confusion(encoded, reader(encoded.results))
    wide = table.pivot_table(index=["what", "annotator", "true"], columns="observed", values="probability")
    assert wide.sum(axis=1).to_numpy() == pytest.approx(1.0, abs=1e-5)
    assert wide.loc[("truth", 1, 2), [1, 2]].tolist() == pytest.approx([0.04, 0.88])
    assert wide.loc[("truth", 5, 4)].tolist() == pytest.approx([0.25] * 4)
    # three items a class, one simulated label in each place: (3 * 0.88 + 1) / (3 + 4)
    assert wide.loc[("truth through the prior", 1, 2), 2] == pytest.approx(0.52)
    assert list(table["kind"].drop_duplicates()) == ["expert", "spammer", "hammer"]


def test_illustrations_show_unseen_classes(encoded):
    drawn = illustrations._draw(encoded)
    dataset = toy_dataset("omniglot")
    fitted = work.fitted(TARGETS["omniglot"], dataset, encoded)
    learned, validated, tested = split_classes(fitted, len(dataset.pool.names), illustrations.SPLIT)
    assert set(drawn.items.classes.flatten().tolist()) <= set(tested) - set(learned) - set(validated)
    right = (drawn.labels == drawn.items.support_truth[..., None]).double().mean((0, 1))
    expected = [accuracy for _, accuracy in illustrations.ANNOTATORS]
    assert right.tolist() == pytest.approx(expected, abs=0.04)  # 2,400 labels each


def test_the_settings_shown_are_those_that_validation_chose(encoded):
    size = encoded.protocol.cells(EXPERIMENTS["main"], "omniglot")[-1].size
    rows = together(
        both("Ours", [0.5], "steps=1, b=10", validation=0.9, cell=size),
        both("Ours", [0.9], "steps=2, b=10", validation=0.1, cell=size),
    )
    keep(encoded.results, "main", rows)
    candidate, one = illustrations._best_encoder("Ours", encoded, reader(encoded.results))
    assert candidate == {"steps": 1, "b": 10.0}
    assert (one.steps, one.b) == (1, 10.0)
    one.file(encoded.work).unlink()
    second, _ = illustrations._best_encoder("Ours", encoded, reader(encoded.results))
    assert second == {"steps": 2, "b": 10.0}, "the best of those whose encoder was kept"


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command(tmp_path):
    keep(tmp_path, "main", rows_of(cell=CELL))
    words = ["paper", "figures", "em-steps,labelme", "--results", tmp_path, "--out", tmp_path / "out"]
    done = crowdshot(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "out" / "em-steps" / "em-steps.png"
    assert done.stdout.splitlines() == [
        f"em-steps: {file} and em-steps.svg.",
        "labelme: there are no rows; run `crowdshot paper run labelme` first.",
    ]
    assert file.exists()
