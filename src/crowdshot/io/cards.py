"""Save tensors with a JSON card: one safetensors file per saved object.

The card is JSON in the file's metadata, which any safetensors viewer shows. It says what the tensors are (``kind``),
the version of the format, the library versions that wrote the file, and everything else that the kind needs. A checksum
in the card covers the card and the names, types, shapes and bytes of the tensors; files of 0.1.0 have no checksum.
Nothing is unpickled: reading a file from an unknown source runs no code from it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import check_file, replacing
from crowdshot.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
KEY = "crowdshot"  # metadata entry with the card
CHECKSUM = "sha256"  # entry of the card

Card = dict[str, Any]


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], card: Mapping[str, Any]) -> None:
    """Save tensors and a card atomically.

    Parameters
    ----------
    path : path-like
    tensors : mapping
        Name -> tensor.
    card : mapping
        Plain JSON with at least a ``kind``; the format and the versions of the libraries are added.
    """
    import safetensors.torch  # imported here, like torch, so that reading a card does not import torch
    import torch

    # safetensors accepts neither views nor two names for the same memory
    owned = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    _write(path, card, {"torch": torch.__version__}, lambda metadata: safetensors.torch.save(owned, metadata=metadata))


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], card: Mapping[str, Any]) -> None:
    """Save arrays and a card as `write_safetensors` does, without importing torch."""
    import safetensors.numpy  # imported here because reading a card does not need it

    owned = {name: np.array(array, order="C") for name, array in arrays.items()}
    _write(path, card, {"numpy": np.__version__}, lambda metadata: safetensors.numpy.save(owned, metadata=metadata))


def _write(
    path: str | os.PathLike[str],
    card: Mapping[str, Any],
    versions: Mapping[str, str],
    save: Callable[[dict[str, str]], bytes],
) -> None:
    target = Path(path)
    check_file(target)
    made_with = {"crowdshot": __version__, **versions, "python": platform.python_version()}
    full_card = {**card, "kind": card["kind"], "format": FORMAT, "made_with": made_with}
    try:
        text = _text(full_card)
    except (TypeError, ValueError) as error:
        raise CrowdshotError(
            f"has a card that is not plain JSON ({error})", where=target, expected="text, numbers, lists and mappings"
        ) from None
    reread = json.loads(text)  # the checksum covers the card as it will be read: tuples become lists
    content = save({KEY: _text({**reread, CHECKSUM: _checksum(io.BytesIO(save({KEY: text})), reread)})})
    with replacing(target) as temporary:
        temporary.write_bytes(content)


def _text(card: Card) -> str:
    return json.dumps(card, allow_nan=False, sort_keys=True)


def _checksum(file: IO[bytes], card: Card) -> str:
    """Return the hash of the card and of a safetensors file: its header (except metadata) and its bytes."""
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    digest = hashlib.sha256(json.dumps([header, card], sort_keys=True).encode())
    while part := file.read(2**20):
        digest.update(part)
    return digest.hexdigest()


def read_safetensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], Card]:
    """Return the tensors (on the CPU) and the card of a file that `write_safetensors` made for this ``kind``."""
    return _read(path, kind, "pt")


def read_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, NDArray[Any]], Card]:
    """Return the arrays and the card of a file without importing torch."""
    return _read(path, kind, "np")


def read_card(path: str | os.PathLike[str], kind: str) -> Card:
    """Return the card of a file without importing torch; the checksum is not verified."""
    return _read(path, kind, None)[1]


def _read(
    path: str | os.PathLike[str], kind: str, framework: Literal["pt", "np"] | None
) -> tuple[dict[str, Any], Card]:
    source = Path(path)
    expected = f"{_with_article(kind)} saved by crowdshot"
    try:
        if source.is_dir():
            inside = source / "model.safetensors"
            hint = f"Did you mean {inside}?" if kind == "classifier" and inside.is_file() else None
            raise CrowdshotError("is a folder", where=source, expected=f"{_with_article(kind)} file", hint=hint)
        if not source.is_file():
            raise CrowdshotError("does not exist", where=source, expected=f"{_with_article(kind)} file")
        with source.open("rb") as file:
            start = file.read(9)
        with safe_open(source, framework=framework or "np") as opened:
            card = _checked((opened.metadata() or {}).get(KEY), kind, source, expected)
            checksum = card.pop(CHECKSUM, None)
            if framework and checksum is not None:
                with source.open("rb") as file:
                    if _checksum(file, card) != checksum:
                        raise CrowdshotError("is damaged (its checksum differs)", where=source, expected=expected)
            tensors = _tensors(opened, framework) if framework else {}
    except SafetensorError as error:
        plausible = start[8:] == b"{" and int.from_bytes(start[:8], "little") < 100_000_000
        problem = "is truncated or damaged" if plausible else "is not a safetensors file"
        raise CrowdshotError(f"{problem} ({error})", where=source, expected=expected) from None
    except TypeError as error:
        raise CrowdshotError(f"holds numbers of an unknown type ({error})", where=source, expected=expected) from None
    except OSError as error:
        raise CrowdshotError(f"could not be read ({error.strerror or error})", where=source) from error
    return tensors, card


def _tensors(opened: Any, framework: Literal["pt", "np"]) -> dict[str, Any]:
    found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (it is no mapping)
    if framework == "pt":  # copies, because the tensors may lie in the mapped file, which others may overwrite
        return {name: tensor.clone() for name, tensor in found.items()}
    for array in found.values():
        if array.dtype.kind not in "biuf":  # bfloat16 exists in NumPy if another package registers it
            raise TypeError(str(array.dtype))
    return {name: array.copy() for name, array in found.items()}


def count_in(card: Card, name: str) -> int:
    """Return a count of a card; raise ValueError if it is no whole number or negative."""
    count = card[name]
    if type(count) is not int or count < 0:
        raise ValueError(f"{name} is {count!r}")
    return count


def _checked(text: str | None, kind: str, source: Path, expected: str) -> Card:
    if text is None:
        raise CrowdshotError("is a safetensors file without a crowdshot card", where=source, expected=expected)
    try:
        card = json.loads(text)
        version, found = int(card["format"]), str(card["kind"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # "format": 1e400, endless nesting
        raise CrowdshotError("has a damaged crowdshot card", where=source, expected=expected) from None
    if version > FORMAT:
        raise CrowdshotError(
            f"has format {version}",
            where=source,
            found=version,
            expected=f"{FORMAT} or less",
            hint="Install a newer crowdshot to read it",
        )
    if found != kind:
        raise CrowdshotError(f"holds {_with_article(found)}", where=source, found=found, expected=_with_article(kind))
    assert isinstance(card, dict)
    return card


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
