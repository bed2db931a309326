"""Define methods that predict queries from crowd-labelled support items, and register them by name.

A `Method` states its name, the meta-training it needs, and the hyper-parameters that the paper tries. Its function
handles a batch of episodes and several candidates together, so that candidates share work (a run of 300 iterations
passes through 10 and 100). Nothing is fitted and kept: a method sees support and queries together. The probabilities of
a query do not depend on the other queries, except for MAML.

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
import traceback
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from itertools import product
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from crowdshot.encoders.shipped import PROTOTYPICAL_SUFFIX
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.formatting import command

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crowdshot.training.episodes import Batch

Predict = Callable[["CrowdEpisodes", "nn.Module", Sequence["Candidate"], int], "list[Tensor]"]
Candidate = Mapping[str, Any]
MethodName = Literal[
    "auto",
    "combined",
    "features",
    "labeling-search",
    "ours",
    "paper",
    "w/o PA",
    "LRMV",
    "LRDS",
    "RFMV",
    "RFDS",
    "PrMV",
    "PrDS",
    "PrSV",
    "MaMV",
    "MaDS",
    "CL",
    "MCL",
    "CNAL",
    "MCNAL",
    "LF",
    "MLF",
    "LNL",
    "PrMV w/ PA",
    "PrDS w/ PA",
    "MaMV w/ PA",
    "MaDS w/ PA",
    "MCL w/ PA",
    "MCNAL w/ PA",
]
"""Values of `CrowdClassifier(method=...)` for type checkers; those that other packages add are accepted too."""
NEARLY = 0.01  # tolerance for the sum of probabilities, in any precision


class CrowdEpisodes(NamedTuple):
    """B episodes as the input of a method: items for the network and labels of annotators."""

    support: Tensor  # (B, N, *shape) float
    labels: Tensor  # (B, N, R) int, -1 = missing
    query: Tensor  # (B, Q, *shape) float
    n_classes: int
    truth: Tensor | None = None  # (B, N); this and the next field are only for upper bounds
    confusion: Tensor | None = None  # (B, R, K, K)

    @classmethod
    def of(cls, batch: Batch, n_classes: int, prepare: Callable[[Tensor], Tensor] | None = None) -> CrowdEpisodes:
        """Convert drawn episodes; ``prepare`` converts stored items to the network's input."""
        support, query = (x.float() if prepare is None else prepare(x) for x in (batch.support, batch.query))
        return cls(support, batch.labels, query, n_classes, batch.support_truth, batch.confusion)

    def part(self, which: slice) -> CrowdEpisodes:
        """Return some of the episodes."""
        support, labels, query, n_classes, *known = self
        return CrowdEpisodes(
            support[which], labels[which], query[which], n_classes, *(None if x is None else x[which] for x in known)
        )

    def parts(self, size: int) -> Iterator[CrowdEpisodes]:
        """Yield at most ``size`` episodes at a time, in parts of equal size, because libraries optimise for shapes."""
        B = len(self.labels)
        even = math.ceil(B / math.ceil(B / max(1, size)))
        for start in range(0, B, even):
            yield self.part(slice(start, start + even))


@dataclass(frozen=True)
class Needs:
    """The meta-training that a method needs.

    Parameters
    ----------
    objective : {"mixture", "prototypical", "lnl", "maml"}
        Objective of the meta-training.
    pseudo_annotation : bool
        Whether simulated annotators label the episodes of the meta-training.
    by : tuple of str
        Settings of a candidate that the meta-training shares. Candidates with different values need different encoders.
    wide : bool
        Whether meta-training uses episodes of more classes than at test time and augmented photographs
        (docs/beyond.md).
    """

    objective: str
    pseudo_annotation: bool = False
    by: tuple[str, ...] = ()
    wide: bool = False

    def __str__(self) -> str:
        crowd = "simulated annotators" if self.pseudo_annotation else "clean labels"
        return f"an encoder meta-trained with {crowd} ({self.objective})"


