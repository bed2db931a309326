"""Result folders: what stands in the files, and that they come together or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdshot import CrowdClassifier
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import check_file, check_folder, check_table, write_file, write_folder
from crowdshot.labels.columns import Columns
from crowdshot.report.result_tables import check_columns, write_results
from crowdshot.report.summary import records

NAMES = ["annotators.csv", "confusion.csv", "consensus.csv", "model.safetensors"]


@pytest.fixture(scope="module")
def clf() -> CrowdClassifier:
    X = pd.DataFrame([[0.0, 0.1], [0.2, 0.0], [5.0, 5.1], [5.2, 4.9], [5.1, 5.0]], index=list("abcde"))
    rows = [(i, w, "xxyy"["abcd".index(i)]) for i in "abcd" for w in ("007", "bob")]
    return CrowdClassifier("identity").fit(X, pd.DataFrame(rows, columns=["image", "worker", "answer"]))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_files_say_what_the_classifier_says(clf: CrowdClassifier, tmp_path: Path) -> None:
    written = write_results(clf, tmp_path / "deep" / "out")
    assert everything(tmp_path / "deep" / "out") == NAMES == sorted(path.name for path in written)
    consensus, annotators, confusion = (
        pd.read_csv(tmp_path / "deep" / "out" / f"{name}.csv", dtype={"worker": str})
        for name in ("consensus", "annotators", "confusion")
    )
    assert list(consensus) == ["image", "answer", "confidence", "n_labels", "agreement"]
    assert consensus["image"].tolist() == list("abcde")
    assert consensus["answer"].tolist() == list("xxyyy")
    assert consensus["n_labels"].tolist() == [2, 2, 2, 2, 0]
    assert annotators["worker"].tolist() == ["007", "bob"]
    assert list(confusion) == ["worker", "true", "observed", "probability"]
    assert confusion["worker"].tolist() == ["007"] * 4 + ["bob"] * 4
    np.testing.assert_allclose(confusion["probability"], clf.confusion_.ravel(), rtol=1e-5)
    # annotator 007 said y of true x: the second row
    row = confusion.query("worker == '007' and true == 'x' and observed == 'y'")["probability"].item()
    assert row == pytest.approx(clf.confusion_[0, 0, 1], rel=1e-5)
    again = CrowdClassifier.load(tmp_path / "deep" / "out" / "model.safetensors")
    assert again.predict([[0.1, 0.1]]).tolist() == ["x"]


def test_what_an_earlier_run_left_beside_new_results_is_told(clf: CrowdClassifier, tmp_path: Path) -> None:
    (tmp_path / "predictions.json").write_text("of another project")
    with pytest.warns(UserWarning, match=r"predictions\.json is from an earlier run"):
        write_results(clf, tmp_path, overwrite=True)
    assert (tmp_path / "predictions.json").read_text() == "of another project"


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_file(link, pd.DataFrame({"a": [1]}))
    assert link.is_symlink()
    assert target.read_text() == "a\n1\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert everything(tmp_path) == ["link.csv", "target.csv"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, pd.DataFrame({"a": [1]}))
    assert os.read(reader, 100) == b"a\n1\n"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no such name here")
def test_what_stdout_is_called_is_written_to() -> None:
    code = "from crowdshot.io.atomic import write_file; from pathlib import Path; import pandas as pd;"
    code += "write_file(Path('/dev/stdout'), pd.DataFrame({'a': [1]}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a\n1\n"


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(CrowdshotError, match=r"loop could not be written"):
        write_file(tmp_path / "loop", pd.DataFrame({"a": [1]}))


@pytest.mark.parametrize("name", ["table.parquet", "table.json", "table.tsv", "photo.png"])
def test_a_name_that_promises_something_else_than_csv_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CrowdshotError, match=f"{name} is not a name for a CSV file, expected a name that ends in .csv"):
        check_table(tmp_path / name)


def test_a_folder_that_is_not_empty_is_refused_or_written_into(clf: CrowdClassifier, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write_results(clf, out)  # empty: fine
    (out / "mine.txt").write_text("keep")
    (out / "consensus.csv").write_text("old")
    with pytest.raises(CrowdshotError, match=r"out is not empty, .*overwrite=True"):
        write_results(clf, out)
    assert (out / "consensus.csv").read_text() == "old"
    write_results(clf, out, overwrite=True)
    assert (out / "consensus.csv").read_text().startswith("image,answer")
    assert everything(out) == sorted([*NAMES, "mine.txt"])


@pytest.mark.parametrize("broken", ["pandas.DataFrame.to_csv", "pathlib.Path.write_bytes", "os.replace"])
@pytest.mark.parametrize("existing", [False, True])
def test_of_a_full_disk_nothing_stays(
    clf: CrowdClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, existing: bool
) -> None:
    if existing:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "consensus.csv").write_text("old")
    before = everything(tmp_path)
    monkeypatch.setattr(broken, full)
    with pytest.raises(CrowdshotError, match=r"new(/model.safetensors)? could not be written .No space left on device"):
        write_results(clf, tmp_path / "new", overwrite=True)
    assert everything(tmp_path) == before
    if existing:
        assert (tmp_path / "new" / "consensus.csv").read_text() == "old"


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "a" / "b", {"one": lambda path: None, "two": interrupted})
    assert everything(tmp_path) == []


def test_out_must_be_a_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CrowdshotError, match="file is a file, expected a folder"):
        check_folder(tmp_path / "file", overwrite=True)
    with pytest.raises(CrowdshotError, match=r"out cannot be created: .*file is a file"):
        check_folder(tmp_path / "file" / "out", overwrite=False)
    monkeypatch.setattr("os.access", lambda *_: False)  # for root everything is writable
    with pytest.raises(CrowdshotError, match="no permission to write"):
        check_folder(tmp_path / "out", overwrite=False)


def test_one_file_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "t.csv"
    write_file(out, pd.DataFrame({"item": ["é", "b"], "x": [1 / 3, np.nan]}))
    assert out.read_text("utf-8") == "item,x\né,0.333333\nb,\n"
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(CrowdshotError, match=r"t.csv could not be written .No space"):
        write_file(out, pd.DataFrame({"item": ["new"]}))
    assert everything(tmp_path) == ["t.csv"]
    assert "new" not in out.read_text("utf-8")


def test_out_is_not_an_input(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("x")
    check_file(tmp_path / "other.csv", tmp_path / "labels.csv", None)
    with pytest.raises(CrowdshotError, match="is an input file"):
        check_file(tmp_path / "." / "labels.csv", tmp_path / "labels.csv")
    with pytest.raises(CrowdshotError, match="is a folder"):
        check_file(tmp_path)
    with pytest.raises(CrowdshotError, match=r"in the folder .*no, which does not exist"):
        check_file(tmp_path / "no" / "x.csv")


def test_names_of_ours_are_not_names_of_theirs() -> None:
    check_columns(Columns("true", "label", "annotator"), "t")
    with pytest.raises(CrowdshotError, match="label column") as error:
        check_columns(Columns("item", "annotator", "confidence"), "t")
    assert (error.value.where, error.value.found) == ("t", "confidence")


def test_records_are_plain_json() -> None:
    assert records(pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]})) == [{"a": 1, "b": 0.5}, {"a": 2, "b": None}]
