"""Compare crowdshot with combinations of common tools on texts that a real crowd labelled, for few to all items.

    python benchmarks/any_item.py --data ../shared/data --work /tmp/any-item
    python benchmarks/any_item.py --data ../shared/data --same-features

The data are sentence polarity: two classes, 4,999 film reviews with 5.6 labels each, and 5,432 reviews with the truth
only. First, every method starts from the texts: `CrowdClassifier().fit(texts, labels)` with and without the extra
``text``; TF-IDF of words and word pairs with logistic regression on majority vote and on Dawid–Skene; and CROWDLAB.
CROWDLAB treats the regression on the vote as another annotator. The regression's C is chosen by five-fold
cross-validation. Logistic regression on MiniLM embeddings is included for a fair comparison.

With ``--same-features`` all methods use 100 components of TF-IDF, fitted on all texts. The constants of
`crowdshot.model.feature_model` and of the learned aggregation were chosen on other crowds. Prints the accuracy on new
and on labelled texts, the log-loss, and the over-confidence (mean confidence minus accuracy). ``--work`` keeps
embeddings.
"""

import argparse
import warnings
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
from measures import score
from regression import prepare
from rivals_features import crowdlab, prototypes, regression_in_em, then_regression
from rivals_labels import RIVALS as FROM_LABELS
from rivals_labels import VOTE
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict

from crowdshot import CrowdClassifier, aggregate, embedding_cache
from crowdshot.encoders import text_input

SIZES = {50: 10, 200: 5, 1_000: 3, 4_999: 1}  # texts: draws
STRENGTHS = [0.1, 1, 10, 100]
COMPONENTS = 100
DAWID_SKENE = "Dawid–Skene"


def regression(targets):
    """Fit logistic regression; C is chosen by cross-validation with as many folds as the smaller class allows."""
    folds = int(min(5, np.bincount(targets).min()))
    if folds < 2:
        return LogisticRegression(C=1, max_iter=1_000)
    return GridSearchCV(
        LogisticRegression(max_iter=1_000), {"C": STRENGTHS}, cv=StratifiedKFold(folds), scoring="neg_log_loss"
    )


def usual_parts(seen, new, ann):
    """Return {method: (probabilities of labelled, of new items)} for logistic regression on features."""
    targets = {"the vote": FROM_LABELS[VOTE](ann).argmax(1), DAWID_SKENE: FROM_LABELS[DAWID_SKENE](ann).argmax(1)}
    told = {}
    for name, target in targets.items():
        fitted = regression(target).fit(seen, target)
        told[f"regression on {name}"] = (
            FROM_LABELS[VOTE if name == "the vote" else name](ann),
            fitted.predict_proba(new),
        )
    told["CROWDLAB"] = one_more_annotator(seen, new, ann, targets["the vote"])
    return told


def one_more_annotator(seen, new, ann, voted):
    """Run CROWDLAB with out-of-fold predictions of the regression on the vote, then regression on its consensus."""
    from cleanlab import multiannotator  # from the extra `bench`

    strength = getattr(regression(voted).fit(seen, voted), "best_params_", {"C": 1})["C"]
    folds = StratifiedKFold(int(min(5, np.bincount(voted).min())))
    out_of_fold = cross_val_predict(
        LogisticRegression(C=strength, max_iter=1_000), seen, voted, cv=folds, method="predict_proba"
    )
    labels = ann.to_cleanlab().to_numpy()
    labels = labels[:, ~np.isnan(labels).all(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        majority = multiannotator.get_majority_vote_label(labels, out_of_fold, verbose=False)
        consensus = multiannotator._get_consensus_stats(
            labels, out_of_fold, (~np.isnan(labels)).sum(1), majority, quality_method="crowdlab", verbose=False
        )[2]
    best = consensus.argmax(1)
    return consensus, LogisticRegression(C=strength, max_iter=1_000).fit(seen, best).predict_proba(new)


def from_texts(seen, new, ann):
    counter = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    counts = counter.fit_transform(seen)
    told = {}
    for name, installed in (("ours", True), ("ours, without the extra", False)):
        minilm_is_there, text_input.is_installed = text_input.is_installed, lambda installed=installed: installed
        clf = CrowdClassifier().fit(seen, ann, items=ann.items)
        told[name] = (clf.label_proba_, clf.predict_proba(new))
        text_input.is_installed = minilm_is_there
    told |= {f"TF-IDF, {name}": found for name, found in usual_parts(counts, counter.transform(new), ann).items()}
    vectors = text_input.embed(seen), text_input.embed(new)
    told |= {f"MiniLM, {name}": found for name, found in usual_parts(*vectors, ann).items()}
    return told


def from_same_features(seen, new, ann):
    clf = CrowdClassifier("identity").fit(seen, ann, items=ann.items)
    ready = prepare(seen, new)
    return {
        "ours": (clf.label_proba_, clf.predict_proba(new)),
        "ours, labels alone": (aggregate.learned(ann).probabilities, None),
        "one-coin + regression": then_regression("one-coin", ready, ann),
        "regression in EM": regression_in_em(ready, ann),
        "prototypes": prototypes(ready, ann),
        "CROWDLAB": crowdlab(ready, ann),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--same-features", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    given = parser.parse_args()
    folder = given.data / "sentence-polarity"
    texts = pd.read_csv(folder / "texts.csv", dtype={"item": str}).set_index("item")["text"]
    told = pd.read_csv(folder / "truth.csv", dtype={"item": str}).set_index("item")
    test = told.index[told["split"] == "test"]
    items = texts
    if given.same_features:
        words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2).fit_transform(texts)
        found = TruncatedSVD(COMPONENTS, random_state=0).fit_transform(words)
        items = pd.DataFrame(found, index=texts.index)
    crowd = crowds.load(given.data, "sentence-polarity")
    rows = []
    with embedding_cache(given.work or ""):
        for size in given.sizes:
            for draw in range(SIZES.get(size, 3)):
                chosen = np.sort(np.random.default_rng(draw).permutation(crowd.annotations.n_items)[:size])
                ann = crowd.annotations.select_items(crowd.annotations.items[chosen])
                ann = ann.from_frame(ann.to_frame(), items=ann.items, classes=ann.classes)
                truth, unseen = crowd.true_classes()[chosen], told.loc[test, "truth"].to_numpy()
                parts = (items.loc[[str(item) for item in ids]].to_numpy() for ids in (ann.items, test))
                seen, new = parts if given.same_features else (part.tolist() for part in parts)
                for method, judged in (from_same_features if given.same_features else from_texts)(
                    seen, new, ann
                ).items():
                    for of, probabilities, right in zip(("labelled", "new"), judged, (truth, unseen), strict=True):
                        if probabilities is not None:
                            about = {"items": size, "draw": draw, "method": method, "of": of}
                            rows.append(about | score(probabilities, right))
            table = pd.DataFrame([row for row in rows if row["items"] == size])
            wide = table.pivot_table(index="method", columns="of", values=["accuracy", "log_loss", "over"], sort=False)
            print(f"{size:,} texts, {table['draw'].nunique()} draws\n{wide.round(3).to_string()}", flush=True)
            paired = table[table["of"] == "new"].pivot(index="draw", columns="method", values="accuracy")
            behind = paired.sub(paired["ours"], axis=0).drop(columns="ours")
            print(f"right of new texts, less ours:\n{behind.agg(['mean', 'sem']).T.round(3).to_string()}", flush=True)


if __name__ == "__main__":
    main()
