"""Other people's networks by name: tiny ones, built and saved by their own libraries, loaded by the real code."""

import json
import shutil
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from crowdshot import CrowdClassifier, CrowdshotError, load_encoder, save_encoder
from crowdshot.encoders import outside
from crowdshot.encoders.outside import _load
from crowdshot.encoders.shipped import LIBRARIES

LABELS = [["red", "red"], ["red", "blue"], ["red", None], ["blue", "blue"], ["blue", "red"], ["blue", "blue"]]
TEXTS = ["a good film", "good good", "so good", "bad film", "so bad", "bad bad"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Nothing is loaded yet, and the hub's cache is empty."""
    _load.cache_clear()
    yield
    _load.cache_clear()


@pytest.fixture(scope="module")
def pictures():
    random = np.random.default_rng(0)
    colours = [(200, 30, 30)] * 3 + [(30, 30, 200)] * 3
    return [
        Image.fromarray((np.array(colour) + random.integers(-20, 20, (40, 50, 3))).clip(0, 255).astype(np.uint8))
        for colour in colours
    ]


def quiet(save, *args):
    import transformers

    transformers.logging.disable_progress_bar()
    save(*args)


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    config = Dinov2Config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, mlp_ratio=2)
    quiet(Dinov2Model(config).save_pretrained, folder)
    BitImageProcessor(
        size={"shortest_edge": 32},
        crop_size={"height": 28, "width": 28},
        image_mean=[0.5, 0.4, 0.3],
        image_std=[0.2, 0.2, 0.2],
    ).save_pretrained(folder)
    return folder


def save_tokenizer(folder):
    from tokenizers import BertWordPieceTokenizer
    from transformers import PreTrainedTokenizerFast

    letters = [chr(97 + i) for i in range(26)]
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{c}" for c in letters),
        "film",
        "good",
        "bad",
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, mask_token="[MASK]", model_max_length=16, **special
    ).save_pretrained(folder)
    return len(words)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    size = save_tokenizer(folder)
    config = BertConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    quiet(BertModel(config).save_pretrained, folder)
    return folder


# ---- Hugging Face ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_of_images_is_prepared_as_it_says_itself(dino, pictures, tmp_path):
    from transformers import AutoImageProcessor, AutoModel

    encoder = load_encoder(f"hf:{dino}")
    found = encoder.embed(pictures)
    processor, model = AutoImageProcessor.from_pretrained(dino), AutoModel.from_pretrained(dino).eval()
    with torch.no_grad():
        expected = model(**processor(images=pictures, return_tensors="pt")).pooler_output
    torch.testing.assert_close(found, expected)
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    torch.testing.assert_close(encoder.embed([tmp_path / f"{i}.png" for i in range(6)]), expected)
    torch.testing.assert_close(encoder.embed(np.stack([np.asarray(one) for one in pictures])), expected)


def test_a_classifier_with_it_is_saved_by_its_name_and_knows_its_weights_again(dino, pictures, tmp_path):
    moved = tmp_path / "model"
    shutil.copytree(dino, moved)
    clf = CrowdClassifier(f"hf:{moved}").fit(pictures, LABELS)
    assert clf.learner_ == "features"  # as features from outside
    clf.save(tmp_path / "clf.safetensors")
    assert (tmp_path / "clf.safetensors").stat().st_size < 100_000
    _load.cache_clear()
    loaded = CrowdClassifier.load(tmp_path / "clf.safetensors")
    np.testing.assert_allclose(loaded.predict_proba(pictures), clf.predict_proba(pictures), atol=1e-6)
    assert loaded.encoder_.arguments["weights"] in loaded.encoder_.card["about"]

    from transformers import AutoModel

    other = AutoModel.from_pretrained(moved)
    with torch.no_grad():
        other.layernorm.bias += 1
    quiet(other.save_pretrained, moved)
    _load.cache_clear()
    with pytest.raises(CrowdshotError, match=r"has weights with the checksum \w+, expected \w+, with which this"):
        CrowdClassifier.load(tmp_path / "clf.safetensors")
    shutil.rmtree(moved)
    _load.cache_clear()
    with pytest.raises(CrowdshotError, match="does not exist, expected a folder that holds a model"):
        CrowdClassifier.load(tmp_path / "clf.safetensors")


