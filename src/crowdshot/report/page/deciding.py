"""What the page's script needs so that a reader can accept or correct labels and take them away as known truth."""

from __future__ import annotations

import hashlib
from typing import Any

from crowdshot.report.page.basis import Basis

MOST_KNOWN = 10_000  # true labels that were given before and stand in the page, so that they are downloaded too


def decisions(basis: Basis, shown: list[int]) -> dict[str, Any]:
    """``store``: by which the browser knows these items again, in the next round too.

    ``items``: the ids of the items shown, and ``labels``, what is believed of each; names are as in the labels.
    ``known``: pairs of items and their truth as given.
    """
    ids = [str(name) for name in basis.annotations.items]
    known = basis.clf.gold_.iloc[:MOST_KNOWN, :2].astype(str).to_numpy().tolist()
    return {
        "store": hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16],
        "classes": [str(name) for name in basis.annotations.classes],
        "items": [ids[i] for i in shown],
        "labels": [int(basis.label[i]) for i in shown],
        "known": known,
    }
