"""Test the report in a browser (`conftest.py`)."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from polling import wait_until

from .hostile import CLASSES, COLOURS, PEOPLE, column, visible

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280, 1920])
def test_the_page_opens_without_messages_and_fits_the_width(open_page, scheme: str, width: int) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    assert page.heard == []
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") == width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in back.removeprefix("rgb(").rstrip(")").split(",")) / 3
    assert (brightness < 80) == (scheme == "dark")


def test_no_name_takes_more_than_a_few_lines(open_page) -> None:
    page = open_page(viewport={"width": 390, "height": 800})
    heights = page.eval_on_selector_all(".name", "all => all.map(one => one.getBoundingClientRect().height)")
    assert max(heights) < 90


def test_a_name_is_shown_as_it_is(open_page) -> None:
    page = open_page()
    heads = page.eval_on_selector_all("#people-list .who .name", "all => all.map(one => one.textContent)")
    assert set(heads) >= {PEOPLE[0], PEOPLE[1], PEOPLE[2], "ordinary"}
    for selector in ("#people-list summary", ".card", ".legend button"):
        for element in visible(page, selector)[:6]:
            element.hover()
            element.click()
    assert page.evaluate("window.hacked") is None
    assert page.heard == []


def test_sorting_annotators(open_page) -> None:
    page = open_page()
    assert column(page, "name")[0] == "guesser"  # has the lowest upper bound
    sort = page.locator("form[data-for=people-list] select[name=sort]")
    for key, down in {"labels": True, "agreement": False, "high": False}.items():
        sort.select_option(key)
        numbers = [float(value) for value in column(page, key)]
        assert numbers == sorted(numbers, reverse=down)
    sort.select_option("name")
    names = column(page, "name")
    assert names.index("guesser") < names.index("ordinary") < names.index("שלום עולם \u202eevil")


def test_annotators_below_a_chosen_accuracy(open_page) -> None:
    page = open_page()
    ends = dict(zip(column(page, "name"), map(float, column(page, "high")), strict=True))
    line = page.locator("#line")
    line.focus()
    for key, at in {"End": 100, "Home": 0, "ArrowRight": 1}.items():
        page.keyboard.press(key)
        below = [name for name, high in ends.items() if high < at / 100]
        assert page.inner_text("#line-form output").startswith(f"{len(below)} clearly below, ")
    page.fill("#line", "60")
    assert [name for name, high in ends.items() if high < 0.6] == ["guesser"]
    page.locator("form[data-for=people-list] select[name=kind]").select_option("below")
    assert column(page, "name") == ["guesser"]
    strip = page.locator("#people-list .strip").first.bounding_box()
    left = page.evaluate(
        "() => getComputedStyle(document.querySelector('#people-list .strip'), '::after').left.replace('px', '')"
    )
    assert float(left) == pytest.approx(0.6 * strip["width"], abs=2)


def test_an_annotator_is_opened_by_keyboard(open_page) -> None:
    page = open_page(viewport={"width": 375, "height": 800})
    row = page.locator("#people-list > li").first
    row.locator("summary").press("Enter")
    about = row.locator(".about")
    assert about.locator(".matrix").is_visible()
    assert about.locator(".examples .picture").count() == 4
    assert "Agreement with other annotators" in about.inner_text()
    assert about.get_by_text("Feedback sheet").get_attribute("href") == "feedback/guesser.html"
    heads = about.locator(".matrix thead th bdi")
    assert heads.count() == 4  # all classes, none cut off
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_filtering_annotators(open_page) -> None:
    page = open_page()
    form = page.locator("form[data-for=people-list]")
    form.locator("select[name=kind]").select_option("flagged")
    assert column(page, "name") == ["guesser"]
    assert form.locator("output").inner_text() == "1 of 1 shown"
    form.locator("select[name=kind]").select_option("")
    form.locator("input").fill("<SCRIPT>")  # in the name, or in confused classes
    assert PEOPLE[0] in column(page, "name")
    form.locator("input").fill("nobody is called so")
    assert column(page, "name") == []
    form.locator("input").press("Enter")  # must not leave the page
    form.locator("input").fill("")
    assert len(column(page, "name")) == len(PEOPLE)


def test_filtering_items_and_showing_more(open_page) -> None:
    page = open_page()
    form = page.locator("form[data-for=item-list]")
    total = len(page.query_selector_all("#item-list > li:not([data-kind=accepted])"))
    assert total > 12
    assert len(visible(page, "#item-list > li")) == 12
    assert form.locator("output").inner_text() == f"12 of {total} shown"
    page.get_by_role("button", name="Show more").first.click()
    assert len(visible(page, "#item-list > li")) == min(24, total)
    for kind in page.eval_on_selector_all("form[data-for=item-list] option", "all => all.map(one => one.value)"):
        form.locator("select").select_option(kind)
        shown = visible(page, "#item-list > li")
        assert len(shown) == min(12, len(page.query_selector_all(f"#item-list > li[data-kind={kind}]")) if kind else 99)
        if shown and kind:
            assert {element.get_attribute("data-kind") for element in shown} == {kind}
    form.locator("select").select_option("")
    form.locator("input").fill("plain-")
    assert all("plain-" in element.inner_text() for element in visible(page, "#item-list > li"))


def test_the_map_shows_an_item_and_its_image(open_page) -> None:
    page = open_page()
    page.locator("nav a[href='#map']").press("Enter")  # opens the section
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
    page.locator("#map-title + details > summary").press("Enter")
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


@pytest.mark.parametrize("width", [375, 1280])
def test_names_on_the_map_do_not_overlap(open_page, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900})
    page.locator("#map-title + details > summary").click()
    measure = "all => all.map(one => one.getBoundingClientRect().toJSON())"
    chart, *boxes = page.eval_on_selector_all(
        "#points, #points .label", measure
    )  # in one call, because the page may scroll
    assert len(boxes) == 4
    for one, two in itertools.combinations(boxes, 2):
        apart = one["x"] + one["width"] <= two["x"] or two["x"] + two["width"] <= one["x"]
        assert apart or one["y"] + one["height"] <= two["y"] + 1 or two["y"] + two["height"] <= one["y"] + 1
    assert all(chart["x"] <= box["x"] and box["x"] + box["width"] <= chart["x"] + chart["width"] for box in boxes)


def test_a_tap_on_a_phone_shows_an_item(open_page) -> None:
    page = open_page(viewport={"width": 375, "height": 800}, has_touch=True)
    page.locator("#map-title + details > summary").tap()
    chart = page.locator("#chart")
    chart.scroll_into_view_if_needed()
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    box = page.locator("#points").bounding_box()
    scale = box["width"] / data["width"]
    page.touchscreen.tap(box["x"] + data["x"][0] * scale, box["y"] + data["y"][0] * scale)
    assert page.is_visible("#tip")
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_the_page_is_readable_without_scripts(open_page) -> None:
    page = open_page(java_script_enabled=False)
    assert len(visible(page, "#people-list > li")) == len(PEOPLE)
    assert len(visible(page, "#item-list > li")) > 12
    assert not visible(page, "form, .more")
    page.locator("#map-title + details > summary").click()
    assert len(visible(page, "#points path")) >= 4
    assert len(visible(page, "#points .thumbnail")) >= 4
    page.locator("#people-list summary").first.click()
    assert visible(page, "#people-list .matrix")


def test_the_security_policy_blocks_scripts(open_page) -> None:
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
    wait_until(lambda: page.wait_for_timeout(10) or any(refused in line for line in page.heard))
    assert page.evaluate("window.hacked") is None


# ---- the first screen and the threshold -------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(375, 812), (1280, 800), (1920, 1080)])
def test_the_first_screen_has_the_tiles_and_the_start_of_next_steps(open_page, width: int, height: int) -> None:
    page = open_page(viewport={"width": width, "height": height})
    assert len(visible(page, "#answer .tile")) == 4
    assert page.locator("#next").bounding_box()["y"] < height
    boxes = [tile.bounding_box() for tile in page.locator("#answer .tile").all()]
    rows = len({round(box["y"]) for box in boxes})
    assert rows == (2 if width == 375 else 1)
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def test_images_are_visible(open_page) -> None:
    page = open_page()
    card = page.locator("#item-list > li").first
    row = int(card.locator(".picture use").get_attribute("href").removeprefix("#p"))
    shot = Image.open(io.BytesIO(card.locator(".picture").screenshot())).convert("RGB")
    middle = shot.resize((3, 3), Image.Resampling.BOX).getpixel((1, 1))
    assert np.abs(np.subtract(middle, COLOURS[row % 4])).max() < 30


def counts(page) -> dict[str, int]:
    texts = {name: page.inner_text(f"[data-at={name}] >> nth=0") for name in ("accepted", "person")}
    shown = page.eval_on_selector_all("#item-list > li:not([data-kind=accepted])", "all => all.length")
    return {name: int(text.replace(",", "")) for name, text in texts.items()} | {"shown": shown}


def test_the_threshold_recounts_the_page(open_page) -> None:
    page = open_page()
    assert page.inner_text(".threshold output") == "90\u00a0%"
    before = counts(page)
    confidences = page.eval_on_selector_all("#item-list > li", "all => all.map(one => Number(one.dataset.confidence))")
    page.focus("#enough")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert page.input_value("#enough") == "99"
    high = counts(page)
    assert high["accepted"] < before["accepted"]
    assert high["person"] > before["person"]
    assert high["shown"] >= sum(confidence < 0.99 for confidence in confidences) > before["shown"]
    assert "99\u00a0%" in page.inner_text(".tile >> nth=0")
    assert [figure.get_attribute("data-curve") for figure in visible(page, ".curve")] == ["99\u00a0%"]
    page.keyboard.press("Home")
    low = counts(page)
    assert low["accepted"] >= 49  # a threshold of one half accepts most items
    kinds = page.eval_on_selector_all("#item-list > li", "all => all.map(one => one.dataset.kind)")
    assert [kind == "open" or kind == "unlabelled" for kind in kinds] == [
        confidence < 0.5 for confidence in confidences
    ]
    page.fill("#enough", "90")
    assert counts(page) == before
    assert page.heard == []


def test_printed_pages_have_no_controls(open_page) -> None:
    page = open_page(viewport={"width": 794, "height": 1123})
    page.emulate_media(media="print")
    assert not visible(page, "nav, form, button, #decisions, input")
    assert len(visible(page, "#answer .tile")) == 4
    assert visible(page, "#item-list .picture, .steps code, #people-list .interval")
    assert page.evaluate("document.documentElement.scrollWidth") == 794
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_command_is_copied(open_page) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    command = page.locator(".steps li:not([hidden]) .command").first
    command.get_by_role("button", name="Copy").press("Enter")
    wait_until(lambda: command.locator("button").inner_text() == "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == command.locator("code").inner_text()
