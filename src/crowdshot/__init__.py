"""crowdshot: a classifier you can trust from a handful of examples and a noisy crowd.

    from crowdshot import CrowdClassifier
    clf = CrowdClassifier().fit(images, labels)      # labels: (items, annotators) array, table, or Annotations
    clf.consensus_, clf.annotators_, clf.predict(new_images)

- `CrowdClassifier`  items and labels in; consensus, annotators and a classifier out
- `Annotations`      who said what about which item, from and to tables and matrices
- `aggregate`        labels alone, any number of them: votes, Dawid-Skene and kin
- `labelings`        the model on tensors, integrated and searched: the default for few items
- `mixture`          the model on tensors, by the paper's EM
- `priors`           what is believed before labels are seen
- `simulate`         pretend annotators
- `load_encoder`, `save_encoder`, `Encoder`   networks that embed items
"""

import importlib
from typing import TYPE_CHECKING, Any

from crowdshot.errors import CrowdshotError

if TYPE_CHECKING:
    from crowdshot import aggregate, labelings, mixture, priors, simulate
    from crowdshot.annotations import Annotations
    from crowdshot.classifier import CrowdClassifier
    from crowdshot.encoders import Encoder, load_encoder, save_encoder

__version__ = "0.1.0"

__all__ = [
    "Annotations",
    "CrowdClassifier",
    "CrowdshotError",
    "Encoder",
    "aggregate",
    "labelings",
    "load_encoder",
    "mixture",
    "priors",
    "save_encoder",
    "simulate",
]

_HOME = {"Annotations": "annotations", "CrowdClassifier": "classifier"}
_HOME |= dict.fromkeys(("Encoder", "load_encoder", "save_encoder"), "encoders")


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that `crowdshot --help` need not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'crowdshot' has no attribute {name!r}")
    module = importlib.import_module(f"crowdshot.{_HOME.get(name, name)}")
    return getattr(module, name) if name in _HOME else module


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
