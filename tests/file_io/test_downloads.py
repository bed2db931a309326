"""Check that a download is kept only if its checksum is right; otherwise one error is raised and no file is left."""

import hashlib
import http.server
import io
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from crowdshot.errors import CrowdshotError
from crowdshot.io.downloads import Download, fetch
from crowdshot_paper.datasets import DATASETS, load_dataset

BODY = bytes(range(256)) * 9000  # more than two pieces


class Handler(http.server.BaseHTTPRequestHandler):
    files: dict = {}  # noqa: RUF012

    def do_GET(self):
        body = self.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY) if self.path == "/short" else len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setattr(Handler, "files", {"/file.zip": BODY, "/short": BODY[:-1]})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_correct_file_is_named_after_the_end_of_its_address(address, tmp_path):
    folder = tmp_path / "new" / "set"
    path = fetch(Download(f"{address}/file.zip", sha256(BODY)), folder)
    assert path == folder / "file.zip"
    assert path.read_bytes() == BODY
    assert [p.name for p in folder.iterdir()] == ["file.zip"]


def test_md5_checksums_are_accepted(address, tmp_path):
    fetch(Download(f"{address}/file.zip", "md5:" + hashlib.md5(BODY).hexdigest()), tmp_path)
    assert (tmp_path / "file.zip").read_bytes() == BODY


def test_a_file_with_another_checksum_is_not_kept(address, tmp_path):
    expected = sha256(b"another")
    with pytest.raises(CrowdshotError) as error:
        fetch(Download(f"{address}/file.zip", expected), tmp_path)
    assert error.value.where == f"{address}/file.zip"
    assert f"{len(BODY):,} bytes" in str(error.value)
    assert sha256(BODY) == f"sha256:{error.value.found}"
    assert expected == f"sha256:{error.value.expected}"
    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_file_is_not_kept(address, tmp_path):
    with pytest.raises(CrowdshotError, match=r"/short could not be downloaded \(.*\)"):
        fetch(Download(f"{address}/short", sha256(BODY)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_stays_if_the_new_one_is_wrong(address, tmp_path):
    (tmp_path / "file.zip").write_bytes(b"old")
    with pytest.raises(CrowdshotError):
        fetch(Download(f"{address}/file.zip", sha256(b"another")), tmp_path)
    assert (tmp_path / "file.zip").read_bytes() == b"old"


def test_a_missing_address_is_reported(address, tmp_path):
    with pytest.raises(CrowdshotError, match=r"/gone\.zip could not be downloaded \(404 Not Found\)"):
        fetch(Download(f"{address}/gone.zip", sha256(BODY)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_server_is_reported(tmp_path):
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_port  # free again when the block is left
    with pytest.raises(CrowdshotError, match=r"could not be downloaded \(.*refused.*\)"):
        fetch(Download(f"http://127.0.0.1:{port}/file.zip", sha256(BODY)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_created_is_reported(address, tmp_path):
    (tmp_path / "set").write_text("a file")
    with pytest.raises(CrowdshotError, match="set could not be created"):
        fetch(Download(f"{address}/file.zip", sha256(BODY)), tmp_path / "set")


def test_a_dataset_is_downloaded_once(address, tmp_path, monkeypatch):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in ("a/character01/1.png", "b/character01/1.png"):
            image = io.BytesIO()
            Image.fromarray(np.full((28, 28), 255, np.uint8)).save(image, "PNG")
            archive.writestr(name, image.getvalue())
    Handler.files["/images_background.zip"] = data.getvalue()
    loader = DATASETS["omniglot"]
    download = Download(f"{address}/images_background.zip", sha256(data.getvalue()))
    monkeypatch.setitem(DATASETS, "omniglot", replace(loader, parts=(replace(loader.parts[0], download=download),)))

    with pytest.raises(CrowdshotError, match="Use download=True"):
        load_dataset("omniglot", tmp_path)
    assert load_dataset("omniglot", tmp_path, download=True).pool.names == ("a/character01", "b/character01")
    Handler.files.clear()
    load_dataset("omniglot", tmp_path, download=True)
    load_dataset("omniglot", tmp_path)


@pytest.mark.slow
def test_datasets_are_read_without_the_download_packages():
    code = (
        "import sys, crowdshot_paper.datasets; print([name for name in ('pooch', 'requests') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_datasets_without_a_download_are_reported(tmp_path):
    for name in ("miniimagenet", "labelme", "cifar10s"):
        with pytest.raises(CrowdshotError, match="It cannot be downloaded automatically"):
            load_dataset(name, tmp_path, download=True)


def test_downloaded_files_are_those_that_loaders_read():
    parts = [part for loader in DATASETS.values() for part in loader.parts if part.download]
    assert len(parts) == 5  # two of Omniglot, CIFAR-10's test images for two crowds, one of the crowds
    for part in parts:
        algorithm, digest = part.download.checksum.split(":")
        assert part.download.file in part.names
        assert part.download.url.startswith("https://")
        assert len(digest) == 2 * hashlib.new(algorithm).digest_size
