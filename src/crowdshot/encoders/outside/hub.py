"""Where a model of the Hugging Face hub lies on this machine: a folder of its own, or the hub's cache."""

from __future__ import annotations

from pathlib import Path

from crowdshot.errors import CrowdshotError
from crowdshot.wording import shown

FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # no code, and nothing that would have to be unpickled


def folder_of(name: str, revision: str | None) -> tuple[Path, str | None]:
    """The folder, and the commit where it came from the hub; downloaded if it is not there and there is a network."""
    if Path(name).is_dir():
        return _with_weights(Path(name)), None
    if name.startswith((".", "/", "~")):
        raise CrowdshotError(f"{shown(name)} does not exist, expected a folder that holds a model.")
    from huggingface_hub import snapshot_download  # comes with the extra

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
    except Exception as error:  # the hub's own, of requests, of sockets: all mean that it could not be had
        raise not_had(name, error, revision) from None
    return _with_weights(folder), folder.name


def not_had(name: str, error: Exception, revision: str | None = None) -> CrowdshotError:
    """What to say where a model of the hub is neither here nor to be downloaded."""
    from huggingface_hub import constants  # as above

    reason = next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__
    at = "" if revision is None else f" --revision {revision}"
    return CrowdshotError(
        f"{name} is neither a folder nor in {shown(constants.HF_HUB_CACHE)}, and could not be downloaded"
        f" ({reason}), expected one of these; `hf download {name}{at}`, where there is a network, fills that cache,"
        " which HF_HOME moves."
    )


def _with_weights(folder: Path) -> Path:
    if not any(folder.rglob("*.safetensors")):
        raise CrowdshotError(f"{shown(folder)} holds no weights, expected some as .safetensors.")
    return folder
