"""Where the work is done."""

from __future__ import annotations

import torch

from crowdshot.errors import CrowdshotError


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU where there is one."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        missing = " where torch has no GPU to use" if device.type == "cuda" else ""
        raise CrowdshotError(f"device is {name!r}{missing}, expected auto, cpu or cuda.")
    return device