def test_a_file_from_elsewhere_loads_no_network_unless_that_is_allowed(dino, pictures, tmp_path, monkeypatch, call):
    """Neither a hub is contacted nor a path opened."""
    file = tmp_path / "clf.safetensors"
    CrowdClassifier(f"hf:{dino}").fit(pictures, [["red"], ["blue"]] * 3).save(file)
    _load.cache_clear()
    monkeypatch.setattr(outside, "_named", set())  # as in another process
    monkeypatch.setattr(outside, "_load", lambda *_: pytest.fail("it was loaded"))
    folder = tmp_path / "photos"
    folder.mkdir()
    for i, picture in enumerate(pictures):
        picture.save(folder / f"{i}.png")
    with pytest.raises(CrowdshotError, match="hf:") as caught:
        CrowdClassifier.load(file).predict(pictures)
    assert "allow_outside=True" in str(caught.value)
    done = call("predict", file, "--images", folder)
    assert done.code == 2
    assert "--allow-outside" in done.err
    monkeypatch.setattr(outside, "_load", _load)
    assert len(CrowdClassifier.load(file, allow_outside=True).predict(pictures)) == 6
    assert call("predict", file, "--images", folder, "--allow-outside").code == 0


def test_a_pipeline_from_elsewhere_loads_no_network_unless_that_is_allowed(dino, pictures, tmp_path, monkeypatch):
    from sklearn.pipeline import make_pipeline

    from crowdshot import load_pipeline, save_pipeline

    pytest.importorskip("skops")
    file = tmp_path / "pipeline.safetensors"
    save_pipeline(make_pipeline(CrowdClassifier(f"hf:{dino}")).fit(pictures, [["red"], ["blue"]] * 3), file)
    _load.cache_clear()
    monkeypatch.setattr(outside, "_named", set())  # as in another process
    monkeypatch.setattr(outside, "_load", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(CrowdshotError, match="hf:") as caught:
        load_pipeline(file).predict(pictures)
    assert "allow_outside=True" in str(caught.value)
    monkeypatch.setattr(outside, "_load", _load)
    assert len(load_pipeline(file, allow_outside=True).predict(pictures)) == 6


@pytest.mark.slow
def test_encoder_files_from_elsewhere_need_consent_in_every_command(dino, pictures, tmp_path, monkeypatch, call):
    file, folder, labels = tmp_path / "encoder.safetensors", tmp_path / "photos", tmp_path / "labels.csv"
    save_encoder(load_encoder(f"hf:{dino}"), file)
    (folder / "a").mkdir(parents=True)
    for i, picture in enumerate(pictures):
        picture.save(folder / "a" / f"{i}.png")
    rows = "".join(f"a/{i}.png,{who},{'red' if i < 3 else 'blue'}\n" for i in range(6) for who in "xyz")
    labels.write_text("item,annotator,label\n" + rows)
    items = ("--images", folder, "--encoder", file)
    commands = {
        "adapt": ("adapt", labels, *items, "--out", tmp_path / "out"),
        "next": ("next", labels, *items, "--out", tmp_path / "questions.csv"),
        "embed": ("embed", folder, "--encoder", file, "--out", tmp_path / "features.npz"),
    }
    for line in commands.values():
        _load.cache_clear()
        monkeypatch.setattr(outside, "_named", set())  # as in another process
        monkeypatch.setattr(outside, "_stays_allowed", False)
        monkeypatch.setattr(outside, "_load", lambda *_: pytest.fail("it was loaded"))
        done = call(*line)
        assert done.code == 2
        assert "--allow-outside" in done.err
        assert not line[-1].exists()
        monkeypatch.setattr(outside, "_load", _load)
        assert call(*line, "--allow-outside").code == 0
    monkeypatch.setattr(outside, "_stays_allowed", False)
    monkeypatch.setattr(outside, "_load", lambda *_: pytest.fail("it was loaded"))
    assert call("report", tmp_path / "out").code == 0  # which embeds nothing


def test_a_pooler_that_was_never_trained_is_not_used(dino, pictures, tmp_path):
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32)
    model = ViTModel(config, add_pooling_layer=False).eval()
    quiet(model.save_pretrained, tmp_path)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path)
    with torch.no_grad():
        hidden = model(**processor(images=pictures, return_tensors="pt")).last_hidden_state
    torch.testing.assert_close(load_encoder(f"hf:{tmp_path}").embed(pictures), hidden[:, 0])  # the class token


