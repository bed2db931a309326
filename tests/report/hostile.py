"""Hostile names, and helpers for tests in a browser."""

from typing import Any

import numpy as np

HACK = "window.hacked = 1"
PEOPLE = [
    f"<script>{HACK}</script>",
    f'"><img src=x onerror="{HACK}">',
    "שלום עולם \u202eevil",
    "👩‍👩‍👧‍👦🏳️‍🌈" * 30,
    "x" * 1000,
    f"' onmouseover='{HACK}' autofocus onfocus='{HACK}",
    f"</title></style></script><svg onload='{HACK}'>",
    "ordinary",
    "guesser",
]
CLASSES = [f"<b onclick='{HACK}'>cat</b><script>{HACK}</script>", "كلب طويل جدا", "🦊" * 40, "W" * 1000]
COLOURS = np.array([[60, 60, 200], [200, 60, 60], [60, 180, 60], [180, 180, 60]])


def visible(page: Any, selector: str) -> list[Any]:
    return page.query_selector_all(", ".join(f"{part}:visible" for part in selector.split(",")))


def column(page: Any, key: str) -> list[str]:
    return page.eval_on_selector_all("#people-list > li:not([hidden])", f"rows => rows.map(row => row.dataset.{key})")
