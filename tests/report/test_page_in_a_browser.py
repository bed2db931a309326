"""The report in a real browser: Debian's chromium, driven by Playwright. Skipped where either is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crowdshot import CrowdClassifier
from crowdshot.labels.annotations import Annotations
from crowdshot.report.page.how_made import Run
from crowdshot.report.page.writing import write_report
from waiting import HANGS, until

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (pip install playwright)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)"),
]

HACK = "window.hacked = 1"
PEOPLE = [
    f"<script>{HACK}</script>",
    f'"><img src=x onerror="{HACK}">',
    "שלום עולם \u202eevil",
    "👩‍👩‍👧‍👦🏳️‍🌈" * 30,
    "x" * 1000,
    f"' onmouseover='{HACK}' autofocus onfocus='{HACK}",
    f"</title></style></script><svg onload='{HACK}'>",
    "ordinary",
    "guesser",
]
CLASSES = [f"<b onclick='{HACK}'>cat</b><script>{HACK}</script>", "كلب طويل جدا", "🦊" * 40, "W" * 1000]
COLOURS = np.array([[60, 60, 200], [200, 60, 60], [60, 180, 60], [180, 180, 60]])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 items with images, 50 of them labelled, whose names, annotators and classes are as bad as they come."""
    folder = tmp_path_factory.mktemp("report")
    random = np.random.default_rng(0)
    truth = np.arange(90) % 4
    names = [
        (f"{i}<svg onload={HACK}>.png", f"{'long' * 250}-{i}.png", f"צילום-{i}.png", f"plain-{i}.png")[i % 4]
        for i in range(90)
    ]
    paths = []
    for i, k in enumerate(truth):
        paths.append(folder / f"{i}.png")
        noise = COLOURS[k] + 25 * random.normal(size=(50, 80 if i % 2 else 40, 3))
        Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(paths[-1])
    said = np.full((90, len(PEOPLE)), None, dtype=object)
    for i in range(50):
        for who in range(len(PEOPLE)):
            if random.random() < 0.7 or who == len(PEOPLE) - 1:
                right = random.random() < (0.8 if who < len(PEOPLE) - 1 else 0)
                said[i, who] = CLASSES[truth[i] if right else random.integers(4)]
    labels = Annotations.from_matrix(said, items=names, annotators=PEOPLE)
    embeddings = (np.eye(4)[truth] + 0.8 * random.normal(size=(90, 4))).astype(np.float32)
    clf = CrowdClassifier("identity")
    vectors = clf.embed(embeddings)
    clf.fit_embeddings(vectors, labels, items=labels.items)
    path = folder / "report.html"
    how = {"Method": f"<script>{HACK}</script>", "Long": "word" * 200}
    write_report(path, clf, vectors, Run(["l.csv"], "x" * 500, paths, how, f"crowdshot {'y' * 600} <script>"))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, report: Path) -> Iterator[Any]:
    """Opens the report; what the browser complains about, or asks the network for, is in ``page.heard``."""
    contexts = []

    def opener(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * HANGS)
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("dialog", lambda dialog: page.heard.append(dialog.message))
        page.on("request", lambda request: page.heard.append(request.url) if "data:" not in request.url[:5] else None)
        page.goto(report.as_uri())
        page.heard.remove(report.as_uri())
        return page

    yield opener
    for context in contexts:
        context.close()


def visible(page: Any, selector: str) -> list[Any]:
    return [element for element in page.query_selector_all(selector) if element.is_visible()]


def column(page: Any, key: str) -> list[str]:
    return page.eval_on_selector_all("#people-list > tr:not([hidden])", f"rows => rows.map(row => row.dataset.{key})")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_it_opens_quietly_and_nothing_sticks_out(open_page, scheme: str, width: int) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    page.eval_on_selector_all("[loading=lazy]", "all => all.forEach(one => one.loading = 'eager')")
    page.mouse.wheel(0, 20_000)
    page.wait_for_function("[...document.images].every(image => image.complete)")
    assert page.heard == []
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in back.removeprefix("rgb(").rstrip(")").split(",")) / 3
    assert (brightness < 80) == (scheme == "dark")


def test_no_name_takes_more_than_a_few_lines(open_page) -> None:
    page = open_page(viewport={"width": 390, "height": 800})
    heights = page.eval_on_selector_all(".name", "all => all.map(one => one.getBoundingClientRect().height)")
    assert max(heights) < 90


def test_a_name_is_shown_as_it_is(open_page) -> None:
    page = open_page()
    heads = page.eval_on_selector_all("#people-list th .name", "all => all.map(one => one.textContent)")
    assert set(heads) >= {PEOPLE[0], PEOPLE[1], PEOPLE[2], "ordinary"}
    for selector in ("#people-list tr", ".card", ".legend button"):
        for element in visible(page, selector)[:6]:
            element.hover()
            element.click()
    assert page.evaluate("window.hacked") is None
    assert page.heard == []