def test_a_convolutional_model(pictures, tmp_path):
    from transformers import ConvNextImageProcessor, ResNetConfig, ResNetModel

    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
    quiet(ResNetModel(config).save_pretrained, tmp_path)
    ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=1.0).save_pretrained(tmp_path)
    assert load_encoder(f"hf:{tmp_path}").embed(pictures).shape == (6, 12)


def test_a_model_of_texts_is_the_mean_of_its_tokens(bert):
    from transformers import AutoModel, AutoTokenizer

    found = load_encoder(f"hf:{bert}").embed(TEXTS)
    tokenizer, model = AutoTokenizer.from_pretrained(bert), AutoModel.from_pretrained(bert).eval()
    with torch.no_grad():
        for text, vector in zip(TEXTS, found, strict=True):
            mean = model(**tokenizer([text], return_tensors="pt")).last_hidden_state[0].mean(0)
            torch.testing.assert_close(vector, mean / mean.norm(), atol=1e-5, rtol=1e-4)
    long = load_encoder(f"hf:{bert}").embed(["good " * 40, "good " * 40 + "bad"])
    torch.testing.assert_close(long[0], long[1])  # cut where the tokenizer says
    clf = CrowdClassifier(f"hf:{bert}").fit(TEXTS, LABELS)
    assert clf.predict(TEXTS[:1]).tolist() == ["red"]