IMAGE_ENCODERS = ("glyphs", "photo-lite0", "photo")  # one for each kind of images
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
    """A method that predicts queries from crowd-labelled support items.

    Parameters
    ----------
    name : str
    summary : str
        One line for lists of methods.
    run : callable
        ``run(episodes, encoder, candidates, seed)`` returns probabilities (B, Q, K) for each candidate.
    candidates : tuple of mapping
        Settings that the paper tries.
    default : mapping
        Settings to use without validation data.
    needs : Needs or None
        Meta-training that the encoder needs. None: the method needs no encoder.
    on_embeddings : bool
        Whether the method sees items only through the encoder. Items can then be embedded once for many episodes, and
        passed with an identity network as the encoder.
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

        They are in the docstring of its function or, if a module implements one family, of the module.
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
        """Return the class probabilities of the queries.

        Parameters
        ----------
        episodes : CrowdEpisodes
        encoder : torch.nn.Module or None
            Maps (n, *shape) to (n, D).
        seed : int
        **candidate
            Settings; missing ones have their defaults.

        Returns
        -------
        Tensor
            (B, Q, K).
        """
        return self.predict_candidates(episodes, encoder, [{**self.default, **candidate}], seed=seed)[0]

    def predict_candidates(
        self,
        episodes: CrowdEpisodes,
        encoder: nn.Module | None = None,
        candidates: Sequence[Candidate] | None = None,
        *,
        seed: int = 0,
    ) -> list[Tensor]:
        """Return the class probabilities of the queries for each candidate. Candidates share work.

        Parameters
        ----------
        episodes : CrowdEpisodes
        encoder : torch.nn.Module or None
            Maps (n, *shape) to (n, D).
        candidates : sequence of mapping or None
            Settings of each candidate; missing ones have their defaults. None: ``self.candidates``.
        seed : int

        Returns
        -------
        list of Tensor
            (B, Q, K) for each candidate.

        Raises
        ------
        CrowdshotError
            If episodes or settings are invalid, the method returns something other than probabilities, or a method of
            another package fails.
        """
        if self.needs is not None and encoder is None:
            raise CrowdshotError("is None", argument="encoder", expected=f"{self.needs} for {self.name}")
        _check(episodes)
        chosen = self.candidates if candidates is None else candidates
        known = set(self.default)
        for candidate in chosen:
            if not set(candidate) <= known:
                unknown = min(set(candidate) - known)
                raise CrowdshotError(
                    f"has {unknown!r}",
                    argument="settings",
                    found=unknown,
                    expected=f"some of {', '.join(sorted(known))} for {self.name}",
                )
        full = [{**self.default, **candidate} for candidate in chosen]
        if encoder is None:
            from torch import nn  # imported here, so that methods can be listed without torch

            encoder = nn.Identity()
        try:
            found = self.run(episodes, encoder, full, seed)
        except Exception as error:
            if isinstance(error, CrowdshotError | OSError) or getattr(self.run, "__module__", "").startswith(
                "crowdshot"
            ):
                raise
            raise _failure(self.name, error) from error
        _check_probabilities(self.name, found, len(full), (*episodes.query.shape[:2], episodes.n_classes))
        return [probabilities.detach() for probabilities in found]  # methods of other packages may not detach them


def grid(**values: Sequence[Any]) -> tuple[Candidate, ...]:
    """Return every combination of settings: ``grid(steps=(1, 2), b=(1.0, 10.0))`` has four candidates."""
    return tuple(dict(zip(values, combination, strict=True)) for combination in product(*values.values()))


def _failure(name: str, error: Exception) -> CrowdshotError:
    """Return an error that names the line of another package's method that failed."""
    line = traceback.extract_tb(error.__traceback__)[1]  # the first is ours
    reason = next(iter(str(error).splitlines()), "")
    where = f"{Path(line.filename).name}, line {line.lineno}"
    return CrowdshotError(
        f"The method {name!r} failed at {where} ({type(error).__name__}: {reason})", found=type(error).__name__
    )


