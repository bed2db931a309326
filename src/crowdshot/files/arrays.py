"""Arrays of an ``.npz`` file; nothing in it is ever unpickled."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.files.unpacked import check_parts
from crowdshot.wording import shown

Array = NDArray[Any]


def read_arrays(file: Path | bytes, wanted: Iterable[str], name: str = "") -> tuple[dict[str, Array], list[str]]:
    """Those of the ``wanted`` arrays that a file has, and the names of all that it has.

    ``file``: where it is, or what is in it; ``name`` is what messages call it, else its path.
    """
    called = name or (shown(file) if isinstance(file, Path) else "the file")
    try:
        with (
            BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened,
            np.load(opened, allow_pickle=False) as arrays,
        ):
            check_parts(called, arrays.zip, [f"{key}.npy" for key in wanted])
            return {key: _sound(arrays[key]) for key in wanted if key in arrays.files}, list(arrays.files)
    except FileNotFoundError:
        raise CrowdshotError(f"{called} does not exist, expected an .npz file.") from None
    except CrowdshotError:
        raise
    except Exception as error:  # damaged bytes make zipfile, its codecs and NumPy's parsers raise nearly anything
        if "allow_pickle" in str(error):
            raise CrowdshotError(f"{called} holds pickled objects, expected arrays of text or numbers.") from None
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CrowdshotError(f"{called} is damaged or of another kind ({reason}), expected an .npz file.") from None


def _sound(array: Any) -> Array:
    """What is no array, or holds characters that there are not, is refused here and not where it is used."""
    if not isinstance(array, np.ndarray):
        raise ValueError("a part of it is no array")
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32 if array.dtype.isnative else ">u4")
        if codes.size and codes.max() > sys.maxunicode:
            raise ValueError("a text in it has characters that there are not")
    return array
