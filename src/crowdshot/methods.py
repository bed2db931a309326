"""What every compared system is: crowd-labelled support items in, class probabilities of the queries out.

A `Method` says by data what it is called, what must be meta-trained before, and which hyper-parameters the paper tries;
its one function handles a whole batch of episodes and several candidates at once, so that candidates share work (300
iterations pass through 10 and 100). Nothing is fitted and kept: a method sees support and queries together. A query's
probabilities do not depend on the other queries, but for MAML (see there).

>>> import torch
>>> from crowdshot import METHODS
>>> from crowdshot.methods import CrowdEpisodes
>>> support = torch.tensor([[[0.0], [0.2], [5.0], [5.1]]])  # one episode of four items
>>> labels = torch.tensor([[[0, 0, 1], [0, -1, 0], [1, 1, 1], [1, 1, 0]]])  # of three annotators, -1 = no label
>>> METHODS["LRDS"].predict(CrowdEpisodes(support, labels, torch.tensor([[[0.1], [5.2]]]), 2), C=0.1).argmax(-1)
tensor([[0, 1]])
"""

from __future__ import annotations

import ast
import importlib
import math
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from itertools import product
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crowdshot.encoders.shipped import PROTOTYPICAL_SUFFIX
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import command

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crowdshot.training.episodes import Batch

Predict = Callable[["CrowdEpisodes", "nn.Module", Sequence["Candidate"], int], "list[Tensor]"]
Candidate = Mapping[str, Any]
NEARLY = 0.01  # how far from 1 probabilities may sum, in any precision


class CrowdEpisodes(NamedTuple):
    """B episodes as a method gets them: items as the network takes them, labels as the crowd gave them."""

    support: Tensor  # (B, N, *shape) float
    labels: Tensor  # (B, N, R) int, -1 = missing
    query: Tensor  # (B, Q, *shape) float
    n_classes: int
    truth: Tensor | None = None  # (B, N), and
    confusion: Tensor | None = None  # (B, R, K, K): for `ceilings` alone, which know what no method does

    @classmethod
    def of(cls, batch: Batch, n_classes: int, prepare: Callable[[Tensor], Tensor] | None = None) -> CrowdEpisodes:
        """From drawn episodes; ``prepare`` brings stored items into the network's form (`network_input.input_of`)."""
        support, query = (x.float() if prepare is None else prepare(x) for x in (batch.support, batch.query))
        return cls(support, batch.labels, query, n_classes, batch.support_truth, batch.confusion)

    def part(self, which: slice) -> CrowdEpisodes:
        support, labels, query, n_classes, *known = self
        return CrowdEpisodes(
            support[which], labels[which], query[which], n_classes, *(None if x is None else x[which] for x in known)
        )

    def parts(self, size: int) -> Iterator[CrowdEpisodes]:
        """At most ``size`` episodes at a time, in parts of (nearly) one size: libraries tune themselves to shapes."""
        B = len(self.labels)
        even = math.ceil(B / math.ceil(B / max(1, size)))
        for start in range(0, B, even):
            yield self.part(slice(start, start + even))


@dataclass(frozen=True)
class Needs:
    """The meta-training a method builds on.

    ``objective`` is one of `training.recipe`'s. ``by``: which of a candidate's settings the meta-training shares, so
    that candidates that differ in them need an encoder each. ``wide``: episodes of many classes, more than it is for,
    and altered photographs (docs/beyond.md).
    """

    objective: str
    pseudo_annotation: bool = False
    by: tuple[str, ...] = ()
    wide: bool = False

    def __str__(self) -> str:
        crowd = "simulated annotators" if self.pseudo_annotation else "clean labels"
        return f"an encoder meta-trained with {crowd} ({self.objective})"


IMAGE_ENCODERS = ("glyphs", "photo-lite0", "photo")  # shipped, one for each kind of images
SUFFIXES = {
    Needs("mixture", pseudo_annotation=True): "",
    Needs("prototypical"): PROTOTYPICAL_SUFFIX,
    Needs("prototypical", pseudo_annotation=True): PROTOTYPICAL_SUFFIX + "-pa",
    Needs("lnl", pseudo_annotation=True): "-lnl",
    Needs("maml"): "-maml",
    Needs("maml", pseudo_annotation=True): "-maml-pa",
}
"""The ending of the names of shipped encoders that meet a need."""


def encoder_names(needs: Needs) -> list[str]:
    """Return the names of the image encoders that meet a need, whether they are shipped or not."""
    return [name + encoder_suffix(needs) for name in IMAGE_ENCODERS]