def _check(episodes: CrowdEpisodes) -> None:
    """Raise an error if the tensors of the episodes do not fit together."""
    support, labels, query, K = episodes[:4]
    if labels.ndim != 3 or support.shape[:2] != labels.shape[:2] or labels.is_floating_point():
        raise CrowdshotError(
            f"is {labels.dtype} of shape {tuple(labels.shape)}",
            argument="labels",
            found=tuple(labels.shape),
            expected=f"integers (B, N, R) with (B, N) = {tuple(support.shape[:2])} as in support",
        )
    if query.shape[0] != support.shape[0] or query.shape[2:] != support.shape[2:] or query.ndim < 3:
        raise CrowdshotError(
            f"has shape {tuple(query.shape)}",
            argument="query",
            found=tuple(query.shape),
            expected=f"({support.shape[0]}, Q, {', '.join(map(str, support.shape[2:]))}) as in support",
        )
    if not (support.is_floating_point() and query.is_floating_point()):
        raise CrowdshotError(
            f"is {support.dtype}", argument="support", found=str(support.dtype), expected="floating-point numbers"
        )
    if K < 2:
        raise CrowdshotError(f"is {K}", argument="n_classes", found=K, expected="2 or more")


def _check_probabilities(name: str, found: Any, n_candidates: int, shape: tuple[int, int, int]) -> None:
    """Raise an error unless a method, which may be of another package, returned probabilities."""
    fault = _fault_of(found, n_candidates, shape)
    if fault:
        raise CrowdshotError(
            f"The method {name!r} returned {fault}",
            argument="method",
            found=name,
            expected=f"a list with probabilities (B, Q, K) = {shape} for each of the {n_candidates} candidates",
        )


def _fault_of(found: Any, n_candidates: int, shape: tuple[int, int, int]) -> str:
    """Describe what is wrong with the output of a method; "" if nothing is."""
    from torch import Tensor  # imported here, so that methods can be listed without torch

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
        if not ((one >= 0).all() & ((totals - 1).abs() <= NEARLY).all()):  # false for NaN
            low, least, most = (float(x) for x in (one.min(), totals.min(), totals.max()))
            numbers = f"numbers of {low:.3g} or more that sum to between {least:.3g} and {most:.3g}"
            return "NaN" if math.isnan(low) else numbers
    return ""


# ---- the registry ----

GROUP = "crowdshot.methods"
ALSO_TAKEN = ("auto", "paper")  # further values of `CrowdClassifier(method=...)`
OBJECTIVES = ("lnl", "maml", "mixture", "prototypical")  # values of `Needs.objective`
OUR_PACKAGE = "crowdshot"


