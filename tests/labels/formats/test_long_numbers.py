"""Check that ids that lost digits in a spreadsheet, or as floats, are reported and get no invented digits."""

import json
import warnings

import pandas as pd
import pytest
from openpyxl import Workbook

from crowdshot import read_labels
from crowdshot.errors import CrowdshotWarning

IDS = [1234567890123456789, 1234567890123456790, 1734567890123456791]
SHORT = "a long number whose last digits are lost"


def rows(ids):
    return [(name, who, "ab"[n % 2]) for n, name in enumerate(ids) for who in ("ann", "bob")]


def as_csv(path, ids):
    pd.DataFrame(rows([f"{float(name):.5E}" for name in ids]), columns=["item", "annotator", "label"]).to_csv(
        path, index=False
    )


def as_parquet(path, ids):
    pd.DataFrame(rows(map(float, ids)), columns=["item", "annotator", "label"]).to_parquet(path)


def as_json_lines(path, ids):
    records = [dict(zip(("item", "annotator", "label"), row, strict=True)) for row in rows(map(float, ids))]
    path.write_text("\n".join(map(json.dumps, records)))


def as_workbook(path, ids):
    workbook = Workbook()
    for row in [("item", "annotator", "label"), *rows([float(f"{name:.14e}") for name in ids])]:  # as Excel keeps 15
        workbook.active.append(row)
    workbook.save(path)


@pytest.mark.filterwarnings("ignore:.*dropped")
@pytest.mark.parametrize("write", [as_csv, as_parquet, as_json_lines, as_workbook])
def test_long_numbers_that_lost_digits_are_reported(tmp_path, write):
    path = tmp_path / ("labels.xlsx" if write is as_workbook else "labels")
    write(path, IDS)
    with pytest.warns(CrowdshotWarning, match=SHORT):
        items = read_labels(path).annotations.items.tolist()
    assert len(items) == 2  # two of them are the same now
    assert all("e+18" in name.lower() for name in items)


@pytest.mark.parametrize("ids", [IDS, [100, 2**53, 7.5], ["1e5", "1E+05", "1.25e-07", "v1.5e+1"]])
def test_other_numbers_are_not_reported(tmp_path, ids):
    path = tmp_path / "labels.csv"
    pd.DataFrame(rows(ids), columns=["item", "annotator", "label"]).to_csv(path, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        items = read_labels(path).annotations.items.tolist()
    assert len(items) == len(ids)
