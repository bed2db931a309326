"""Load encoders from Hugging Face transformers, sentence-transformers, timm and OpenCLIP.

Hub models come from a local folder, the hub's cache, or a download. No code that comes with weights is run.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crowdshot.encoders.image_input import PictureInput
from crowdshot.encoders.outside import Loaded, checksum_of
from crowdshot.encoders.text_input import TextInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, shown

FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # neither code nor pickled weights


def folder_of(name: str, revision: str | None) -> tuple[Path, str | None]:
    """Return the folder of a model, downloaded if necessary, and its commit (None for a local folder)."""
    if Path(name).is_dir():
        return _with_weights(Path(name)), None
    if name.startswith((".", "/", "~")):
        raise CrowdshotError("does not exist", where=shown(name), expected="a folder that holds a model")
    from huggingface_hub import snapshot_download  # comes with the extra

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
    except Exception as error:  # of the hub, requests or sockets: each means that the download failed
        raise unavailable(name, error, revision) from None
    return _with_weights(folder), folder.name


def unavailable(name: str, error: Exception, revision: str | None = None) -> CrowdshotError:
    """Return the error for a model that is neither stored locally nor can be downloaded."""
    from huggingface_hub import constants  # as above

    reason = next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__
    at = "" if revision is None else f" --revision {revision}"
    return CrowdshotError(
        f"{name} is neither a folder nor in {shown(constants.HF_HUB_CACHE)}, and could not be downloaded ({reason})",
        argument="encoder",
        found=name,
        hint=f"Run `hf download {name}{at}` where there is a network; HF_HOME sets the folder of this cache.",
    )


def _with_weights(folder: Path) -> Path:
    if not any(folder.rglob("*.safetensors")):
        raise CrowdshotError("holds no weights", where=shown(folder), expected="a .safetensors file")
    return folder


# ---- Hugging Face transformers: models of images or texts; a model of both is used for images ----

LONGEST = 512  # tokens, if the model sets no limit


def load_hugging_face(name: str, revision: str | None, device: str) -> Loaded:
    transformers: Any = import_module("transformers")  # an extra, without types of its own
    transformers.logging.disable_progress_bar()
    folder, commit = folder_of(name, revision)
    safely: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    model, loading_info = transformers.AutoModel.from_pretrained(
        folder, use_safetensors=True, output_loading_info=True, **safely
    )
    absent = sorted(loading_info["missing_keys"])
    untrained_pooler = bool(absent) and all("pooler" in key for key in absent)
    if absent and not untrained_pooler:
        raise CrowdshotError(
            f"has no weights for {absent[0]} ({len(absent)} such tensors)", where=name, found=absent[0]
        )
    model = model.eval().requires_grad_(False).to(device)
    weights = checksum_of({key: value for key, value in model.state_dict().items() if key not in absent})
    if (folder / "preprocessor_config.json").is_file() or (folder / "processor_config.json").is_file():
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **safely)

        def embed_images(pictures: list[Any]) -> Tensor:
            pixels = processor(images=pictures, return_tensors="pt")["pixel_values"].to(device)
            if hasattr(model, "get_image_features"):  # a model of images and texts
                return _vectors(model.get_image_features(pixel_values=pixels), False, model)
            return _vectors(model(pixel_values=pixels), untrained_pooler, model)

        return Loaded(embed_images, PictureInput(), commit, weights)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safely)
    longest = min(getattr(model.config, "max_position_embeddings", LONGEST), tokenizer.model_max_length)

    def embed_texts(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(device)
        hidden = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp_min(1), dim=1)

    return Loaded(embed_texts, TextInput(), commit, weights)


def _vectors(out: Any, untrained_pooler: bool, model: torch.nn.Module) -> Tensor:
    """Return one vector per image: the model's pooled output, else its class token, else the mean over patches."""
    if isinstance(out, Tensor):
        return out
    pooled = getattr(out, "pooler_output", None)
    if pooled is not None and not untrained_pooler:
        vectors: Tensor = pooled.flatten(1)
        return vectors
    hidden: Tensor = out.last_hidden_state
    if hidden.ndim == 4:
        return hidden.mean((2, 3))
    has_class_token = any(name.endswith("cls_token") for name, _ in model.named_parameters())
    return hidden[:, 0] if has_class_token else hidden.mean(1)


# ---- sentence-transformers: texts -> vectors, pooled and scaled as the model's authors specify ----


def load_sentence_transformers(name: str, revision: str | None, device: str) -> Loaded:
    library: Any = import_module("sentence_transformers")  # an extra, without types of its own
    transformers: Any = import_module("transformers")
    transformers.logging.disable_progress_bar()
    full = name if "/" in name or "\\" in name else f"sentence-transformers/{name}"  # the library's own default
    folder, commit = folder_of(full, revision)
    model = library.SentenceTransformer(
        str(folder),
        device=device,
        trust_remote_code=False,
        local_files_only=True,
        model_kwargs={"use_safetensors": True},
    )

    def embed_texts(texts: list[str]) -> Tensor:
        out: Tensor = model.encode(texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False)
        return out

    return Loaded(embed_texts, TextInput(), commit, checksum_of(model.state_dict()))


# ---- timm: images -> the features before the classifier, preprocessed by the weights' own configuration ----


def load_timm(name: str, revision: str | None, device: str) -> Loaded:
    import timm  # an extra

    if name not in timm.list_models(pretrained=True):
        known = timm.list_models(f"*{name.partition('.')[0]}*", pretrained=True) or timm.list_models(pretrained=True)
        raise CrowdshotError(
            f"is 'timm:{name}'",
            argument="encoder",
            found=f"timm:{name}",
            expected=f"a model with weights, such as {listing(known, 3)}",
        )
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0).eval().requires_grad_(False).to(device)
    except Exception as error:  # a known name whose download failed
        raise unavailable(f"timm/{name}", error) from None
    prepare: Any = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)

    def embed_images(pictures: list[Any]) -> Tensor:
        out: Tensor = model(torch.stack([prepare(picture) for picture in pictures]).to(device))
        return out

    return Loaded(embed_images, PictureInput(), revision, checksum_of(model.state_dict()))


# ---- OpenCLIP, such as ``ViT-B-32/laion2b_s34b_b79k``: images -> vectors of unit length ----


def load_open_clip(name: str, revision: str | None, device: str) -> Loaded:
    import open_clip  # an extra

    model_name, slash, weights = name.rpartition("/")
    if not slash:
        raise CrowdshotError(
            f"is 'open_clip:{name}'", argument="encoder", found=f"open_clip:{name}", expected="open_clip:NAME/WEIGHTS"
        )
    found = open_clip.get_pretrained_cfg(model_name, weights)
    if not found:
        known = open_clip.list_pretrained_tags_by_model(model_name) or open_clip.list_models()
        raise CrowdshotError(
            f"is 'open_clip:{name}'",
            argument="encoder",
            found=f"open_clip:{name}",
            expected=f"NAME/WEIGHTS, one of {listing(known, 3)}",
        )
    try:
        model, _, prepare = open_clip.create_model_and_transforms(model_name, pretrained=weights, device=device)
    except Exception as error:  # a known name whose download failed
        raise unavailable(str(found.get("hf_hub") or found.get("url")).rstrip("/"), error) from None
    model = model.eval().requires_grad_(False)

    def embed_images(pictures: list[Any]) -> Tensor:
        out: Tensor = model.encode_image(
            torch.stack([prepare(picture) for picture in pictures]).to(device), normalize=True
        )
        return out

    return Loaded(embed_images, PictureInput(), revision, checksum_of(model.state_dict()))
