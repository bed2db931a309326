"""The registry's way to methods of other packages: entry points in the group ``crowdshot.methods``.

    [project.entry-points."crowdshot.methods"]
    "My method" = "my_package:METHOD"

The entry point's name is the method's, its object a `Method`.
"""

from __future__ import annotations

import warnings
from collections import UserDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from numbers import Real

from crowdshot.methods.contract import Method

GROUP = "crowdshot.methods"
ALSO_TAKEN = ("auto", "paper")  # what `CrowdClassifier(method=)` takes beside names of methods


class Registry(UserDict[str, Method]):
    """Name -> method. Those of other packages come behind the built-in ones, and are loaded when first looked for.

    Not before: they import this package, and loading one may load torch. A built-in name is found without them. One
    that cannot be loaded is left out, with a warning.
    """

    def __init__(self, built_in: Mapping[str, Method]) -> None:
        self._searched = False
        super().__init__(built_in)

    def __missing__(self, name: str) -> Method:
        self._search()
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        if name not in self.data:
            self._search()
        return name in self.data

    def __iter__(self) -> Iterator[str]:
        self._search()
        return iter(list(self.data))

    def __len__(self) -> int:
        self._search()
        return len(self.data)

    def _search(self) -> None:
        if self._searched:
            return
        self._searched = True  # first: what is loaded now may look into the registry
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
            try:
                self.data[entry.name] = self._load(entry)
            except (Exception, SystemExit) as error:  # somebody else's code: whatever it does, ours goes on
                first_line = next(iter(str(error).splitlines()), "")
                what = first_line if isinstance(error, _RefusedError) else f"{type(error).__name__}: {first_line}"
                package = entry.dist.name if entry.dist is not None else entry.value
                warnings.warn(
                    f"the method {entry.name!r} of {package} cannot be used and is left out ({what}).",
                    UserWarning,
                    stacklevel=2,
                )

    def _load(self, entry: EntryPoint) -> Method:
        if entry.name.lower() in {*(name.lower() for name in self.data), *ALSO_TAKEN}:
            raise _RefusedError("its name is taken")
        found = entry.load()
        if not isinstance(found, Method):
            raise _RefusedError(f"{entry.value} is a {type(found).__name__}, expected a crowdshot.methods.Method")
        objectives = {one.needs.objective for one in self.data.values() if one.needs is not None}
        if found.needs is not None and found.needs.objective not in objectives:
            known = ", ".join(sorted(objectives))
            raise _RefusedError(f"it needs the objective {found.needs.objective!r}, expected one of {known}")
        for name, value in (pair for one in (found.default, *found.candidates) for pair in one.items()):
            if not isinstance(value, Real):  # which a command line and a store's rows can name
                raise _RefusedError(f"its setting {name} is {value!r}, expected a number, true or false")
        return found if found.name == entry.name else replace(found, name=entry.name)


class _RefusedError(Exception):
    """An entry point that was loaded and is no method that can be used."""
