"""How the results came about: what a page says of the run, and the command that repeats it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.classifier.compared import Compared
from crowdshot.encoders.encoder import Encoder
from crowdshot.labels.spelling import Twins
from crowdshot.methods import find
from crowdshot.model import priors
from crowdshot.version import __version__

BY_OTHERS = "; the consensus of labelled items and all that is said of annotators is Dawid–Skene's, from labels alone"
VERSIONS = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pillow")


@dataclass(frozen=True)
class Run:
    """What the results do not know of themselves.

    ``sources``: the files of labels. ``paths``, ``texts``: the items' images, or texts themselves, in the items' order;
    none for features. ``how``: terms and what they are. ``looks``: what images, features or texts were worth, in
    sentences. ``commands``: those that the next steps name, "ask" without what is to be spent. ``respelled``: what was
    read as something else than it was written; ``twins``: what may be one name.
    ``ordered``: whether the classes are.
    """

    sources: Sequence[str]
    items_from: str
    paths: Sequence[Path]
    how: Mapping[str, str]
    command: str
    commands: Mapping[str, str] = field(default_factory=dict)
    respelled: Sequence[str] = ()
    twins: Sequence[Twins] = ()
    left_out: Sequence[str] = ()
    looks: Sequence[str] = ()
    ordered: bool = False
    texts: Sequence[str] = ()

    @property
    def thing(self) -> str:
        """What there is of an item but its labels."""
        return "image" if self.paths else "text" if self.texts else "features"

    @property
    def things(self) -> str:
        return self.thing if self.thing.endswith("s") else f"{self.thing}s"


def describe(clf: CrowdClassifier, encoder: str | None) -> dict[str, str]:
    """``encoder``: what the user called it, None where it was chosen."""
    learner = clf.learner_again()
    method = find(learner.name)
    settings = ", ".join(f"{name} = {_plain(value)}" for name, value in _numbers(clf.settings_).items())
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    return {
        "Method": f"{method.name}: {method.summary}" + (BY_OTHERS if isinstance(learner, Compared) else ""),
        "Encoder": f"{encoder or 'chosen by the items'}: {_encoder(clf.encoder_)}",
        "Settings": f"{settings or 'none'}; seed {clf.seed}",
        "Versions": f"crowdshot {__version__}, {versions}, Python {platform.python_version()}",
    }


def _encoder(encoder: Encoder) -> str:
    if "about" in encoder.card:
        return str(encoder.card["about"])
    fed = "" if encoder.input is None else f" for {encoder.input.describe()}"
    trained_on, learned_from = encoder.card.get("trained_on"), encoder.card.get("source", {}).get("learned_from")
    part = f"{learned_from:,} of " if learned_from else ""  # the others validated and tested it
    return f"{encoder.architecture or 'a network'}{fed}" + (f", trained on {part}{trained_on}" if trained_on else "")


def _numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The prior on confusion matrices by its name and numbers; all else as it is."""
    if "c" not in settings:
        return dict(settings)
    card = priors.to_card(priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"]))
    prior = card.pop("confusion")
    kind, numbers = prior.pop("kind"), ", ".join(f"{name} {value:.3g}" for name, value in prior.items())
    return {**settings, **card, "c": f"{kind} ({numbers})"}


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
