"""What happens, as text for Prometheus. No name of an item or an annotator is in it."""

from __future__ import annotations

from crowdshot.service.live import Live


def metrics(live: Live) -> str:
    version = live.version
    rows = [
        ("labels_taken_total", "counter", "Labels that this process took.", live.counts["labels"]),
        ("fits_total", "counter", "Versions that were swapped in.", live.counts["fits"]),
        ("fit_failures_total", "counter", "Fits that failed: the last version stayed.", live.counts["failed_fits"]),
        ("version", "gauge", "The number of the version.", version.number if version else 0),
        ("fit_seconds", "gauge", "How long the version took to fit.", version.seconds if version else 0),
        ("labels", "gauge", "Labels that the version knows.", version.annotations.n_labels if version else 0),
        ("labelled_items", "gauge", "Items with a label.", version.n_labelled if version else 0),
        ("settled_items", "gauge", "Labelled items that are settled.", version.n_settled if version else 0),
        ("annotators", "gauge", "Annotators with a label.", len(version.annotators) if version else 0),
    ]  # fmt: skip
    lines = (
        f"# HELP crowdshot_{name} {about}\n# TYPE crowdshot_{name} {kind}\ncrowdshot_{name} {value:g}\n"
        for name, kind, about, value in rows
    )
    return "".join(lines)
