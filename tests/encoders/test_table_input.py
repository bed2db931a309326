"""Tables of numbers and categories: as scikit-learn would have it, kept in a file, and told where they are odd."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot.encoders.table_input import is_mixed, learn_table_encoder
from crowdshot.errors import CrowdshotWarning
from crowdshot.io.feature_files import read_feature_file


def people(n=60, seed=0):
    """Made up: two kinds of person that age, pay and town tell apart, with cells missing."""
    random = np.random.default_rng(seed)
    kind = random.integers(2, size=n)
    frame = pd.DataFrame(
        {
            "age": random.normal(30 + 20 * kind, 5),
            "pay": np.where(random.random(n) < 0.2, np.nan, random.normal(1_000 + 500 * kind, 100)),
            "town": np.where(random.random(n) < 0.1, None, np.where(kind, "York", "Bath")),
        }
    )
    labels = np.where(random.random((n, 3)) < 0.8, kind[:, None], 1 - kind[:, None])
    return frame, labels, kind


def test_the_same_as_a_column_transformer():
    frame, _, _ = people()
    frame.loc[3, "town"] = "Hull"  # once alone: one of the others
    oracle = make_column_transformer(
        (make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=0)), ["age"]),
        (
            make_union(
                make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=0)), MissingIndicator()
            ),
            ["pay"],
        ),
        (OneHotEncoder(min_frequency=2, max_categories=21, sparse_output=False), ["town"]),
    )
    expected = oracle.fit_transform(frame.assign(town=frame["town"].fillna("")))
    assert expected.shape[1] == 1 + 2 + 4  # missing, Bath, York, and others
    np.testing.assert_allclose(learn_table_encoder(frame).embed(frame).numpy(), expected, atol=1e-5)


def test_a_mixed_table_is_learned_from_and_saved(tmp_path):
    frame, labels, kind = people()
    clf = CrowdClassifier().fit(frame, labels)
    assert (clf.label_proba_.argmax(1) == kind).mean() > 0.9
    clf.save(tmp_path / "model.safetensors")
    loaded = CrowdClassifier.load(tmp_path / "model.safetensors")
    new, _, truth = people(200, seed=1)
    new.loc[0, "town"] = "Leeds"  # never met
    np.testing.assert_array_equal(loaded.predict_proba(new), clf.predict_proba(new))
    assert (loaded.predict(new) == truth).mean() > 0.9
    assert loaded.encoder_.card["about"] == "a table with 2 columns of numbers and 1 of categories"


def test_columns_go_by_name_and_others_are_left_aside():
    frame, labels, _ = people()
    clf = CrowdClassifier().fit(frame, labels)
    other = frame.assign(more=1)[["town", "more", "pay", "age"]]
    np.testing.assert_array_equal(clf.encoder_.embed(other), clf.encoder_.embed(frame))
    for turned in (other, frame[["town", "pay", "age"]]):
        np.testing.assert_array_equal(clf.predict_proba(turned), clf.predict_proba(frame))
    with pytest.raises(CrowdshotError, match="X has no column 'pay', expected one, as in fit"):
        clf.predict(frame.rename(columns={"pay": "wage"}))
    with pytest.raises(CrowdshotError, match="X has no column 'pay', expected one, as in fit"):
        clf.predict(frame[["age", "town"]])
    with pytest.raises(CrowdshotError, match=r"X is an array of shape \(60, 3\), expected a table with the columns"):
        clf.predict(np.zeros((60, 3)))
    clf.update(labels, frame[["town", "pay", "age"]].set_axis(range(60, 120)))
    np.testing.assert_array_equal(clf.embeddings_[60:], clf.embeddings_[:60])


def test_what_tells_nothing_is_left_out_with_a_warning():
    frame, labels, _ = people()
    frame = frame.assign(comment=[f"note {i}" for i in range(60)], same="x", one=1.0, none=np.nan)
    with pytest.warns(UserWarning, match="hardly ever recur, which are left out: 'comment', 'same', 'one', 'none'"):
        clf = CrowdClassifier().fit(frame, labels)
    assert clf.encoder_.input.columns == ("age", "pay", "town")
    with pytest.raises(CrowdshotError, match="X has no informative column among 'same', expected one"):
        CrowdClassifier().fit(frame[["same"]], labels)


def test_many_categories_are_the_most_frequent_and_others():
    words = [f"w{i:02d}" for i in range(30) for _ in range(30 - i)]
    encoder = learn_table_encoder(pd.DataFrame({"word": words}))
    assert encoder.arguments["columns"] == [
        {"name": "word", "values": [f"w{i:02d}" for i in range(20)], "others": True}
    ]
    told = encoder.embed(pd.DataFrame({"word": ["w00", "w25", "never", None]}))
    assert told.argmax(1).tolist() == [0, 20, 20, 20]
    assert told.sum(1).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("frame", "mixed"),
    [
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1.0]}), False),
        (pd.DataFrame({"a": [1, 2], "b": [True, False]}), False),
        (pd.DataFrame({"a": ["1", "2.5"]}, dtype=object), False),  # numbers that were read as text
        (pd.DataFrame({"a": [1.0, np.nan]}), True),
        (pd.DataFrame({"a": ["x", "y"]}), True),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])}), True),
        (pd.DataFrame({"a": pd.Categorical(["x", "y"])}), True),
        (pd.DataFrame({"a": pd.Series([1, None], dtype="Int64")}), True),
        (np.array([["x"]]), False),
    ],
)
def test_what_is_mixed(frame, mixed):
    assert is_mixed(frame) is mixed


@pytest.mark.parametrize(
    "when",
    [
        ["2020-01-01", "2020-01-03", None],
        ["2020-01-01 00:00", "2020-01-03T00:00:00.000Z", ""],
        ["2020-01-01T01:00+01:00", "2020-01-02 23:00:00-0100", None],  # midnights in London
        ["1.01.2020", "03.01.2020", None],
        [datetime.date(2020, 1, 1), datetime.date(2020, 1, 3), None],
        pd.to_datetime(["2020-01-01", "2020-01-03", None], utc=True).tz_convert("Asia/Tokyo"),
    ],
)
def test_dates_in_any_form_that_leaves_no_doubt(when):
    table = pd.DataFrame({"when": when})
    encoder = learn_table_encoder(table)
    assert encoder.embed(table).tolist() == [[-1, 0], [1, 0], [0, 1]]
    later = pd.DataFrame({"when": pd.to_datetime(["2020-01-04"])})  # two days after the mean, the 2nd
    assert encoder.embed(later).tolist() == [[2, 0]]


@pytest.mark.parametrize("odd", ["01/02/2020", "2020-02-30", "soon", "02.01.20"])
def test_what_may_be_another_date_or_none_is_a_word(odd):
    column = learn_table_encoder(pd.DataFrame({"when": ["2020-01-01", odd] * 2})).arguments["columns"][0]
    assert column["values"] == sorted(["2020-01-01", odd])
    encoder = learn_table_encoder(pd.DataFrame({"when": ["2020-01-01", "2020-01-03"]}))
    with pytest.raises(CrowdshotError, match=f"X holds '{odd}' in column 'when', expected numbers as in fit"):
        encoder.embed(pd.DataFrame({"when": ["2020-01-01", odd]}))


def test_dates_beside_numbers_alone():
    frame, labels, kind = people()
    frame = frame[["age"]].assign(when=pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60), unit="h"))
    clf = CrowdClassifier().fit(frame, labels)
    assert clf.encoder_.card["about"] == "a table with 2 columns of numbers and 0 of categories"
    assert (clf.predict(frame) == kind).mean() > 0.9


def test_dates_are_days():
    dates = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2020-01-03", None])})
    column = learn_table_encoder(dates).arguments["columns"][0]
    assert (column["std"], column["missing"]) == (1.0, True)
    assert learn_table_encoder(dates).embed(dates).tolist() == [[-1, 0], [1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ({"a": [[1], [2], [1]]}, "X holds a list in column 'a', row 0, expected text or a number."),
        ({"a": [1.0, np.inf, None]}, "X is infinite in column 'a', row 1, expected a finite number."),
    ],
)
def test_odd_cells(frame, told):
    with pytest.raises(CrowdshotError) as error:
        learn_table_encoder(pd.DataFrame(frame))
    assert str(error.value) == told


def test_words_where_numbers_were():
    encoder = learn_table_encoder(pd.DataFrame({"a": [1.0, 2.0, None]}))
    with pytest.raises(CrowdshotError, match="X holds 'many' in column 'a', expected numbers as in fit"):
        encoder.embed(pd.DataFrame({"a": ["1", "many"]}))
    assert torch.equal(encoder.embed(pd.DataFrame({"a": ["1", ""]})), torch.tensor([[-1.0, 0.0], [0.0, 1.0]]))


def test_two_columns_of_a_name():
    with pytest.raises(CrowdshotError, match="X has more than one column 'a', expected distinct names"):
        CrowdClassifier().fit(pd.DataFrame([["x", "y"], ["y", "x"]], columns=["a", "a"]), [["p"], ["q"]])


def test_files(tmp_path):
    frame, _, _ = people(6)
    frame.insert(0, "id", list("abcdef"))
    for name, save in (("a.csv", frame.to_csv), ("a.parquet", frame.to_parquet)):
        save(tmp_path / name, index=False)
        read = read_feature_file(tmp_path / name, mixed=None)
        assert read.ids.tolist() == list("abcdef")
        pd.testing.assert_frame_equal(read.features, frame.drop(columns="id"), check_dtype=False)
    (tmp_path / "b.csv").write_text("id,x,y\na,1,2\nb,3,4\n")
    assert read_feature_file(tmp_path / "b.csv", mixed=None).features.dtypes.tolist() == [np.float32] * 2
    assert isinstance(read_feature_file(tmp_path / "b.csv", mixed=True).features, pd.DataFrame)
    (tmp_path / "b.csv").write_text("id,x\na,1\nb,2\nc,3x\n")  # a slip of the finger, and no category
    with pytest.raises(CrowdshotError, match=r"b\.csv, row 4, column 'x' is '3x', expected a number"):
        read_feature_file(tmp_path / "b.csv", mixed=None)


def test_dates_in_files(tmp_path):
    """Numbers of days, however they were written; a Parquet file has dates of its own, with a time or without."""
    days = pd.DataFrame({"id": list("abc"), "when": ["2020-01-01", "2020-01-02", "2020-01-03"], "x": [1.0, 2.0, 3.0]})
    timed = days.assign(when=pd.to_datetime(days["when"]))
    days.to_csv(tmp_path / "days.csv", index=False)
    days.assign(when=timed["when"].dt.strftime("%Y-%m-%dT00:00:00")).to_csv(tmp_path / "timed.csv", index=False)
    days.assign(when=timed["when"].dt.date).to_parquet(tmp_path / "days.parquet", index=False)
    timed.to_parquet(tmp_path / "timed.parquet", index=False)
    for name in ("days.csv", "timed.csv", "days.parquet", "timed.parquet"):
        table = read_feature_file(tmp_path / name, mixed=None).features
        assert is_mixed(table)
        found = learn_table_encoder(table).embed(table)
        torch.testing.assert_close(found, torch.tensor([[-1.0, -1], [0, 0], [1, 1]]) * 1.5**0.5)


def test_plain_numbers_stay_as_they_were():
    frame, labels, _ = people()
    numbers = frame[["age"]].assign(square=frame["age"] ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = CrowdClassifier().fit(numbers, labels)
    assert clf.encoder_.architecture == "identity"


def test_missing_cells_that_are_new_are_warned_of():
    table = pd.DataFrame({"age": [1.0, 2, 3, 4] * 3, "kind": ["a", "b", "a", "b"] * 3})
    clf = CrowdClassifier().fit(table, [["x"], ["y"]] * 6)
    new = table.astype(object).iloc[:2].copy()
    new.iloc[0, 0] = None
    with pytest.warns(CrowdshotWarning, match="'age'") as found:
        clf.predict(new)
    assert [warning.message.found for warning in found] == ["age"]
    new.iloc[0] = [1.0, None]
    with pytest.warns(CrowdshotWarning, match="'kind'"):
        clf.predict(new)


def test_columns_may_be_numbered():
    table = pd.DataFrame({0: [1.0, 2, 3, 4] * 3, 1: ["a", "b", "a", "b"] * 3, "c": [0, 1] * 6})
    clf = CrowdClassifier().fit(table, [["x"], ["y"]] * 6)
    named = CrowdClassifier().fit(table.set_axis(["p", "q", "r"], axis=1), [["x"], ["y"]] * 6)
    np.testing.assert_allclose(
        clf.predict_proba(table[["c", 1, 0]]), named.predict_proba(table.set_axis(["p", "q", "r"], axis=1))
    )


def test_categories_that_fit_did_not_have_are_reported():
    town = ["Bath", "York"] * 8
    few = learn_table_encoder(pd.DataFrame({"town": town}))
    with pytest.warns(CrowdshotWarning, match="'BATH'.* in column 'town', which is no category of fit"):
        few.embed(pd.DataFrame({"town": ["BATH", "York"]}))
    with pytest.warns(CrowdshotWarning, match="'Hull'"):
        few.embed(pd.DataFrame({"town": ["Hull"] * 5}))
    rare = learn_table_encoder(pd.DataFrame({"town": [*town, "Hull"]}))
    with pytest.warns(CrowdshotWarning, match="'bath '|'bath'"):
        rare.embed(pd.DataFrame({"town": ["bath ", "Hull"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rare.embed(pd.DataFrame({"town": ["Hull", "Oslo"] * 5}))  # Hull was rare in fit, and so may Oslo have been
        few.embed(pd.DataFrame({"town": ["Hull", "York"] * 5}))
        few.embed(pd.DataFrame({"town": town}))
