"""The default for features on a crowd that nothing of it was chosen on: film reviews as TF-IDF and SVD, real labels.

    python benchmarks/texts.py --data ../shared/data

The constants of `crowdshot.model.looks` and `learned` were set on LabelMe, CIFAR-10S, leaves and scikit-learn's own
sets with simulated crowds, which benchmarks/reality.py shows too. Sentence polarity (two classes, 4,999 texts with
labels, 5,432 with truth alone) was not among them; but its labels taught the shipped network, which is used here.
100 components, fitted on all texts; three draws a size. Prints what is right of new texts and of labelled ones.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
from measures import score
from regression import prepare
from rivals_features import crowdlab, prototypes, regression_in_em, then_regression
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from crowdshot import CrowdClassifier, aggregate

SIZES, DRAWS, COMPONENTS = (50, 200, 1_000, 4_000), 3, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    texts = pd.read_csv(data / "sentence-polarity" / "texts.csv", dtype={"item": str}).set_index("item")["text"]
    told = pd.read_csv(data / "sentence-polarity" / "truth.csv", dtype={"item": str}).set_index("item")
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2).fit_transform(texts)
    found = TruncatedSVD(COMPONENTS, random_state=0).fit_transform(words)
    features = pd.DataFrame(found, index=texts.index)
    test = told.index[told["split"] == "test"]
    crowd = crowds.load(data, "sentence-polarity")
    rows = []
    for size in SIZES:
        for draw in range(DRAWS):
            chosen = np.sort(np.random.default_rng(draw).permutation(crowd.annotations.n_items)[:size])
            ann = crowd.annotations.select_items(crowd.annotations.items[chosen])
            ann = ann.from_frame(ann.to_frame(), items=ann.items, classes=ann.classes)
            truth, unseen = crowd.true_classes()[chosen], told.loc[test, "truth"].to_numpy()
            x, new = (features.loc[[str(item) for item in ids]].to_numpy() for ids in (ann.items, test))
            clf = CrowdClassifier("identity").fit(x, ann, items=ann.items)
            ready = prepare(x, new)
            beliefs = {
                "ours": (clf.belief_, clf.predict_proba(new)),
                "ours, labels alone": (aggregate.learned(ann).probabilities, None),
                "one-coin + regression": then_regression("one-coin", ready, ann),
                "regression in EM": regression_in_em(ready, ann),
                "prototypes": prototypes(ready, ann),
                "CROWDLAB": crowdlab(ready, ann),
            }
            for method, judged in beliefs.items():
                for of, probabilities, right in zip(("labelled", "new"), judged, (truth, unseen), strict=True):
                    if probabilities is not None:
                        rows.append({"items": size, "method": method, "of": of} | score(probabilities, right))
    table = pd.DataFrame(rows)
    for measure in ("accuracy", "log_loss", "over"):
        print(measure)
        wide = table.pivot_table(index="method", columns=["of", "items"], values=measure, sort=False)
        print(wide.round(3).to_string())


if __name__ == "__main__":
    main()