def encoder_suffix(needs: Needs) -> str:
    """Return the ending of the names of encoders that meet a need."""
    clean = "" if needs.pseudo_annotation else "-clean"
    return SUFFIXES.get(replace(needs, by=(), wide=False), f"-{needs.objective}{clean}")


def training_command(needs: Needs) -> str:
    """Return the command that trains an encoder that meets the need."""
    options = {} if needs.wide else {"objective": needs.objective, "clean": not needs.pseudo_annotation}
    return command("train", (), options)


def later(module: str, function: str) -> Predict:
    """Return a stand-in for a module's function that imports the module when it is first called."""

    def run(
        episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int, **known: Any
    ) -> list[Tensor]:
        found: list[Tensor] = getattr(importlib.import_module(module), function)(
            episodes, encoder, candidates, seed, **known
        )
        return found

    run.__module__, run.__name__ = module, function
    return run


@dataclass(frozen=True)
class Method:
    """One system. ``default`` is the candidate to use where nothing helps to choose.

    ``on_embeddings``: it sees items through the encoder alone, so that each need be embedded only once for any number
    of episodes, which are then given with `architectures.Identity`.
    """

    name: str
    summary: str
    run: Predict = field(repr=False)
    candidates: tuple[Candidate, ...]
    default: Candidate
    needs: Needs | None = None
    on_embeddings: bool = False

    @property
    def documentation(self) -> str:
        """Return authors, title, year, link, idea and open questions, read without importing the method's module.

        They stand in the docstring of its function or, where a module holds one family, of the module.
        """
        spec = find_spec(self.run.__module__)
        if spec is None or spec.origin is None:
            return ""
        module = ast.parse(Path(spec.origin).read_text("utf-8"))
        functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
        own = next((ast.get_docstring(node) or "" for node in functions if node.name == self.run.__name__), "")
        return own if "Authors:" in own else ast.get_docstring(module) or own

    def predict(
        self, episodes: CrowdEpisodes, encoder: nn.Module | None = None, *, seed: int = 0, **candidate: Any
    ) -> Tensor:
        """Probabilities of the queries, (B, Q, K). Settings not given are the default's."""
        return self.predict_candidates(episodes, encoder, [{**self.default, **candidate}], seed=seed)[0]

    def predict_candidates(
        self,
        episodes: CrowdEpisodes,
        encoder: nn.Module | None = None,
        candidates: Sequence[Candidate] | None = None,
        *,
        seed: int = 0,
    ) -> list[Tensor]:
        """The same for each candidate (None: all of the paper's), sharing what work can be shared.

        ``encoder`` (n, *shape) -> (n, D); `architectures.Identity` where items are embeddings already.
        """
        if self.needs is not None and encoder is None:
            raise CrowdshotError(f"encoder is None, expected {self.needs} for {self.name}.")
        _check(episodes)
        chosen = self.candidates if candidates is None else candidates
        known = set(self.default)
        for candidate in chosen:
            if not set(candidate) <= known:
                strange = min(set(candidate) - known)
                raise CrowdshotError(
                    f"settings has {strange!r}, expected some of {', '.join(sorted(known))} for {self.name}."
                )
        full = [{**self.default, **candidate} for candidate in chosen]
        if encoder is None:
            from torch import nn  # here, so that methods can be listed without it

            encoder = nn.Identity()
        found = self.run(episodes, encoder, full, seed)
        _check_probabilities(self.name, found, len(full), (*episodes.query.shape[:2], episodes.n_classes))
        return [probabilities.detach() for probabilities in found]  # an outside method may not


def grid(**values: Sequence[Any]) -> tuple[Candidate, ...]:
    """Every combination: ``grid(steps=(1, 2), b=(1.0, 10.0))`` is four candidates."""
    return tuple(dict(zip(values, combination, strict=True)) for combination in product(*values.values()))


def _check(episodes: CrowdEpisodes) -> None:
    """What goes in."""
    support, labels, query, K = episodes[:4]
    if labels.ndim != 3 or support.shape[:2] != labels.shape[:2] or labels.is_floating_point():
        raise CrowdshotError(
            f"labels is {labels.dtype} of shape {tuple(labels.shape)}, expected integers (B, N, R) with (B, N) = "
            f"{tuple(support.shape[:2])} as in support."
        )
    if query.shape[0] != support.shape[0] or query.shape[2:] != support.shape[2:] or query.ndim < 3:
        raise CrowdshotError(
            f"query is of shape {tuple(query.shape)}, expected ({support.shape[0]}, Q, "
            f"{', '.join(map(str, support.shape[2:]))}) to go with support."
        )
    if not (support.is_floating_point() and query.is_floating_point()):
        raise CrowdshotError(f"support is {support.dtype}, expected floats, as the network takes them.")
    if K < 2:
        raise CrowdshotError(f"n_classes is {K}, expected 2 or more.")


