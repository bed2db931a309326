"""The router that docs/live-http.md shows, with a stub of Prodigy's controller."""

import io
import re
from pathlib import Path
from types import SimpleNamespace

from .conftest import HERE, after

PAGE = Path(__file__).parents[2] / "docs" / "live-http.md"


def router(client):
    """The page's functions, whose requests go to the test's service."""
    names = {}
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), names)

    def opened(request):
        path = request.full_url.removeprefix(names["SERVICE"])
        answer = client.request(request.get_method(), HERE + path, content=request.data, headers=dict(request.headers))
        assert answer.status_code < 300, answer.text
        return io.BytesIO(answer.content)

    names["urlopen"] = opened
    return SimpleNamespace(**names)


def test_a_task_goes_to_those_who_should_label_it(service, crowd):
    labels, features = crowd
    with service([labels], features) as client:
        prodigy, ctrl = router(client), SimpleNamespace(session_ids=["ann", "new one"])
        tasks = {f"i{i}": {"meta": {"item": f"i{i}"}} for i in range(40)}
        sent = {item: prodigy.task_router(ctrl, "new one", task) for item, task in tasks.items()}
        assert all("ann" not in sent[f"i{i}"] for i in range(30))  # which she labelled
        assert any("ann" in who for who in sent.values())
        assert all(sent.values())


def test_answers_go_to_the_service(service):
    with service() as client:
        answer = {"meta": {"item": "a"}, "_annotator_id": "ann", "answer": "accept", "accept": ["cat"]}
        router(client).update([answer, {**answer, "answer": "ignore"}, {**answer, "accept": []}])
        router(client).update([{**answer, "answer": "reject"}])
        after(client, 0)
        said = [(row["item"], row["label"], row["n_labels"]) for row in client.get("/v1/consensus").json()["consensus"]]
        assert said == [("a", "cat", 1)]