def test_sorting_by_mouse_and_by_keyboard(open_page) -> None:
    page = open_page()
    assert column(page, "name")[0] == "guesser"  # flagged, so it comes first
    for key in ("labels", "accuracy", "agreement"):
        button = page.locator(f"th[data-key={key}] button")
        button.click()
        numbers = [float(value) for value in column(page, key)]
        assert numbers == sorted(numbers)
        assert page.get_attribute(f"th[data-key={key}]", "aria-sort") == "ascending"
        button.press("Enter")
        numbers = [float(value) for value in column(page, key)]
        assert numbers == sorted(numbers, reverse=True)
        assert page.get_attribute(f"th[data-key={key}]", "aria-sort") == "descending"
    page.focus("th[data-key=name] button")
    page.keyboard.press("Space")
    assert page.get_attribute("th[data-key=name]", "aria-sort") == "ascending"
    assert page.get_attribute("th[data-key=labels]", "aria-sort") == "none"
    names = column(page, "name")
    assert names.index("guesser") < names.index("ordinary") < names.index("שלום עולם \u202eevil")


def test_filtering_annotators(open_page) -> None:
    page = open_page()
    form = page.locator("form[data-for=people-list]")
    form.locator("select").select_option("flagged")
    assert column(page, "name") == ["guesser"]
    assert form.locator("output").inner_text() == "1 of 1 shown"
    form.locator("select").select_option("")
    form.locator("input").fill("<SCRIPT>")  # in its name, or among what it confuses
    assert PEOPLE[0] in column(page, "name")
    form.locator("input").fill("nobody is called so")
    assert column(page, "name") == []
    form.locator("input").press("Enter")  # must not leave the page
    form.locator("input").fill("")
    assert len(column(page, "name")) == len(PEOPLE)


def test_filtering_items_and_showing_more(open_page) -> None:
    page = open_page()
    form = page.locator("form[data-for=item-list]")
    total = len(page.query_selector_all("#item-list > li"))
    assert total > 12
    assert len(visible(page, "#item-list > li")) == 12
    assert form.locator("output").inner_text() == f"12 of {total} shown"
    page.get_by_role("button", name="Show more").first.click()
    assert len(visible(page, "#item-list > li")) == min(24, total)
    for kind in page.eval_on_selector_all("form[data-for=item-list] option", "all => all.map(one => one.value)"):
        form.locator("select").select_option(kind)
        shown = visible(page, "#item-list > li")
        assert shown
        if kind:
            assert {element.get_attribute("data-kind") for element in shown} == {kind}
    form.locator("select").select_option("")
    form.locator("input").fill("plain-")
    assert all("plain-" in element.inner_text() for element in visible(page, "#item-list > li"))


def test_the_map_shows_an_item_and_its_picture(open_page) -> None:
    page = open_page()
    chart = page.locator("#chart")
    chart.scroll_into_view_if_needed()
    assert not page.is_visible("#tip")
    box = chart.bounding_box()
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    scale = page.locator("#points").bounding_box()["width"] / data["width"]
    i = next(i for i, name in enumerate(data["name"]) if name.startswith("plain-"))
    page.mouse.move(box["x"] + 1 + data["x"][i] * scale, box["y"] + 1 + data["y"][i] * scale)
    assert page.is_visible("#tip")
    assert data["name"][i] in page.inner_text("#tip")
    colour = page.evaluate(
        "() => { const c = document.querySelector('#tip canvas');"
        "return [...c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data]; }"
    )
    assert np.abs(np.subtract(colour[:3], COLOURS[i % 4])).max() < 90
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 30)
    assert not page.is_visible("#tip")
    assert page.evaluate("window.hacked") is None


def test_the_map_by_keyboard_and_one_class_alone(open_page) -> None:
    page = open_page()
    page.focus("#chart")
    page.keyboard.press("ArrowRight")
    first = page.inner_text("#tip")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#tip") != first
    page.keyboard.press("Escape")
    assert not page.is_visible("#tip")
    button = page.locator(".legend button").nth(1)
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    faint = page.eval_on_selector_all("#points g", "all => all.map(one => getComputedStyle(one).opacity)")
    assert sorted(faint)[-1] == "1"
    assert sorted(faint)[0] < "0.2"
    page.focus("#chart")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#tip").startswith(sorted(CLASSES)[1][:40])
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"


def test_a_tap_on_a_phone_shows_an_item(open_page) -> None:
    page = open_page(viewport={"width": 390, "height": 800}, has_touch=True)
    chart = page.locator("#chart")
    chart.scroll_into_view_if_needed()
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    box = page.locator("#points").bounding_box()
    scale = box["width"] / data["width"]
    page.touchscreen.tap(box["x"] + data["x"][0] * scale, box["y"] + data["y"][0] * scale)
    assert page.is_visible("#tip")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_without_a_script_all_can_be_read(open_page) -> None:
    page = open_page(java_script_enabled=False)
    assert len(visible(page, "#people-list > tr")) == len(PEOPLE)
    assert len(visible(page, "#item-list > li")) > 12
    assert not visible(page, "form, .more")
    assert len(visible(page, "#points path")) >= 4
    page.locator("#people-list details summary").first.click()
    assert visible(page, "#people-list .matrix")


def test_the_security_policy_stops_what_escaping_would_miss(open_page) -> None:
    page = open_page()
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked = 1'>");
        }"""
    )
    refused = "Content Security Policy"
    until(lambda: page.wait_for_timeout(10) or any(refused in line for line in page.heard))
    assert page.evaluate("window.hacked") is None
