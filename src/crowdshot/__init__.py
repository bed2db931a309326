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
- `ClassPool`, `DATASETS`, `load_dataset`   classes with examples, to learn from and to test with
- `train`, `Job`, `Recipe`   meta-training
"""

import importlib
from typing import TYPE_CHECKING, Any

from crowdshot.errors import CrowdshotError
from crowdshot.version import __version__ as __version__

if TYPE_CHECKING:
    from crowdshot.classifier.classifier import CrowdClassifier
    from crowdshot.classifier.pipelines import load_pipeline, save_pipeline
    from crowdshot.encoders.architectures import ARCHITECTURES
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.encoders.images import ImageInput
    from crowdshot.encoders.saved import build_encoder, load_encoder, save_encoder
    from crowdshot.episodes import simulate
    from crowdshot.episodes.datasets import DATASETS, load_dataset
    from crowdshot.episodes.pools import ClassPool
    from crowdshot.files.embedding_store import embedding_cache
    from crowdshot.labels import aggregate, asking
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.annotator_priors import AnnotatorPriors
    from crowdshot.labels.formats import WRITERS, read_labels
    from crowdshot.methods import METHODS
    from crowdshot.model import labelings, mixture, priors
    from crowdshot.model.priors import OneCoin
    from crowdshot.training.job import Job
    from crowdshot.training.loop import train
    from crowdshot.training.recipe import Recipe

__all__ = [
    "ARCHITECTURES",
    "DATASETS",
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
    "load_dataset",
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
    "aggregate": "labels",
    "asking": "labels",
    "labelings": "model",
    "mixture": "model",
    "priors": "model",
    "simulate": "episodes",
}
_NAMES = {
    "ARCHITECTURES": "encoders.architectures",
    "DATASETS": "episodes.datasets",
    "METHODS": "methods",
    "WRITERS": "labels.formats",
    "Annotations": "labels.annotations",
    "AnnotatorPriors": "labels.annotator_priors",
    "ClassPool": "episodes.pools",
    "CrowdClassifier": "classifier.classifier",
    "Encoder": "encoders.encoder",
    "ImageInput": "encoders.images",
    "Job": "training.job",
    "OneCoin": "model.priors",
    "Recipe": "training.recipe",
    "build_encoder": "encoders.saved",
    "embedding_cache": "files.embedding_store",
    "load_dataset": "episodes.datasets",
    "load_encoder": "encoders.saved",
    "load_pipeline": "classifier.pipelines",
    "read_labels": "labels.formats",
    "save_encoder": "encoders.saved",
    "save_pipeline": "classifier.pipelines",
    "train": "training.loop",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that `crowdshot --help` need not wait for torch."""
    if name in _MODULES:
        return importlib.import_module(f"crowdshot.{_MODULES[name]}.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"crowdshot.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'crowdshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
