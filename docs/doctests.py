"""Examples in docstrings as blocks of code: what begins with >>> is fenced, up to the next empty line."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Fenced(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