def test_what_cannot_be_had_offline_says_what_to_download(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("hf:facebook/dinov2-small", "sentence-transformers:all-MiniLM-L6-v2"):
        with pytest.raises(CrowdshotError) as error:
            load_encoder(name)
        text, full = str(error.value), name.partition(":")[2].replace("all-", "sentence-transformers/all-")
        assert (error.value.argument, error.value.found) == ("encoder", full)
        assert f"{full} is neither a folder nor in {tmp_path}, and could not be downloaded (" in text
        assert f"`hf download {full}`" in error.value.hint
        assert "HF_HOME" in error.value.hint
        assert "\n" not in text
    with pytest.raises(CrowdshotError, match="`hf download a/b --revision 0a1b`"):
        load_encoder("hf:a/b@0a1b")


def test_a_commit_is_kept_on_the_card(dino, monkeypatch, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(dino, tmp_path / "snapshots" / commit)
    asked = []

    def had(name, revision, allow_patterns):
        asked.append((name, revision))
        assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in allow_patterns)
        return str(tmp_path / "snapshots" / commit)

    monkeypatch.setattr("huggingface_hub.snapshot_download", had)
    encoder = load_encoder("hf:some/model@main")
    assert encoder.arguments["revision"] == commit
    assert f"commit {commit}" in encoder.card["about"]
    encoder.embed([Image.new("RGB", (30, 30))])
    assert asked == [("some/model", "main"), ("some/model", commit)]


def test_code_that_comes_with_weights_is_not_run(dino, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(dino, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModel": "mine.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(CrowdshotError, match="could not be loaded"):
        load_encoder(f"hf:{folder}")
    assert not (tmp_path / "ran").exists()


def test_weights_that_would_be_unpickled_are_refused(dino, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(dino, folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(CrowdshotError, match=r"holds no weights, expected a \.safetensors file"):
        load_encoder(f"hf:{folder}")


def test_weights_that_are_not_all_there(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "query.weight" in name)
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CrowdshotError, match=r"has no weights for .*query.weight \(1 such tensors\)"):
        load_encoder(f"hf:{folder}")


# ---- sentence-transformers -------------------------------------------------------------------------------------------


def test_sentence_transformers(bert, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bert), device="cpu")
    quiet(model.save, str(tmp_path / "st"))
    name = f"sentence-transformers:{tmp_path / 'st'}"
    np.testing.assert_allclose(load_encoder(name).embed(TEXTS), model.encode(TEXTS), atol=1e-5)
    clf = CrowdClassifier(name).fit(TEXTS, LABELS)
    clf.save(tmp_path / "clf.safetensors")
    _load.cache_clear()
    loaded = CrowdClassifier.load(tmp_path / "clf.safetensors")
    np.testing.assert_allclose(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-6)


# ---- ONNX ------------------------------------------------------------------------------------------------------------


def export(module, example, path, name="x", axes=("n",)):
    """By the exporter that needs no further package, and says that it is old."""
    dynamic = {name: dict(enumerate(axes))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), example, path, input_names=[name], output_names=["y"], dynamic_axes=dynamic, dynamo=False
        )


def test_onnx_of_images(pictures, tmp_path):
    torch.manual_seed(0)
    network = nn.Conv2d(3, 4, 3)
    export(network, torch.zeros(1, 3, 16, 16), tmp_path / "a.onnx")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}))
    encoder = load_encoder(f"onnx:{tmp_path / 'a.onnx'}")
    assert (encoder.input.size, encoder.input.mean) == ((16, 16), (0, 0, 0))
    blank = encoder.embed([Image.new("RGB", (16, 16), (255, 0, 0))])  # maps are averaged
    with torch.no_grad():
        red = torch.zeros(1, 3, 16, 16)
        red[:, 0] = 1
        torch.testing.assert_close(blank, network(red).mean((2, 3)), atol=1e-5, rtol=1e-4)
    clf = CrowdClassifier(f"onnx:{tmp_path / 'a.onnx'}").fit(pictures, LABELS)
    assert clf.predict(pictures).tolist() == ["red"] * 3 + ["blue"] * 3
    (tmp_path / "preprocessor_config.json").unlink()
    _load.cache_clear()
    assert load_encoder(f"onnx:{tmp_path / 'a.onnx'}").input.mean == (0.485, 0.456, 0.406)


def test_onnx_of_vectors_and_a_file_that_changed(tmp_path):
    torch.manual_seed(0)
    network = nn.Linear(5, 3)
    export(network, torch.zeros(1, 5), tmp_path / "a.onnx")
    X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    X[:3] += 3
    clf = CrowdClassifier(f"onnx:{tmp_path / 'a.onnx'}").fit(X, LABELS)
    with torch.no_grad():
        torch.testing.assert_close(clf.encoder_.embed(X), network(torch.from_numpy(X)), atol=1e-5, rtol=1e-4)
    clf.save(tmp_path / "clf.safetensors")
    export(nn.Linear(5, 3), torch.zeros(1, 5), tmp_path / "a.onnx")
    _load.cache_clear()
    with pytest.raises(CrowdshotError, match="has weights with the checksum"):
        CrowdClassifier.load(tmp_path / "clf.safetensors")


