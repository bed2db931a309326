"""crowdshot: a classifier you can trust from a handful of examples and a noisy crowd.

    from crowdshot import CrowdClassifier
    clf = CrowdClassifier().fit(images, labels)      # labels: (items, annotators) array, table, or Annotations
    clf.consensus_, clf.annotators_, clf.predict(new_images)

- `CrowdClassifier`  items and labels in; consensus, annotators and a classifier out
- `Annotations`      who said what about which item, from and to tables and matrices
- `read_labels`      label files of any tool; `WRITERS` the way back
- `AnnotatorPriors`  what is known of annotators from earlier projects
- `aggregate`        labels alone, any number of them: votes, Dawid-Skene and kin
- `save_pipeline`, `load_pipeline`   a Pipeline that ends in a classifier, as one file without pickle
- `metrics`          how good a classifier is where nobody knows the truth
- `asking`           which question to ask next, and whom
- `labelings`        the model on tensors, integrated and searched: the default for few items
- `mixture`          the model on tensors, by the paper's EM
- `priors`           what is believed before labels are seen; `OneCoin` is one of them
- `simulate`         simulated annotators
- `METHODS`          every system that is compared, behind one contract
- `load_encoder`, `save_encoder`, `build_encoder`, `Encoder`, `ImageInput`, `ARCHITECTURES`   networks that embed items
- `embedding_cache`   a folder where embeddings are kept and found again
- `ClassPool`        classes with examples, to learn from and to test with
- `train`, `Job`, `Recipe`   meta-training
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from crowdshot.errors import CrowdshotError
from crowdshot.version import __version__ as __version__

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.classifier.pipelines import load_pipeline, save_pipeline
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.encoders.encoder_files import build_encoder, load_encoder, save_encoder
    from crowdshot.encoders.image_input import ImageInput
    from crowdshot.encoders.networks import ARCHITECTURES
    from crowdshot.io.embedding_store import embedding_cache
    from crowdshot.labels import aggregation as aggregate
    from crowdshot.labels import asking
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.annotator_priors import AnnotatorPriors
    from crowdshot.labels.formats import WRITERS, read_labels
    from crowdshot.methods import METHODS
    from crowdshot.model import labeling_search as labelings
    from crowdshot.model import mixture, priors
    from crowdshot.model.priors import OneCoin
    from crowdshot.training import simulated_annotators as simulate
    from crowdshot.training.loop import train
    from crowdshot.training.pools import ClassPool
    from crowdshot.training.recipe import Job, Recipe

__all__ = [
    "ARCHITECTURES",
    "METHODS",
    "WRITERS",
    "Annotations",
    "AnnotatorPriors",
    "ClassPool",
    "CrowdClassifier",
    "CrowdshotError",
    "Encoder",
    "ImageInput",
    "Job",
    "OneCoin",
    "Recipe",
    "aggregate",
    "asking",
    "build_encoder",
    "embedding_cache",
    "labelings",
    "load_encoder",
    "load_pipeline",
    "mixture",
    "priors",
    "read_labels",
    "save_encoder",
    "save_pipeline",
    "simulate",
    "train",
]

_MODULES = {
    "aggregate": "labels.aggregation",
    "asking": "labels.asking",
    "labelings": "model.labeling_search",
    "mixture": "model.mixture",
    "priors": "model.priors",
    "simulate": "training.simulated_annotators",
}
_NAMES = {
    "ARCHITECTURES": "encoders.networks",
    "METHODS": "methods",
    "WRITERS": "labels.formats",
    "Annotations": "labels.annotations",
    "AnnotatorPriors": "labels.annotator_priors",
    "ClassPool": "training.pools",
    "CrowdClassifier": "classifier.crowd_classifier",
    "Encoder": "encoders.encoder",
    "ImageInput": "encoders.image_input",
    "Job": "training.recipe",
    "OneCoin": "model.priors",
    "Recipe": "training.recipe",
    "build_encoder": "encoders.encoder_files",
    "embedding_cache": "io.embedding_store",
    "load_encoder": "encoders.encoder_files",
    "load_pipeline": "classifier.pipelines",
    "read_labels": "labels.formats",
    "save_encoder": "encoders.encoder_files",
    "save_pipeline": "classifier.pipelines",
    "train": "training.loop",
}
_MOVED = {"DATASETS": "crowdshot_paper.datasets", "load_dataset": "crowdshot_paper.datasets"}  # until 0.4


def __getattr__(name: str) -> Any:
    """Load public names when they are first used, so that `crowdshot --help` need not wait for torch."""
    if name in _MODULES:
        return importlib.import_module(f"crowdshot.{_MODULES[name]}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"crowdshot.{_NAMES[name]}"), name)
    if name in _MOVED:
        warnings.warn(f"crowdshot.{name} has moved to {_MOVED[name]}.", FutureWarning, stacklevel=2)
        return getattr(importlib.import_module(_MOVED[name]), name)
    raise AttributeError(f"module 'crowdshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
