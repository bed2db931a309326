"""scikit-learn's own checks of an estimator, and why some of them fail."""

import inspect
import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

from crowdshot import CrowdClassifier

OUR_WORDS = "it is refused by a ValueError, in a sentence of this project's grammar and not of scikit-learn's"
EXPECTED_FAILURES = {
    "check_fit_score_takes_y": "fit's second argument is what annotators said, no truth, and called labels",
    "check_sample_weight_equivalence_on_dense_data": "fit's second argument is called labels: see test_weights",
    "check_sample_weight_equivalence_on_sparse_data": "fit's second argument is called labels: see test_weights",
    "check_supervised_y_2d": "labels of shape (N, 1) are one annotator's, so there is no conversion to warn of",
    "check_dtype_object": "an array of dicts raises a ValueError, as all bad input does here, not a TypeError",
    "check_n_features_in_after_fitting": OUR_WORDS,
    "check_estimators_empty_data_messages": OUR_WORDS,
    "check_fit2d_predict1d": OUR_WORDS,
    "check_requires_y_none": OUR_WORDS,
}
STRICT = {"xfail_strict": True} if "xfail_strict" in inspect.signature(parametrize_with_checks).parameters else {}


@parametrize_with_checks(
    [CrowdClassifier(encoder="identity")], expected_failed_checks=lambda estimator: EXPECTED_FAILURES, **STRICT
)
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skipped checks, and what the checks themselves raise
        check(estimator)
