"""One file for each saved thing: safetensors with a JSON card in its metadata.

The card says what the tensors are (``kind``), in which format, made with which versions, and all else that the
kind needs; a person can read it with any safetensors viewer. A checksum in it covers the card, and names, types, shapes
and bytes of the tensors; files of 0.1.0 have none. Nothing is ever unpickled: opening a stranger's file runs none of
its bytes.
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
KEY = "crowdshot"  # the metadata entry that holds the card
CHECKSUM = "sha256"  # the card's entry

Card = dict[str, Any]


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], card: Mapping[str, Any]) -> None:
    """Save tensors and their card, which must say its ``kind``; format and versions are added.

    All or nothing: a new file takes the old one's place only when it is complete, and leaves no rest if not.
    """
    import safetensors.torch  # here, like torch below, so that a card can be read without waiting for torch
    import torch

    # safetensors stores neither views nor two names for the same memory
    owned = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    _write(path, card, {"torch": torch.__version__}, lambda metadata: safetensors.torch.save(owned, metadata=metadata))


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], card: Mapping[str, Any]) -> None:
    """As `write_safetensors`, without torch."""
    import safetensors.numpy  # here, as whoever reads a card needs none of it

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
            f"{target} has a card that is not plain JSON ({error}), expected text, numbers, lists and mappings."
        ) from None
    held = json.loads(text)  # as it will be read: a tuple is a list then
    content = save({KEY: _text({**held, CHECKSUM: _checksum(io.BytesIO(save({KEY: text})), held)})})
    with replacing(target) as temporary:
        temporary.write_bytes(content)


def _text(card: Card) -> str:
    return json.dumps(card, allow_nan=False, sort_keys=True)


def _checksum(file: IO[bytes], card: Card) -> str:
    """Of a safetensors file: its header (names, types, shapes and places of tensors), its bytes, and the card."""
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    found = hashlib.sha256(json.dumps([header, card], sort_keys=True).encode())
    while part := file.read(2**20):
        found.update(part)
    return found.hexdigest()


def read_safetensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], Card]:
    """The tensors (on the CPU) and the card of a file that ``write_safetensors`` made for this ``kind``."""
    return _read(path, kind, "pt")


def read_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, NDArray[Any]], Card]:
    """As `read_safetensors`, without torch."""
    return _read(path, kind, "np")


def read_card(path: str | os.PathLike[str], kind: str) -> Card:
    """The card alone, without torch."""
    return _read(path, kind, None)[1]


def _read(
    path: str | os.PathLike[str], kind: str, framework: Literal["pt", "np"] | None
) -> tuple[dict[str, Any], Card]:
    source = Path(path)
    try:
        if source.is_dir():
            raise CrowdshotError(f"{source} is a folder, expected {_a(kind)} file.")
        if not source.is_file():
            raise CrowdshotError(f"{source} does not exist, expected {_a(kind)} file.")
        with source.open("rb") as file:
            start = file.read(9)
        with safe_open(source, framework=framework or "np") as opened:
            text = (opened.metadata() or {}).get(KEY)
            card = _checked(source, text, kind)
            written = card.pop(CHECKSUM, None)
            if framework and written is not None:
                with source.open("rb") as file:
                    changed = _checksum(file, card) != written
                if changed:
                    raise CrowdshotError(
                        f"{source} is damaged (its checksum differs), expected {_a(kind)} as crowdshot saved it."
                    )
            # copies, because what safetensors returns may lie in the mapped file, which others may overwrite
            found = {name: opened.get_tensor(name) for name in (opened.keys() if framework else ())}
            tensors = {name: value.clone() if framework == "pt" else value.copy() for name, value in found.items()}
            odd = next(
                (str(x.dtype) for x in tensors.values() if framework == "np" and x.dtype.kind not in "biuf"), None
            )
            if odd is not None:  # bfloat16, which NumPy has where another package adds it
                raise TypeError(odd)
    except SafetensorError as error:
        plausible = start[8:] == b"{" and int.from_bytes(start[:8], "little") < 100_000_000
        what = "is truncated or damaged" if plausible else "is not a safetensors file"
        raise CrowdshotError(f"{source} {what} ({error}), expected {_a(kind)} saved by crowdshot.") from None
    except TypeError as error:  # NumPy has no bfloat16
        raise CrowdshotError(f"{source} holds numbers of an unknown type ({error}), expected {_a(kind)}.") from None
    except OSError as error:
        raise CrowdshotError(f"{source} could not be read ({error.strerror or error}).") from error
    return tensors, card


def _checked(source: Path, text: str | None, kind: str) -> Card:
    if text is None:
        raise CrowdshotError(
            f"{source} is a safetensors file without a crowdshot card, expected {_a(kind)} saved by crowdshot."
        )
    try:
        card = json.loads(text)
        version, found = int(card["format"]), str(card["kind"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # "format": 1e400, a card without end
        raise CrowdshotError(
            f"{source} has a damaged crowdshot card, expected {_a(kind)} saved by crowdshot."
        ) from None
    if version > FORMAT:
        raise CrowdshotError(f"{source} has format {version}, expected {FORMAT} or less; a newer crowdshot reads it.")
    if found != kind:
        raise CrowdshotError(f"{source} holds {_a(found)}, expected {_a(kind)}.")
    assert isinstance(card, dict)
    return card


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
