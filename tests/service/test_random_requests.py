"""Replace any part of valid requests by anything; no response may be an internal error.

`integration/random_requests.py` does the same with the OpenAPI document and thousands of requests.
"""

import copy
import json

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from .conftest import payloads, wire

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
RIGHT = [
    ("/v1/labels", {"labels": [{"item": "i1", "annotator": "ann", "label": "cat"}]}),
    ("/v1/predict", {"features": [[1.0, 0.2], [0.0, 0.0]]}),
    ("/v1/predict", {"texts": ["a"], "images": ["QQ=="]}),
    *(
        (sent["path"], sent["body"])
        for sent in payloads()
        if sent["method"] == "POST" and isinstance(sent["body"], dict)
    ),
]


def places(value, path=()):
    """Yield the paths of all values that can be replaced."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from places(part, (*path, key))


@st.composite
def requests(draw):
    path, body = draw(st.sampled_from(RIGHT))
    body = {"": copy.deepcopy(body)}
    for _ in range(draw(st.integers(1, 2))):
        *way, last = ("", *draw(st.sampled_from(list(places(body[""])))))
        part = body
        for key in way:
            part = part[key]
        part[last] = draw(ANYTHING)
    return path, json.dumps(body[""])


@pytest.mark.slow
def test_no_request_causes_an_internal_error(service, crowd, monkeypatch):
    monkeypatch.setattr("crowdshot.service.security.Rate.allows", lambda self: True)
    with service([crowd[0]], crowd[1]) as client:

        @settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(requests())
        def posted(request):
            path, body = request
            answer = client.post(path, **wire(body))
            assert answer.status_code < 500, (path, body, answer.text)

        @settings(max_examples=100, derandomize=True, deadline=None)
        @given(st.sampled_from(["/v1/next", "/v1/consensus"]), st.dictionaries(
            st.sampled_from(["annotator", "n", "limit", "x"]), st.text(max_size=20) | st.integers()))  # fmt: skip
        def asked(path, query):
            assert client.get(path, params=query).status_code < 500, query

        posted()
        asked()
        assert client.live.counts["failed_fits"] == 0