def _check_probabilities(name: str, found: Any, n_candidates: int, shape: tuple[int, int, int]) -> None:
    """What comes out: somebody else's method may give anything."""
    strange = _strange_in(found, n_candidates, shape)
    if strange:
        raise CrowdshotError(
            f"the output of {name!r} is {strange}, expected a list with a tensor of probabilities, (B, Q, K) = {shape},"
            f" for each candidate, {n_candidates} in all."
        )


def _strange_in(found: Any, n_candidates: int, shape: tuple[int, int, int]) -> str:
    from torch import Tensor  # here, so that methods can be listed without it

    if not isinstance(found, list | tuple):
        return f"a {type(found).__name__}"
    if len(found) != n_candidates:
        return f"a list of {len(found)}"
    for one in found:
        if not isinstance(one, Tensor):
            return f"a list with a {type(one).__name__}"
        if tuple(one.shape) != shape or not one.is_floating_point():
            return f"{one.dtype} of shape {tuple(one.shape)}"
        totals = one.sum(-1)
        if not ((one >= 0).all() & ((totals - 1).abs() <= NEARLY).all()):  # NaN is neither
            low, least, most = (float(x) for x in (one.min(), totals.min(), totals.max()))
            numbers = f"numbers from {low:.3g} on that sum to {least:.3g} at least and {most:.3g} at most"
            return "not a number in places" if math.isnan(low) else numbers
    return ""


# ---- the registry -------------------------------------------------------------------------------------------------

GROUP = "crowdshot.methods"
ALSO_TAKEN = ("auto", "paper")  # what `CrowdClassifier(method=)` takes beside names of methods
OBJECTIVES = ("lnl", "maml", "mixture", "prototypical")  # of meta-training, which `Needs.objective` names
OUR_PACKAGE = "crowdshot"


class Registry(UserDict[str, Method]):
    """Methods by name: our own, and those that packages add through entry points.

        [project.entry-points."crowdshot.methods"]
        "My method" = "my_package:METHOD"

    The entry point's name is the method's name and its object a `Method`, or its object is a mapping of names to
    methods. Entry points are loaded at the first look-up that needs them, because loading one may import torch. One that
    cannot be loaded is skipped with a warning.
    """

    def __init__(self, own: Mapping[str, Method]) -> None:
        self._searched: set[str] = set()  # "ours", "others"
        self._from_others: set[str] = set()
        super().__init__(own)

    def __missing__(self, name: str) -> Method:
        if name not in self:
            raise KeyError(name)
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        if name not in self.data:
            self._search("ours")
        if name not in self.data:
            self._search()
        return name in self.data

    def __iter__(self) -> Iterator[str]:
        self._search()
        return iter(list(self.data))

    def __len__(self) -> int:
        self._search()
        return len(self.data)

    def is_built_in(self, name: str) -> bool:
        """Return whether this project ships the method."""
        return name in self and name not in self._from_others

    def _search(self, *whose: str) -> None:
        """Load the entry points of this project ("ours") and of other packages ("others"), each once."""
        wanted = {*(whose or ("ours", "others"))} - self._searched
        self._searched |= wanted  # first: an entry point may look into the registry while it is loaded
        for entry in _entries() if wanted else ():
            if ("ours" if _package(entry) == OUR_PACKAGE else "others") not in wanted:
                continue
            try:
                self._add(entry)
            except (Exception, SystemExit) as error:  # other people's code must not stop ours
                first_line = next(iter(str(error).splitlines()), "")
                what = first_line if isinstance(error, _RefusedError) else f"{type(error).__name__}: {first_line}"
                warnings.warn(
                    f"the method {entry.name!r} of {_package(entry)} cannot be used and is left out ({what}).",
                    UserWarning,
                    stacklevel=2,
                )

    def _add(self, entry: EntryPoint) -> None:
        found = entry.load()
        methods = found if isinstance(found, Mapping) else {entry.name: found}
        for name, method in methods.items():
            if self.data.get(name) is not method:
                self.data[name] = self._checked(name, method, entry.value)
            if _package(entry) != OUR_PACKAGE:
                self._from_others.add(name)

    def _checked(self, name: str, found: Any, source: str) -> Method:
        if name.lower() in {*(known.lower() for known in self.data), *ALSO_TAKEN}:
            raise _RefusedError("its name is taken")
        if not isinstance(found, Method):
            raise _RefusedError(f"{source} is a {type(found).__name__}, expected a crowdshot.methods.Method")
        if found.needs is not None and found.needs.objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise _RefusedError(f"it needs the objective {found.needs.objective!r}, expected one of {known}")
        for setting, value in (pair for one in (found.default, *found.candidates) for pair in one.items()):
            if not isinstance(value, Real):  # the command line and stored rows must be able to name it
                raise _RefusedError(f"its setting {setting} is {value!r}, expected a number, true or false")
        return found if found.name == name else replace(found, name=name)


