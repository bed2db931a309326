"""Names for files and folders, made of names that may be anything."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePath

LONGEST = 120  # bytes, which leaves room for a number and an ending
# what no name may hold on some system; and names that mean a device on Windows, whatever their ending
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE)


def safe_name(name: object) -> str:
    """One that every system takes, that leads out of no folder, and that no tool takes for hidden.

    >>> safe_name("../etc/passwd"), safe_name("NUL"), safe_name("cat. "), safe_name("")
    ('_.._etc_passwd', '_NUL', 'cat', '_')
    """
    text = unicodedata.normalize("NFC", str(name).encode("utf-8", "replace").decode("utf-8"))
    text = FORBIDDEN.sub("_", text)
    text = "".join(c if c.isprintable() else "_" for c in text)  # marks that turn the text around, for instance
    text = text.encode()[:LONGEST].decode("utf-8", "ignore").strip(" ").rstrip(". ")
    return f"_{text}" if not text or text.startswith((".", "__")) or DEVICES.fullmatch(text) else text


def safe_names(names: Iterable[object], taken: Iterable[str] = ()) -> list[str]:
    """One for each, all different even where case does not count; a number tells those apart that would be the same.

    >>> safe_names(["Cat", "cat", "a/b", "a_b"])
    ['Cat', 'cat (2)', 'a_b', 'a_b (2)']
    """
    used = {name.casefold() for name in taken}
    out = []
    for name in names:
        path = PurePath(safe_name(name))
        number, found = 1, path.name
        while found.casefold() in used:
            number += 1
            found = f"{path.stem} ({number}){path.suffix}"
        used.add(found.casefold())
        out.append(found)
    return out