class Embedding(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.table = nn.Embedding(n, 4)

    def forward(self, input_ids):
        return self.table(input_ids)


def test_onnx_of_texts(bert, tmp_path):
    from tokenizers import Tokenizer

    shutil.copy(bert / "tokenizer.json", tmp_path)
    torch.manual_seed(0)
    network = Embedding(100)
    export(network, torch.zeros(1, 3, dtype=torch.long), tmp_path / "a.onnx", "input_ids", ("n", "t"))
    found = load_encoder(f"onnx:{tmp_path / 'a.onnx'}").embed(TEXTS)
    ids = Tokenizer.from_file(str(bert / "tokenizer.json")).encode(TEXTS[0]).ids
    with torch.no_grad():
        mean = network(torch.tensor(ids)).mean(0)
    torch.testing.assert_close(found[0], mean / mean.norm())
    (tmp_path / "tokenizer.json").unlink()
    _load.cache_clear()
    with pytest.raises(CrowdshotError, match=r"a\.onnx needs tokens, expected its tokenizer\.json"):
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}")


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "a.onnx does not exist, expected an ONNX file"), (b"no network", r"cannot be used \(\w+: ")],
)
def test_bad_onnx(tmp_path, content, told):
    if content is not None:
        (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(CrowdshotError, match=told):
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}")


# ---- timm and OpenCLIP: where torchvision loads ----------------------------------------------------------------------


def imported(name):
    try:
        return __import__(name)
    except Exception as error:  # torchvision built for another torch raises what it likes
        pytest.skip(f"{name} cannot be imported here ({type(error).__name__}: {str(error).splitlines()[0]})")


def test_timm(pictures, monkeypatch):
    timm = imported("timm")
    build = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda name, pretrained, num_classes: build(name, num_classes=num_classes)
    )
    found = load_encoder("timm:resnet10t.c3_in1k").embed(pictures)
    assert found.shape == (6, build("resnet10t", num_classes=0).num_features)


def test_open_clip(pictures, monkeypatch):
    open_clip = imported("open_clip")
    build = open_clip.create_model_and_transforms
    monkeypatch.setattr(open_clip, "create_model_and_transforms", lambda name, pretrained, device: build(name))
    assert load_encoder("open_clip:RN50/openai").embed(pictures[:1]).shape[0] == 1


