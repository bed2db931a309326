"""scikit-learn's own checks of an estimator, and why some of them fail."""

import inspect
import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

from crowdshot import CrowdClassifier

EXPECTED_FAILURES = {
    "check_do_not_raise_errors_in_init_or_set_params": "it passes **moved, which names old arguments until 0.4",
    "check_supervised_y_2d": "labels of shape (N, 1) are those of one annotator, so no conversion is warned of",
    "check_estimators_empty_data_messages": "a ValueError in a sentence of this project, not of scikit-learn",
    "check_dtype_object": "an array of dicts raises a ValueError, as all bad input does here, not a TypeError",
}
STRICT = {"xfail_strict": True} if "xfail_strict" in inspect.signature(parametrize_with_checks).parameters else {}


@parametrize_with_checks(
    [CrowdClassifier(encoder="identity")], expected_failed_checks=lambda estimator: EXPECTED_FAILURES, **STRICT
)
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skipped checks, and what the checks themselves raise
        check(estimator)