def _entries() -> list[EntryPoint]:
    """Return the registered methods, those of this project first."""
    entries = entry_points(group=GROUP)
    return sorted(entries, key=lambda entry: (_package(entry) != OUR_PACKAGE, entry.name, entry.value))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


class _RefusedError(Exception):
    """Raised for an entry point that was loaded and is not a usable method."""


# ---- our own methods ----------------------------------------------------------------------------------------------

PROTOTYPICAL = Needs("prototypical")
WIDE = Needs("prototypical", wide=True)
STEPS = (1, 2, 3, 4, 5, 10)  # candidates for the number of EM steps, from the paper
MIXTURE = {"steps": 2, "b": 100.0, "tau": 1.0, "c": 1.0, "centred": False}
MAP_EM = later("crowdshot.classifier.episode_methods", "map_em")

_OWN = [
    Method(
        "labeling-search",
        "an average over the most probable true labels of the labelled items, on meta-learned embeddings",
        later("crowdshot.classifier.episode_methods", "average"),
        grid(scale=(10.0, 20.0, 40.0), tau=(0.15, 0.5, 1.5)),
        {"scale": 20.0, "tau": 0.5, "width": 32},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "features",
        "labels by an inference that learned from crowds, and looks as far as they foretell labels",
        later("crowdshot.classifier.episode_methods", "by_looks"),
        ({},),
        {},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "combined",
        "Labelings and Learned, each believed in part, where the search foretells hidden labels as well",
        later("crowdshot.classifier.episode_methods", "pooled"),
        grid(scale=(10.0, 20.0, 40.0), tau=(0.15, 0.5, 1.5)),
        {"scale": 20.0, "tau": 0.5, "width": 32},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "Ours",
        "a mixture of Gaussians with a confusion matrix for each annotator, on meta-learned embeddings",
        MAP_EM,
        grid(steps=STEPS, b=(1.0, 10.0, 100.0)),
        MIXTURE,
        Needs("mixture", pseudo_annotation=True, by=("steps", "b")),
        on_embeddings=True,
    ),
    Method(
        "w/o PA",
        "Ours with an encoder that has not met simulated annotators",
        MAP_EM,
        grid(steps=STEPS),
        MIXTURE,
        PROTOTYPICAL,
        on_embeddings=True,
    ),
]

METHODS = Registry({method.name: method for method in _OWN})
"""Every method by the paper's name for it; `crowdshot_paper` adds the systems that the paper compares with."""


RENAMED = {"both": "combined", "learned": "features", "labelings": "labeling-search"}  # until 0.4


def current_name(name: str, warn: bool = True) -> str:
    """Return the present name of a method that had another one before version 0.3.

    Saved classifiers and stored results keep the old names and are read without a warning.
    """
    present = RENAMED.get(str(name).lower())
    if present is None:
        return name
    if warn:
        warnings.warn(f"the method {name!r} is called {present!r} now.", FutureWarning, stacklevel=3)
    return present


def find(name: str) -> Method:
    """Return the method of this name, in capitals or not."""
    name = current_name(name)
    by_name = {known.lower(): known for known in METHODS.data}
    if str(name).lower() not in by_name:
        METHODS._search("ours")
        by_name = {known.lower(): known for known in METHODS.data}
    if str(name).lower() not in by_name:
        by_name = {known.lower(): known for known in METHODS}
    if str(name).lower() not in by_name:
        raise CrowdshotError(f"method is {name!r}, expected {', '.join((*ALSO_TAKEN, *METHODS))}.")
    return METHODS[by_name[str(name).lower()]]
