"""What a page links to outside docs/ becomes part of the site: one link serves a source host and the site alike."""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LINK = re.compile(r"(?<=\]\()[^)#\s]+")  # the path in [text](path#part)


def file_behind(link, page):
    """The project's file that a link on a page means; None for addresses, folders and what is not there."""
    file = (page.parent / link).resolve()
    return file if file.is_relative_to(ROOT) and file.is_file() else None


def place(file):
    """Where a file is in the site: docs/ is its root, and so is the project's; index.md stands for the README."""
    if file == ROOT / "README.md":
        return "index.md"
    return file.relative_to(DOCS if file.is_relative_to(DOCS) else ROOT).as_posix()


def on_files(files, config):
    pages = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    for page in pages:  # grows: what a page outside docs/ links to comes along too
        for file in filter(None, (file_behind(link, page) for link in LINK.findall(page.read_text()))):
            if files.get_file_from_path(place(file)) is None:
                files.append(File.generated(config, place(file), abs_src_path=str(file)))
                pages += [file] if file.suffix == ".md" else []
    return files


def on_page_markdown(markdown, page, config, files):
    if not page.file.abs_src_path:  # made of the program (reference.py)
        return markdown
    source, folder = Path(page.file.abs_src_path), os.path.dirname(page.file.src_uri)

    def moved(link):
        file = file_behind(link[0], source)
        return link[0] if file is None else os.path.relpath(place(file), folder or ".").replace(os.sep, "/")

    return LINK.sub(moved, markdown)
