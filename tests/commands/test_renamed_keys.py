"""Test that `--json` has all keys of 0.2.0, under their old names or the ones that docs/deprecation.md lists."""

import json
import re
from pathlib import Path

import pytest

from forked import crowdshot

PAGE = Path(__file__).parents[2] / "docs" / "deprecation.md"
CROWD = "items annotators labels classes"
END = "near_twins respelled left_out files"
OF_PEOPLE = "annotator_column annotator_table"
GOLD = "gold gold_from gold_right gold_labelled gold_low gold_high gold_claimed shared_mistakes"
KEYS = {  # of 0.2.0
    "aggregate": f"method {CROWD} settled settled_at {OF_PEOPLE} {GOLD} {END}",
    "adapt": f"method method_summary {CROWD} settled settled_at predicted predicted_settled need_a_person classifier"
    f" do_next agreement looks {OF_PEOPLE} {GOLD} {END}",
    "predict": "method method_summary items settled classes settled_at left_out files",
    "next": f"{CROWD} n_questions asked_items asked_annotators cost budget doubt gain errors_mended unasked fewer most"
    f" not_settled nobody_left {END} questions",
    "compare": "settled items labels settled_at annotators changed newly_settled reopened added gone files",
    "simulate": f"{CROWD} left_out files",
}
NESTED = {
    ("adapt", "looks"): "of foretold by_class_sizes helped differ differ_items unsaid unsaid_items",
    ("adapt", "classifier"): "share low high verdict",
    ("next", "questions"): "item annotator label gain believed confidence n_labels",
    ("compare", "annotators"): "annotator before before_low before_high before_n_labels after after_low after_high"
    " after_n_labels change change_low change_high verdict",
}


def renamed(command: str) -> dict[str, str]:
    """Read the names that replace those of 0.2 in the results of a command."""
    found = {}
    for where, old, new in re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        if f"`{command}`" in where:
            found.update(zip(re.findall("`(.+?)`", old), re.findall("`(.+?)`", new), strict=True))
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Run each command on one small crowd."""
    folder = tmp_path_factory.mktemp("results")

    def run(*words: str) -> dict:
        done = crowdshot(folder, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    found = {"simulate": run("simulate", "--out", "crowd", "--items", "24", "--classes", "2")}
    truth = (folder / "crowd" / "truth.csv").read_text().splitlines()
    (folder / "gold.csv").write_text("\n".join(truth[:5]))
    rows = [f"{line.split(',')[0]},{n % 7},{len(line.split(',')[1])},{n}" for n, line in enumerate(truth[1:])]
    (folder / "features.csv").write_text("\n".join(["item,a,b,c", *rows, "new,1,2,3"]))
    labels, features, gold = "crowd/labels.csv", ("--features", "features.csv"), ("--gold", "gold.csv")
    found["aggregate"] = run("aggregate", labels, "--out", "consensus.csv", *gold)
    found["adapt"] = run("adapt", labels, *features, "--out", "one", *gold)
    run("adapt", labels, *features, "--out", "two")
    found["predict"] = run("predict", "one/model.safetensors", *features, "--out", "predictions.csv")
    found["next"] = run("next", labels, "--budget", "3", "--annotators-available", "Zoe")
    found["compare"] = run("compare", "one", "two")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", KEYS)
def test_keys_of_0_2_0(results: dict[str, dict], command: str) -> None:
    names, result = renamed(command), results[command]
    assert {names.get(key, key) for key in KEYS[command].split()} <= set(result)
    for (of, key), nested in NESTED.items():
        if of == command:
            part = result[names.get(key, key)]
            part = part[0] if isinstance(part, list) else part
            assert {names.get(name, name) for name in nested.split()} <= set(part)


@pytest.mark.slow
def test_columns_are_reported_where_label_files_are_read(results: dict[str, dict]) -> None:
    assert results["aggregate"]["sources"][0]["columns"]["annotator"] == "annotator"
    assert "sources" not in results["simulate"].keys() | results["predict"].keys()
