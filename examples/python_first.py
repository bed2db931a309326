"""Use the library as scikit-learn, pandas and polars users expect: every step prints a line or fails."""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, learning_curve
from sklearn.preprocessing import StandardScaler

import crowdshot
from crowdshot import Annotations, CrowdAggregator, CrowdClassifier, CrowdshotError, aggregate
from crowdshot.metrics import consensus_accuracy_scorer, estimate_accuracy
from crowdshot.model_selection import CrowdKFold, cross_val_proba

out = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
out.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(0)
wine = load_wine()
names = np.array(["barbera", "barolo", "grignolino"], dtype=object)
rows = rng.permutation(178)[:90]
rest = np.setdiff1d(np.arange(178), rows)
X = StandardScaler().fit_transform(wine.data)
truth, people = names[wine.target], ["ann", "bob", "cyd", "dee"]
right = rng.random((90, 4)) < [0.9, 0.8, 0.7, 0.5]
Y = np.where(right, truth[rows, None], rng.choice(names, (90, 4)))
Y[:, 1:][rng.random((90, 3)) < 0.3] = None


def refused(function):
    """Return the argument and the sentence with which a mistake is refused."""
    try:
        function()
    except CrowdshotError as error:
        return f"{error.argument}: {error}"
    raise AssertionError("this was not refused")


# 1. Labels alone.
crowd = CrowdAggregator().fit(Y, gold={0: truth[rows[0]]})
print("labels alone:", crowd.consensus_.shape, crowd.confusion_.shape, crowd.classes_.tolist())
print(crowd.annotators_[["annotator", "accuracy", "low", "high"]].round(2).to_string(index=False))
print("agreement:", crowd.agreement_["statistic"].tolist(), "likely wrong:", len(crowd.likely_wrong_))
assert len(crowd.partial_fit(Y[:1]).consensus_) == 91
print(refused(lambda: CrowdClassifier().fit(None, Y)))

# 2. Any table: the same result from each of them.
wide = pd.DataFrame(Y, columns=people, index=[f"bottle-{n:03}" for n in range(90)])
long = Annotations.from_frame(
    wide.rename_axis("item").reset_index().melt("item", var_name="annotator").dropna(), {"label": "value"}
)
tables = {
    "pandas": lambda table: table,
    "pandas, categorical": lambda table: table.astype("category"),
    "pandas, Arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False).to_pandas(
        types_mapper=pd.ArrowDtype
    ),
    "PyArrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "list of dicts": lambda table: table.astype(object).where(table.notna(), None).to_dict("records"),
}
try:
    import polars

    tables["polars"] = polars.from_pandas
except ImportError:
    print("polars is not installed, and left out")
expected = CrowdAggregator().fit(Y).label_proba_
fitted = CrowdClassifier("identity").fit(X[rows], Y)
for name, convert in tables.items():
    for shape, table in (("wide", wide.reset_index(drop=True)), ("long", long.to_frame())):
        alone = CrowdAggregator().fit(convert(table)).consensus_
        confidence = (
            alone["confidence"].to_numpy() if shape == "wide" else alone.set_index("item").loc[wide.index, "confidence"]
        )
        assert np.allclose(confidence, expected.max(1)), name
        items = None if shape == "wide" else wide.index
        clf = CrowdClassifier("identity").fit(X[rows], convert(table), items=items)
        assert np.allclose(clf.predict_proba(X[rest]), fitted.predict_proba(X[rest]), atol=1e-6), name
print("same result from:", ", ".join(tables), "and NumPy, wide and long")

# 3. Missing values and spellings.
likert = rng.integers(-2, 3, (60, 4)).astype(float)
likert[rng.random((60, 4)) < 0.2] = np.nan
print("-2 to 2 with NaN:", CrowdAggregator().fit(likert).classes_.tolist())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    CrowdAggregator().fit([["Cat ", "cat"], ["dog", "dog"]])
print("warned:", caught[0].message)

# 4. scikit-learn.
clf, folds = CrowdClassifier("identity", random_state=None), CrowdKFold(3)
print("cross-validated:", cross_val_score(clf, X[rows], Y, cv=folds).round(2))
print("predicted right:", round(float((cross_val_predict(clf, X[rows], Y, cv=folds) == truth[rows]).mean()), 2))
print(refused(lambda: cross_val_predict(clf, X[rows], Y, cv=folds, method="predict_proba")))
pred_probs = cross_val_proba(clf, X[rows], Y, cv=3)
search = GridSearchCV(clf, {"method": ["features", "ours"]}, cv=folds).fit(X[rows], Y)
print("search:", search.best_params_, "learning curve:", learning_curve(clf, X[rows], Y, cv=folds)[2].mean(1).round(2))
clone(clf).fit(X[rows], y=Y, sample_weight=rng.random(90) + 0.5)
clone(clf).set_params(method="ours", settings={"steps": 3}).fit(pd.DataFrame(X[rows]), Y)
print(refused(lambda: fitted.predict([[np.nan] * 13])))

# 5. Accuracy without truth, with limits.
labels_of_rest = np.where(rng.random((88, 3)) < 0.75, truth[rest, None], rng.choice(names, (88, 3)))
found = estimate_accuracy(
    fitted.predict(X[rest]), Annotations.from_matrix(labels_of_rest), fitted.predict_proba(X[rest])
)
true = fitted.score(X[rest], truth[rest])
print(f"accuracy {found.estimate:.2f} ({found.low:.2f} to {found.high:.2f}); true {true:.2f}")
assert np.isclose(found.estimate, consensus_accuracy_scorer(fitted, X[rest], labels_of_rest), atol=1e-6)

# 6. The encoder.
print("encoders:", fitted.encoder_.name, CrowdClassifier().fit(["good", "bad"] * 3, [["+"], ["-"]] * 3).encoder_.name)

# 8. What annotators would say, as soft labels.
said = fitted.predict_annotator_proba(X[rest])
print("labels of annotators:", said.shape, "soft labels of their mean:", said.mean(1)[0].round(2))

# 9. A file without labels, names and ids.
clf = CrowdClassifier("identity").fit(pd.DataFrame(X[rows], index=wide.index), wide)
clf.save(out / "shared.safetensors", labels=False)
content = (out / "shared.safetensors").read_bytes()
assert not any(word.encode() in content for word in [*wide.index, *[f'"{name}"' for name in people]])
shared = CrowdClassifier.load(out / "shared.safetensors")
same = (shared.predict(X[rest]) == clf.predict(X[rest])).mean()
print(f"shared: {len(content) // 1000} kB, {same:.2f} of the predictions are the same")
print(refused(lambda: shared.consensus_))

# 11. Public names.
assert all(hasattr(crowdshot, name) for name in crowdshot.__all__)
vote, here = aggregate.majority_vote(Y).labels == truth[rows], crowd.consensus_["label"][:90] == truth[rows]
print(f"consensus right: {here.mean():.2f}, by vote {vote.mean():.2f}")
