"""The live page: what it says, and in a real browser."""

import re

import pytest
from PIL import Image

from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot._cli.serve import open_sources
from crowdshot.service.journal import Answer, Journal, Point
from crowdshot.service.live import make_version
from crowdshot.service.live_page import draw, duration, will_accept
from polling import TIMEOUT, wait_until

from .conftest import after, say
from .test_serve import get, post, serving

HACK = "window.hacked=1"
NAMES = [f"<img src=x onerror={HACK}>", f"</script><script>{HACK}</script>", "צילום"]


def test_it_says_what_the_service_knows_without_a_script(service, crowd):
    labels, features = crowd
    with service([labels], features) as client:
        answer = client.get("/")
        assert answer.headers["content-type"].startswith("text/html")
        consensus = client.get("/v1/consensus").json()["consensus"]
        accepted = sum(row["confidence"] >= 0.9 and row["n_labels"] > 0 for row in consensus)
        assert re.search(rf'data-at="accepted">{accepted}</span> <span class="of">of 30<', answer.text)
        for name in ("ann", "bob", "cy"):
            assert f">{name}</bdi>" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_before_the_first_label(service):
    with service() as client:
        assert "No labels yet" in client.get("/").text
        say(client, ("a", "ann", "cat"))
        after(client, 0)
        assert "all labels so far are of one class" in client.get("/").text


def test_names_are_escaped(service):
    with service() as client:
        say(
            client, *((f"item {NAMES[0]}", who, label) for who, label in zip(NAMES, ("cat", "dog", "cat"), strict=True))
        )
        after(client, 0)
        assert "<img" not in client.get("/").text
        assert client.get("/").text.count("<script") == 1


def test_how_far_it_has_come():
    assert draw([Point(1, 0.0, 10, 5, 2)]) is None
    course = draw([Point(1, 0.0, 10, 5, 0), Point(2, 1.0, 20, 10, 10)])
    assert (course.first, course.last, course.most) == (10, 20, 10)
    assert course.accepted == "0.0,29.00 100.0,1.00"
    assert course.labelled == "0.0,15.00 100.0,1.00"
    assert course.took == "less than a minute"
    assert [duration(seconds) for seconds in (60, 200, 3_600, 100_000)] == ["1 minute", "3 minutes", "1 hour", "1 day"]


def test_what_more_labels_should_bring(service, crowd):
    with service([crowd[0]], crowd[1]) as client:
        some, more = (will_accept(client.live.version, labels) for labels in (10, 1_000))
        assert 0 <= some <= more <= 40


@pytest.mark.slow
def test_items_to_review_have_pictures_and_links(tmp_path):
    (tmp_path / "photos").mkdir()
    labels, journal = ["item,annotator,label"], Journal(tmp_path)
    for i in range(6):
        Image.new("RGB", (300, 200), (40 * i, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
        labels += [f"{i}.png,ann,{'cat' if i % 2 else 'dog'}", f"{i}.png,bob,{'dog' if i % 2 else 'cat'}"]
    (tmp_path / "labels.csv").write_text("\n".join(labels))
    journal.append([Answer(f"{i}.png", "ann", "cat", f"label-studio/task {70 + i}/annotation {i}") for i in range(3)])
    journal.note("project", "5")
    given = LabelFiles([tmp_path / "labels.csv"]), ItemFiles(images=tmp_path / "photos"), None
    page = make_version(open_sources(*given, "http://127.0.0.1:8080/"), journal, tmp_path).page
    journal.close()
    assert page.count('<img src="data:image/') == 6
    assert 'href="http://127.0.0.1:8080/projects/5/data?task=71"' in page
    assert page.count("<a href=") == 3


@pytest.mark.slow
def test_values_change_while_labels_arrive(browser, crowd, tmp_path):
    labels, features = crowd
    with serving("--labels", labels, "--features", features, "--data", tmp_path / "live") as process:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        heard = []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.set_default_timeout(TIMEOUT * 1000)
        page.goto(process.address)
        wait_until(lambda: page.inner_text("#alive") == "live")
        before = get(process, "/health")["version"]
        assert "30 items" in page.inner_text("h1")
        assert page.locator("#people li").count() == 3
        assert page.locator("#held").count() == 0
        rows = [{"item": f"i{30 + i}", "annotator": who, "label": "cat"} for i in range(10) for who in NAMES]
        rows.append({"item": NAMES[1], "annotator": NAMES[0], "label": f"<script>{HACK}</script>"})
        post(process, "/v1/labels", {"labels": rows})
        wait_until(lambda: page.locator("#people li").count() == 6)
        assert int(page.get_attribute("main", "data-version")) > before
        assert "40 items" in page.inner_text("h1")
        assert page.locator("#held tbody tr").count() == 2
        assert set(page.locator("#people .who .name").all_inner_texts()) == {"ann", "bob", "cy", *NAMES}
        assert page.locator(".recent").count() == 3
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert heard == []
        page.close()
    with serving("--labels", labels, "--data", tmp_path / "other") as process:
        quiet = browser.new_context(java_script_enabled=False).new_page()
        quiet.goto(process.address)
        wait_until(lambda: "30 items" in quiet.inner_text("h1"))
        quiet.context.close()


@pytest.mark.slow
def test_what_was_opened_stays_open(browser, tmp_path):
    rows = [f"i{i},person {p},{'cat' if (i + p) % 3 else 'dog'}" for i in range(6) for p in range(15)]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["item,annotator,label", *rows]))
    with serving("--labels", labels, "--data", tmp_path / "live") as process:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(TIMEOUT * 1000)
        page.goto(process.address)
        wait_until(lambda: page.inner_text("#alive") == "live")
        assert page.locator("#people li").count() == 10
        assert not page.locator("#others").is_visible()
        page.click("#more-people summary")
        assert page.locator("#others li").count() == 5
        post(process, "/v1/labels", {"labels": [{"item": "i0", "annotator": "new", "label": "cat"}]})
        wait_until(lambda: page.locator("#others li").count() == 6)
        assert page.locator("#others").is_visible()
        page.close()


@pytest.mark.slow
def test_an_unknown_class_is_decided_by_a_click(browser, crowd, tmp_path):
    with serving("--labels", crowd[0], "--data", tmp_path / "live") as process:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.set_default_timeout(TIMEOUT * 1000)
        page.goto(process.address)
        wait_until(lambda: page.inner_text("#alive") == "live")
        name = NAMES[0]
        rows = [{"item": "i0", "annotator": "dee", "label": name}, {"item": "i1", "annotator": "dee", "label": "c-at"}]
        post(process, "/v1/labels", {"labels": rows})
        wait_until(lambda: page.locator("#held tbody tr").count() == 2)
        assert page.evaluate("window.hacked") is None
        page.click("#held tr[data-name='c-at'] button:has-text('it is cat')")
        wait_until(lambda: page.locator("#held tbody tr").count() == 1)
        page.click("#held button:has-text('add it')")
        wait_until(lambda: page.locator("#held").count() == 0)
        labels = {row["item"]: row["n_labels"] for row in get(process, "/v1/consensus")["consensus"]}
        assert (labels["i0"], labels["i1"]) == (4, 4)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.close()