class Means(nn.Module):
    """Stands for a model: the mean of each colour."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x.mean((2, 3)) * self.weight

    def encode_image(self, x, normalize):
        assert normalize
        return nn.functional.normalize(self(x), dim=1)


def test_what_is_asked_of_timm_and_open_clip(pictures, monkeypatch):
    """With stand-ins for both libraries, as neither can be imported beside every torch."""

    def prepare(picture):
        return torch.from_numpy(np.array(picture.resize((8, 8)))).permute(2, 0, 1) / 255

    def had(*names, **options):
        if "gone" in (*names, *options.values()):
            raise OSError("no network.\nAnd more.")
        return Means()

    timm = SimpleNamespace(
        list_models=lambda pattern="*", pretrained=True: ["vit.lvd", "gone"],
        create_model=had,
        data=SimpleNamespace(resolve_model_data_config=lambda m: {}, create_transform=lambda is_training: prepare),
    )
    clip = SimpleNamespace(
        get_pretrained_cfg=lambda name, tag: {"hf_hub": "org/clip/"} if tag in ("laion", "gone") else {},
        list_pretrained_tags_by_model=lambda name: ["laion"],
        create_model_and_transforms=lambda *names, **options: (had(*names, **options), None, prepare),
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "open_clip", clip)
    red = torch.stack([prepare(picture) for picture in pictures]).mean((2, 3))
    torch.testing.assert_close(load_encoder("timm:vit.lvd").embed(pictures), red)
    torch.testing.assert_close(load_encoder("open_clip:ViT/laion").embed(pictures), red / red.norm(dim=1, keepdim=True))
    for name, told in [
        ("timm:nonsense", "encoder is 'timm:nonsense', expected a model with weights, such as 'vit.lvd', 'gone'."),
        ("timm:gone", r"timm/gone is neither .*\(no network\).*`hf download timm/gone`"),
        ("open_clip:ViT", "encoder is 'open_clip:ViT', expected open_clip:NAME/WEIGHTS"),
        ("open_clip:ViT/x", "encoder is 'open_clip:ViT/x', expected NAME/WEIGHTS, one of 'laion'."),
        ("open_clip:ViT/gone", r"org/clip is neither .*`hf download org/clip`"),
    ]:
        with pytest.raises(CrowdshotError, match=told):
            load_encoder(name)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_a_library_that_is_not_installed(monkeypatch):
    import builtins
    import importlib

    real = importlib.import_module

    def without(name, *rest):
        if name in ("transformers", "sentence_transformers"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr("crowdshot.encoders.hub_models.import_module", without)
    plain = builtins.__import__
    absent = ("timm", "open_clip", "onnxruntime")
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *rest: without("transformers") if name in absent else plain(name, *rest)
    )
    for library, entry in LIBRARIES.items():
        with pytest.raises(CrowdshotError) as error:
            load_encoder(f"{library}:some/name")
        assert f"pip install 'crowdshot[{entry.extra}]'" in (error.value.hint or "") or (
            library == "onnx" and "does not exist" in error.value.message
        )


def test_names_without_a_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CrowdshotError, match="encoder is 'hf:', expected a name after the colon"):
        load_encoder("hf:")
    with pytest.raises(CrowdshotError, match=r"expected a file or one of identity, .*hf:…, sentence-transformers:…"):
        load_encoder("nonsense")


# ---- functions -------------------------------------------------------------------------------------------------------


def test_any_function_gets_items_as_they_came_in_batches():
    asked = []

    def lengths(texts):
        asked.append(texts)
        return [[len(text), text.count("o")] for text in texts]

    texts = [f"{'good' if i < 50 else 'bad'} {i}" for i in range(100)]
    clf = CrowdClassifier(lengths).fit(texts, [["p", "p"]] * 50 + [["q", "q"]] * 50)
    assert [len(part) for part in asked] == [64, 36]
    assert (asked[0], clf.learner_) == (texts[:64], "features")
    assert clf.predict(["good 7", "bad 8"]).tolist() == ["p", "q"]
    with pytest.raises(CrowdshotError, match="encoder is lengths, a function, expected a network that can be saved"):
        clf.save("nowhere.safetensors")


@pytest.mark.parametrize("form", [list, np.asarray, pd.Series, lambda x: pd.DataFrame({"a": x})])
def test_a_function_gets_any_kind_of_items(form):
    X = form([0.0, 1.0, 5.0, 6.0])
    kinds = []

    def see(batch):
        kinds.append(type(batch))
        return np.asarray(batch, dtype=float).reshape(len(batch), -1)

    clf = CrowdClassifier(see).fit(X, [["p"], ["p"], ["q"], ["q"]])
    assert kinds == [type(X)]
    assert clf.consensus_["label"].tolist() == list("ppqq")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            lambda x: np.full((len(x), 2), np.nan),
            "encoder returns NaN or infinite values, first for item 0, expected finite",
        ),
        (lambda x: np.zeros((3, 2)), r"encoder .* returns a tensor of shape \(3, 2\) for 2 items"),
        (lambda x: np.zeros(2), r"encoder .* returns a tensor of shape \(2,\) for 2 items, expected"),
        (lambda x: None, "encoder .* returns a NoneType for 2 items, expected"),
        (lambda x: ["a", "b"], "encoder .* returns a list of 2 str for 2 items, expected"),
    ],
)
def test_a_function_that_returns_nonsense(function, told):
    with pytest.raises(CrowdshotError, match=told):
        CrowdClassifier(function).fit(["one", "two"], [["p"], ["q"]])


def test_a_function_that_changes_its_mind():
    widths = iter([2, 3])
    with pytest.raises(CrowdshotError, match="embeddings of 2 and of 3 features") as error:
        CrowdClassifier(lambda x: np.zeros((len(x), next(widths)))).fit(list(range(100)), [["p"], ["q"]] * 50)
    assert (error.value.argument, error.value.found) == ("encoder", (2, 3))
