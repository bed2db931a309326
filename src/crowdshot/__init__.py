"""Turn noisy labels from several annotators into consensus labels and a classifier.

    from crowdshot import CrowdClassifier
    clf = CrowdClassifier().fit(images, labels)      # labels: (items, annotators) array, table, or Annotations
    clf.consensus_, clf.annotators_, clf.predict(new_images)

- `CrowdAggregator`  fits a consensus and annotator accuracies to labels alone
- `CrowdClassifier`  fits a consensus, annotator accuracies and a classifier to items and labels
- `Annotations`      labels by item and annotator, from and to tables and matrices
- `read_labels`      reads label files of any tool; `WRITERS` write them
- `AnnotatorPriors`  the accuracy of annotators in earlier projects
- `aggregate`        functions for labels alone: majority vote, Dawid-Skene and others
- `save_pipeline`, `load_pipeline`   save a Pipeline that ends in a classifier to one file, without pickle
- `metrics`          evaluate a classifier without known truth
- `model_selection`  cross-validation with labels that have gaps
- `plots`            plot the results of estimators
- `guarantees`       prediction sets, accuracy and class shares from a checked random sample
- `asking`           choose the most useful questions to annotators
- `preferences`    rank items from pairwise preferences
- `labelings`        the paper's model on tensors, integrated by beam search: the default for few items
- `mixture`          the paper's model on tensors, fitted by EM
- `priors`           priors of the model, such as `OneCoin`
- `simulate`         simulated annotators
- `METHODS`          all methods that can be compared, with the same interface
- `load_encoder`, `save_encoder`, `build_encoder`, `Encoder`, `ImageInput`, `ARCHITECTURES`   networks that embed items
- `embedding_cache`   a folder that stores embeddings
- `ClassPool`        classes with examples, for training and test
- `train`, `Job`, `Recipe`   meta-training
- `CrowdshotError`   bad input
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from crowdshot.errors import CrowdshotError
from crowdshot.extras import missing_packages_explained
from crowdshot.version import __version__ as __version__

if TYPE_CHECKING:
    from crowdshot import metrics, model_selection, plots
    from crowdshot.classifier.crowd_aggregator import CrowdAggregator
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.classifier.pipelines import load_pipeline, save_pipeline
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.encoders.encoder_files import build_encoder, load_encoder, save_encoder
    from crowdshot.encoders.image_input import ImageInput
    from crowdshot.encoders.networks import ARCHITECTURES
    from crowdshot.io.embedding_store import embedding_cache
    from crowdshot.labels import aggregation as aggregate
    from crowdshot.labels import asking, guarantees, preferences
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.annotator_quality import AnnotatorPriors
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
    "CrowdAggregator",
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
    "guarantees",
    "labelings",
    "load_encoder",
    "load_pipeline",
    "metrics",
    "mixture",
    "model_selection",
    "plots",
    "preferences",
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
    "guarantees": "labels.guarantees",
    "labelings": "model.labeling_search",
    "metrics": "metrics",
    "mixture": "model.mixture",
    "model_selection": "model_selection",
    "plots": "plots",
    "preferences": "labels.preferences",
    "priors": "model.priors",
    "simulate": "training.simulated_annotators",
}
_NAMES = {
    "ARCHITECTURES": "encoders.networks",
    "METHODS": "methods",
    "WRITERS": "labels.formats",
    "Annotations": "labels.annotations",
    "AnnotatorPriors": "labels.annotator_quality",
    "ClassPool": "training.pools",
    "CrowdAggregator": "classifier.crowd_aggregator",
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
    """Load public names on first use, so that `crowdshot --help` does not wait for torch."""
    if name in _MODULES or name in _NAMES:
        with missing_packages_explained(f"crowdshot.{name}"):
            module = importlib.import_module(f"crowdshot.{_MODULES.get(name) or _NAMES[name]}")
        return module if name in _MODULES else getattr(module, name)
    if name in _MOVED:
        message = f"crowdshot.{name} has moved to {_MOVED[name]}. The old name will be removed in version 0.4."
        warnings.warn(message, FutureWarning, stacklevel=2)
        return getattr(importlib.import_module(_MOVED[name]), name)
    raise AttributeError(f"module 'crowdshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