class Registry(UserDict[str, Method]):
    """Methods by name: those of crowdshot, and those that packages add through entry points.

        [project.entry-points."crowdshot.methods"]
        "My method" = "my_package:METHOD"

    The object of an entry point is a `Method`, which gets the entry point's name, or a mapping of names to methods.
    Entry points are loaded by the first look-up that needs them, because loading one may import torch. An entry point
    that cannot be loaded is skipped with a warning.
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
        self._searched |= wanted  # before loading, because an entry point may use the registry
        for entry in _entries() if wanted else ():
            if ("ours" if _package(entry) == OUR_PACKAGE else "others") not in wanted:
                continue
            try:
                self._add(entry)
            except (Exception, SystemExit) as error:  # code of other packages must not stop crowdshot
                first_line = next(iter(str(error).splitlines()), "")
                reason = first_line if isinstance(error, _RefusedError) else f"{type(error).__name__}: {first_line}"
                warnings.warn(
                    CrowdshotWarning(
                        f"The method {entry.name!r} of {_package(entry)} cannot be used and is left out ({reason})",
                        found=entry.name,
                    ),
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
            raise _RefusedError("its name is already in use")
        if not isinstance(found, Method):
            raise _RefusedError(f"{source} is a {type(found).__name__}, expected a crowdshot.methods.Method")
        if found.needs is not None and found.needs.objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise _RefusedError(f"it needs the objective {found.needs.objective!r}, expected one of {known}")
        for setting, value in (pair for one in (found.default, *found.candidates) for pair in one.items()):
            if not isinstance(value, Real):  # because the command line and stored results contain it
                raise _RefusedError(f"its setting {setting} is {value!r}, expected a number or a boolean")
        return found if found.name == name else replace(found, name=name)


def _entries() -> list[EntryPoint]:
    """Return the registered methods, those of this project first."""
    entries = entry_points(group=GROUP)
    return sorted(entries, key=lambda entry: (_package(entry) != OUR_PACKAGE, entry.name, entry.value))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


class _RefusedError(Exception):
    """Raised for an entry point that was loaded and is not a usable method."""


# ---- the methods of crowdshot ----

PROTOTYPICAL = Needs("prototypical")
WIDE = Needs("prototypical", wide=True)
STEPS = (1, 2, 3, 4, 5, 10)  # candidates for the number of EM steps, from the paper
MIXTURE = {"steps": 2, "b": 100.0, "tau": 1.0, "c": 1.0, "variance": 1.0, "centred": False}
MAP_EM = later("crowdshot.classifier.episode_methods", "map_em")

SEARCHED = grid(scale=(10.0, 20.0, 40.0), tau=(0.15, 0.5, 1.5))
SEARCH = {"scale": 20.0, "tau": 0.5, "width": 32}

_OWN = [
    Method(
        "labeling-search",
        "an average over the most probable true labels of the items, on meta-learned embeddings",
        later("crowdshot.classifier.episode_methods", "average"),
        SEARCHED,
        SEARCH,
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "features",
        "a learned label model, and a feature model weighted by how well it predicts held-out labels",
        later("crowdshot.classifier.episode_methods", "predict_features"),
        ({},),
        {},
        WIDE,
        on_embeddings=True,
    ),
    Method(
        "combined",
        "the average of labeling-search and features, if the search predicts held-out labels about as well",
        later("crowdshot.classifier.episode_methods", "predict_combined"),
        SEARCHED,
        SEARCH,
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
        "Ours with an encoder that was meta-trained without simulated annotators",
        MAP_EM,
        grid(steps=STEPS),
        MIXTURE,
        PROTOTYPICAL,
        on_embeddings=True,
    ),
]

METHODS = Registry({method.name: method for method in _OWN})
"""Methods by name, a mapping of str to `Method`.

It has crowdshot's methods, those of installed packages (entry points "crowdshot.methods"), and, from `crowdshot_paper`,
the systems that the paper compares, by the paper's names. Iterating over it loads all of them.
"""


RENAMED = {"both": "combined", "learned": "features", "labelings": "labeling-search"}  # until 0.4


def current_name(name: str, warn: bool = True) -> str:
    """Return the current name of a method that was renamed in version 0.3.

    Saved classifiers and stored results may have old names, which are accepted without a warning.
    """
    present = RENAMED.get(str(name).lower())
    if present is None:
        return name
    if warn:
        message = f"The method {name!r} was renamed to {present!r}. The old name will be removed in version 0.4."
        warnings.warn(message, FutureWarning, stacklevel=3)
    return present


def find(name: str) -> Method:
    """Return the method of this name, in any case. Raise an error if there is none."""
    name = current_name(name)
    by_name = {known.lower(): known for known in METHODS.data}
    if str(name).lower() not in by_name:
        METHODS._search("ours")
        by_name = {known.lower(): known for known in METHODS.data}
    if str(name).lower() not in by_name:
        by_name = {known.lower(): known for known in METHODS}
    if str(name).lower() not in by_name:
        raise CrowdshotError(
            f"is {name!r}",
            argument="method",
            found=name,
            expected=f"one of {', '.join((*ALSO_TAKEN, *METHODS))}",
            among=(*ALSO_TAKEN, *METHODS),
        )
    return METHODS[by_name[str(name).lower()]]
