"""The report's facts: worked out by hand, by brute force, or against the plain way of computing them."""

import base64
import io
import itertools
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import stats

from crowdshot import CrowdClassifier
from crowdshot.classifier.cross_check import Check, _parts, leave_out, why_not
from crowdshot.classifier.known import Known
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import Share
from crowdshot.report.page import facts
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.classes import choose_examples
from crowdshot.report.page.how_made import Run, describe
from crowdshot.report.page.items import in_detail, need_a_person
from crowdshot.report.page.map import AGREED, DISPUTED, UNLABELLED, draw_map, place
from crowdshot.report.page.people import agree, people
from crowdshot.report.page.pictures import sheet, thumbnails
from crowdshot.report.page.writing import render, write_report
from crowdshot.wording import clean, command, percent, plural, probability, spread, times


def basis_of(belief, said, annotators=None, classes=None, embeddings=None) -> Basis:
    """A basis with these beliefs (N, K) and labels (N, R), -1 = none, without any fitting."""
    belief = np.asarray(belief, dtype=np.float64)
    classes = range(belief.shape[1]) if classes is None else classes
    ann = Annotations.from_matrix(np.asarray(said), annotators=annotators, classes=range(belief.shape[1]))
    ann = Annotations(ann.item, ann.annotator, ann.label, ann.items, ann.annotators, np.array(list(classes)))
    clf = CrowdClassifier("identity")
    clf.annotations_, clf.classes_, clf.learner_, clf.settings_ = ann, ann.classes, "Labelings", {"scale": 1.0}
    clf.encoder_ = clf.choose_encoder(np.zeros((1, 2)))
    clf.fit_ = SimpleNamespace(responsibilities=torch.from_numpy(belief))
    clf.known_, clf.without_gold_ = Known.nothing(len(belief)), belief[:0]
    x = np.arange(2 * len(belief)).reshape(-1, 2) if embeddings is None else embeddings
    return Basis(clf, torch.as_tensor(x, dtype=torch.float32))


def crowd(confusion, n_items, seed=0, per_item=None):
    """Labels (N, R) of annotators with these confusion matrices (R, K, K), and the truth (N,)."""
    random = np.random.default_rng(seed)
    R, K, _ = np.shape(confusion)
    truth = np.arange(n_items) % K
    said = np.full((n_items, R), -1)
    for i, t in enumerate(truth):
        for r in random.choice(R, per_item or R, replace=False):
            said[i, r] = random.choice(K, p=confusion[r][t])
    return said, truth


def coin(right: float, K: int):
    return np.full((K, K), (1 - right) / (K - 1)) + np.eye(K) * (right - (1 - right) / (K - 1))


# ---- items ------------------------------------------------------------------------------------------------------


def test_who_needs_a_person_and_in_which_order():
    belief = [
        [0.95, 0.05],  # settled, as said
        [0.6, 0.4],  # open
        [0.5, 0.5],  # open, more doubtful
        [0.05, 0.95],  # settled on what one of three said
        [0.7, 0.3],  # nobody labelled it
        [0.99, 0.01],  # nobody labelled it, but the classifier is sure
        [0.92, 0.08],  # a tie overrules nobody
    ]
    said = [[0, 0, 0], [0, 1, -1], [1, 0, 0], [0, 0, 1], [-1] * 3, [-1] * 3, [0, 1, -1]]
    basis = basis_of(belief, said)
    wanted, n_of_kind = need_a_person(basis)
    assert list(wanted.items()) == [(2, "open"), (1, "open"), (3, "overruled"), (4, "unlabelled")]
    assert n_of_kind == {"open": 2, "overruled": 1, "unlabelled": 1}


def test_an_item_whose_consensus_nobody_said_says_so():
    belief = [[0.2, 0.2, 0.6], [0.01, 0.01, 0.98], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]
    basis = basis_of(belief, [[0, 1], [0, 0], [0, 1], [-1, -1]])
    assert basis.unsaid.tolist() == [True, True, False, False]  # of the last one nobody said anything
    wanted, _ = need_a_person(basis)
    assert {item.name: item.unsaid for item in in_detail(basis, wanted, None, {})} == {
        **{"0": True, "1": True},
        **{"2": False, "3": False},
    }
    looks = ["The features helped: much.", "2 of 3 labelled items have a label that nobody gave: 0, 1."]
    _, page, _ = report_on(basis, looks=looks)
    assert page.text.count("Nobody said this: no label of it is 2.") == 2
    assert (
        page.text.index("Items that need a person") > page.text.index(" ".join(looks)) > page.text.index("The answer")
    )


def test_where_not_all_can_be_shown_those_that_nobody_said_are():
    sure = np.linspace(0.5, 0.89, 80)
    said = np.zeros((80, 1), dtype=int)
    said[79] = 1
    wanted, _ = need_a_person(basis_of(np.column_stack([sure, 1 - sure]), said))
    assert list(wanted) == [*range(59), 79]


def test_an_item_in_detail_says_who_said_what():
    said = np.array([[0] * 7 + [1, -1], [2] + [-1] * 8])
    basis = basis_of([[0.6, 0.397, 0.003], [0.2, 0.2, 0.6]], said, annotators=[*"abcdefg", "Zoë", "idle"])
    check = Check(np.array([0, 1]), np.array([0, 2]), np.array([[0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]))
    first, second = in_detail(basis, {0: "open", 1: "open"}, check, {1: "data:x"})
    assert [(g.label, g.probability) for g in first.guesses] == [(0, 0.6), (1, 0.397)]  # 0.003 is not worth a line
    assert [tuple(vote) for vote in first.votes] == [(0, [*"abcdef"], 1), (1, ["Zoë"], 0)]
    assert tuple(first.alone) == (1, 0.8)
    assert (first.picture, second.picture) == ("", "data:x")
    assert in_detail(basis, {1: "open"}, None, {})[0].alone is None


def test_of_many_items_the_most_doubtful_are_shown():
    sure = np.linspace(0.5, 0.89, 80)
    wanted, n_of_kind = need_a_person(basis_of(np.column_stack([sure, 1 - sure]), np.zeros((80, 1), dtype=int)))
    assert list(wanted) == list(range(60))
    assert n_of_kind["open"] == 80


# ---- annotators -------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(2, 6))
def test_agreement_is_compared_with_all_ways_to_deal_the_labels(seed, K, m):
    random = np.random.default_rng(seed)
    said, others = random.integers(K, size=m), random.integers(0, 3, (m, K)).astype(float)
    others[np.arange(m), random.integers(K, size=m)] += 1  # someone else labelled each item
    votes = others.copy()
    votes[np.arange(m), said] += 1
    share = others / others.sum(1, keepdims=True)
    dealt = [share[np.arange(m), list(order)].sum() for order in itertools.permutations(said)]
    found = agree(votes, said)
    assert found.n_labels == m
    assert found.share == pytest.approx(share[np.arange(m), said].mean())
    assert found.by_chance == pytest.approx(np.mean(dealt) / m)
    if np.std(dealt) > 1e-6:
        z = (found.share * m - np.mean(dealt)) / np.std(dealt)
        assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(z)), abs=1e-9)
    else:
        assert found.p_value == 1


def test_items_that_nobody_else_labelled_say_nothing_of_agreement():
    assert agree(np.array([[1.0, 0.0]]), np.array([0])) is None
    found = agree(np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([0, 0]))
    assert (found.n_labels, found.share) == (1, 0.5)


def fitted_crowd(confusion, n_items, seed=0, per_item=None, spread=0.5, gold=None) -> Basis:
    said, truth = crowd(confusion, n_items, seed, per_item)
    K = np.shape(confusion)[1]
    x = 3 * np.eye(K)[truth] + spread * np.random.default_rng(seed).normal(size=(n_items, K))
    clf = CrowdClassifier("identity")
    embeddings = clf.embed(x.astype(np.float32))
    return Basis(clf.fit_embeddings(embeddings, said, gold=gold), embeddings)


def flags(basis: Basis) -> list[str]:
    return [person.flag.name if person.flag else "" for person in people(basis)]


def test_flags_for_those_who_earn_them():
    K = 4
    one_class = np.tile(np.eye(K)[2], (K, 1))
    swapped = coin(0.95, K)[[1, 0, 2, 3]]
    shifted = coin(0.9, K)[[1, 2, 3, 0]]
    kinds = [coin(0.95, K), coin(0.85, K), coin(0.7, K), coin(0.25, K), one_class, swapped, shifted]
    basis = fitted_crowd(kinds, 100)
    expected = ["", "", "", "spammer-like", "one class only", "swaps two classes", "systematically wrong"]
    assert flags(basis) == expected
    why = [person.flag.why for person in people(basis) if person.flag]
    assert re.search(r"where guessing gives 2\d.%; agrees with others .* \(p = 0\.\d\d\)", why[0])
    assert why[1] == "every label is \u20682\u2069, which is what about 25\u00a0% of the items are"
    assert why[2].startswith("\u20680\u2069 and \u20681\u2069 called each other 4")


def test_no_flag_from_a_few_labels():
    K = 4
    kinds = [coin(0.95, K)] * 3 + [coin(0.25, K), coin(0.95, K)[[1, 0, 2, 3]]]
    assert flags(fitted_crowd(kinds, 8)) == [""] * 5
    alone, _ = crowd([coin(0.5, 2)], 100)
    belief = np.eye(2)[np.arange(100) % 2]
    assert flags(basis_of(belief, alone)) == [""]  # nobody to compare a guesser with


@pytest.mark.slow
@pytest.mark.parametrize(("K", "n_items", "per_item"), [(2, 120, 3), (4, 60, 3), (10, 100, 5)])
def test_hardly_ever_a_flag_for_the_honest(K, n_items, per_item):
    kinds = [coin(right, K) for right in (0.95, 0.9, 0.85, 0.8, 0.75, 0.75, 0.7)]
    raised = [flag for seed in range(10) for flag in flags(fitted_crowd(kinds, n_items, seed, per_item)) if flag]
    assert len(raised) <= 1, raised  # of 70


def test_one_class_is_no_fault_where_nearly_all_items_are_of_it():
    truth = np.array([0] * 57 + [1] * 3)
    belief = np.eye(2)[truth]
    assert flags(basis_of(belief, np.column_stack([truth, 0 * truth, truth]))) == ["", "", ""]
    truth = np.array([0] * 30 + [1] * 30)
    basis = basis_of(np.eye(2)[truth], np.column_stack([truth, 0 * truth, truth]))
    assert flags(basis) == ["", "one class only", ""]


def test_what_is_known_of_a_person():
    belief = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    basis = basis_of(belief, [[0, 1], [0, -1], [1, 1], [-1, -1]], annotators=["ann\x00", "bob"])
    ann, bob = people(basis)
    assert (ann.name, ann.n_labels, bob.n_labels) == ("ann\ufffd", 3, 2)
    np.testing.assert_allclose(ann.counts, [[1.1, 1.0], [0.9, 0.0]])  # [true, said]
    assert [(m.true, m.said) for m in ann.mistakes] == [(0, 1), (1, 0)]
    assert ann.mistakes[0].times == pytest.approx(1.0)
    assert ann.mistakes[0].of == pytest.approx(2.1)
    table = basis.clf.annotators_
    assert (ann.accuracy, ann.low, ann.high) == tuple(table.loc[0, ["accuracy", "low", "high"]])
    assert ann.guessing == pytest.approx((2 / 3) * (2.1 / 3) + (1 / 3) * (0.9 / 3))


# ---- the estimate -----------------------------------------------------------------------------------------------


def test_share_has_jeffreys_interval():
    share = Share.of_all(np.array([True] * 7 + [False] * 3))
    assert (share.hits, share.of, share.share) == (7, 10, 0.7)
    np.testing.assert_allclose((share.low, share.high), stats.beta(7.5, 3.5).ppf([0.05, 0.95]))
    assert Share.of_all(np.array([], dtype=bool)) is None


@given(st.lists(st.integers(0, 3), min_size=10, max_size=60))
def test_every_class_is_spread_over_all_parts(consensus):
    consensus = np.array(consensus)
    part = _parts(consensus, np.random.default_rng(0))
    assert set(part) == set(range(10))
    for k in set(consensus.tolist()):
        sizes = np.bincount(part[consensus == k], minlength=10)
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("method", ["ours", "LRDS"])
def test_leaving_out_is_fitting_without_the_labels_of_a_part(method):
    said, truth = crowd([coin(0.9, 3), coin(0.7, 3), coin(0.6, 3)], 36, per_item=2)
    said[30:] = -1  # six items that nobody labelled
    x = np.random.default_rng(1).normal(size=(36, 4)).astype(np.float32) + np.eye(3, 4)[truth].astype(np.float32)
    clf = CrowdClassifier("identity", method=method).fit(x, said)
    embeddings = clf.embed(x)
    assert why_not(clf, embeddings) == ""
    check = leave_out(clf, embeddings)
    assert check.rows.tolist() == list(range(30))
    assert clf.classes_[check.consensus].tolist() == clf.consensus_["label"][:30].tolist()
    part = _parts(check.consensus, np.random.default_rng(0))
    for number in (0, 7):
        hidden = np.flatnonzero(part == number)
        rest = said.copy()
        rest[hidden] = -1
        again = CrowdClassifier("identity", method=method, settings=clf.settings_).fit(x, rest, classes=range(3))
        np.testing.assert_allclose(again.predict_proba(x[hidden]), check.probabilities[hidden], atol=1e-5)
    right = check.said == check.consensus
    sure = check.probabilities.max(1) >= 0.6
    assert check.when_sure().hits == right.sum()
    assert check.when_sure(0.6) == Share.of_all(right[sure])
    assert check.when_sure(1.1) is None


def test_where_a_part_has_all_there_is_of_a_class_the_other_is_all_one_knows():
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    said = np.zeros((20, 3), dtype=int)
    said[4] = 1
    clf = CrowdClassifier("identity", scale=0.001).fit(x, said)
    check = leave_out(clf, clf.embed(x))
    assert check.consensus[4] == 1
    assert check.probabilities[4].tolist() == [1, 0]


def test_features_that_say_nothing_promise_nothing():
    said, _ = crowd([coin(0.9, 2)] * 5, 200)
    x = np.random.default_rng(5).normal(size=(200, 6)).astype(np.float32)
    clf = CrowdClassifier("identity").fit(x, said)
    share = leave_out(clf, clf.embed(x)).when_sure()
    assert share.low < 0.5 < share.high


def test_where_there_can_be_no_estimate():
    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    clf = CrowdClassifier("identity").fit(x, np.arange(9)[:, None] % 2)
    assert why_not(clf, clf.embed(x)) == "9 labelled items are too few to hide some of them"
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    clf = CrowdClassifier("identity", method="MCL", settings={"iterations": 1}).fit(x, np.arange(20)[:, None] % 2)
    assert why_not(clf, clf.embed(x)) == "MCL would take too long to learn 10 times"


# ---- classes and the map ----------------------------------------------------------------------------------------


def test_examples_near_the_centre_and_at_the_border():
    x = np.array([[0, 0], [0.1, 0], [-0.1, 0], [2, 0], [10, 0], [10.1, 0], [9.9, 0], [7, 0]], dtype=np.float32)
    label = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    (central, border), (other, other_border) = choose_examples(basis_of(np.eye(2)[label], label[:, None], embeddings=x))
    assert border[0] == 3  # the one that reaches out to the other class
    assert other_border[0] == 7
    assert set(central) | set(border) == {0, 1, 2, 3}
    assert set(other) | set(other_border) == {4, 5, 6, 7}


def test_marks_on_the_map():
    said = [[0, 0, 0, 0], [0, 0, 1, -1], [0, 0, 0, 1], [-1] * 4, [1, 1, -1, -1]]
    basis = basis_of(np.eye(2)[[0, 0, 0, 1, 0]], said)
    found = draw_map(basis, [])
    assert found.marks.tolist() == [AGREED, DISPUTED, AGREED, UNLABELLED, DISPUTED]
    assert found.votes[1] == [(0, 2), (1, 1)]
    assert found.sheet.uri == ""


def test_two_dimensions():
    random = np.random.default_rng(0)
    few, many = random.normal(size=(60, 8)).astype(np.float32), random.normal(size=(2001, 3)).astype(np.float32)
    many[:, 0] *= 10
    for x, how in (
        (few, "t-SNE"),
        (many, "principal components, which hold 9"),
        (few[:8], "principal"),
        (few[:, :1], "one"),
    ):
        xy, said = place(x)
        assert how in said
        assert xy.shape == (len(x), 2)
        assert xy.min() == 0
        assert xy.max() == 1
        np.testing.assert_array_equal(xy, place(x)[0])
    xy, _ = place(many)
    assert abs(np.corrcoef(xy[:, 0], many[:, 0])[0, 1]) > 0.999
    assert place(np.ones((3, 4), dtype=np.float32))[0].tolist() == [[0.5, 0.5]] * 3
    groups = np.repeat(50 * np.eye(3, 8), 20, axis=0).astype(np.float32) + few
    xy, _ = place(groups)
    inside = max(np.ptp(xy[i : i + 20], axis=0).max() for i in (0, 20, 40))
    centres = [xy[i : i + 20].mean(0) for i in (0, 20, 40)]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(centres, 2)) > 0.5 > inside


# ---- pictures ---------------------------------------------------------------------------------------------------


def opened(uri: str) -> Image.Image:
    kind, data = re.fullmatch(r"data:image/(png|jpeg);base64,(.*)", uri).groups()
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format.lower() == kind
    return image.convert("RGB")


def test_thumbnails_of_all_kinds(tmp_path: Path):
    red = Image.new("RGB", (400, 200), (250, 0, 0))
    red.save(tmp_path / "wide.jpg")
    sideways = red.getexif()
    sideways[0x0112] = 6
    red.save(tmp_path / "turned.jpg", exif=sideways)
    Image.new("RGBA", (20, 20), (0, 0, 250, 0)).save(tmp_path / "clear.png")
    Image.new("I;16", (20, 20), 65535).save(tmp_path / "deep.png")
    Image.new("1", (20, 20), 0).save(tmp_path / "bits.png")
    Image.new("L", (8, 8), 99).save(tmp_path / "tiny.png")
    (tmp_path / "gone.png").write_bytes(b"no image")
    names = ["wide.jpg", "turned.jpg", "clear.png", "deep.png", "bits.png", "tiny.png", "gone.png", "absent.png"]
    wide, turned, clear, deep, bits, tiny, *bad = thumbnails([tmp_path / name for name in names])
    assert bad == ["", ""]
    assert opened(wide).size == (144, 72)
    assert opened(turned).size == (72, 144)
    assert opened(wide).getpixel((70, 30))[0] > 240
    assert opened(clear).getpixel((5, 5)) == opened(deep).getpixel((5, 5)) == (255, 255, 255)
    assert opened(bits).getpixel((5, 5)) == (0, 0, 0)
    assert opened(tiny).size == (8, 8)
    assert opened(tiny).getpixel((5, 5)) == (99, 99, 99)


def test_the_sheet_has_every_image_in_its_place(tmp_path: Path):
    colours = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 0), (0, 0, 0)]
    for i, colour in enumerate(colours):
        Image.new("RGB", (30 + i, 40), colour).save(tmp_path / f"{i}.png")
    made = sheet([tmp_path / f"{i}.png" for i in range(5)])
    image = opened(made.uri)
    assert (made.columns, image.size) == (3, (3 * made.tile, 2 * made.tile))
    for i, colour in enumerate(colours):
        middle = (i % 3 * made.tile + made.tile // 2, i // 3 * made.tile + made.tile // 2)
        assert np.abs(np.subtract(image.getpixel(middle), colour)).max() < 12
    assert sheet([]).uri == ""


# ---- words ------------------------------------------------------------------------------------------------------


def test_words():
    assert [percent(p).replace("\u00a0", " ") for p in (0, 0.004, 0.12, 0.996, 1)] == [
        "0 %",
        "<1 %",
        "12 %",
        ">99 %",
        "100 %",
    ]
    assert [probability(p).replace("\u00a0", " ") for p in (0, 0.5, 1)] == ["<1 %", "50 %", ">99 %"]
    assert spread(0.385, 0.9) == "38–90\u00a0%"
    assert [times(n) for n in (0.0, 1.98, 2.5, 12.4)] == ["0", "2", "2.5", "12"]
    assert [plural(1, "item"), plural(2000, "item"), plural(3, "class")] == ["1 item", "2,000 items", "3 classes"]
    assert clean("a\x00b\udc80c\u200dd") == "a\ufffdb\ufffdc\u200dd"
    assert len(clean("x" * 1000)) == 160


def test_the_command_is_one_for_a_shell():
    made = command(
        "adapt",
        [Path("my labels.csv"), Path("b;rm.csv")],
        {
            **{"images": Path("$HOME/p"), "features": None, "out": Path("o"), "columns": {"item": "a b"}},
            **{"method": "LRDS", "settings": {"C": 0.5, "frozen": True}, "skip-bad": False, "overwrite": True},
        },
    )
    expected = ["crowdshot", "adapt", "my labels.csv", "b;rm.csv", "--images", "$HOME/p", "--out", "o"]
    expected += ["--columns", "item=a b", "--method", "LRDS", "--settings", "C=0.5,frozen=true", "--overwrite"]
    assert shlex.split(made) == expected
    assert command("adapt", [Path("l")], {"method": "auto"}) == "crowdshot adapt l"


# ---- the page ---------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)


def report_on(basis: Basis, **about) -> tuple[facts.Facts, Page, str]:
    about = {"sources": ["labels.csv"], "items_from": "x.csv", "paths": [], "how": {}, "command": "crowdshot"} | about
    found = facts.gather(basis.clf, basis.embeddings, Run(**about))
    html = render(found)
    return found, Page(html), html


EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"


def test_whatever_names_hold_is_text():
    said, truth = crowd([coin(0.9, 2), coin(0.6, 2)], 40)
    x = np.eye(2)[truth].astype(np.float32) + np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    names = np.array([EVIL + "cat", "dog"], dtype=object)
    labels = Annotations.from_matrix(
        names[said], items=[f"{EVIL}{i}" for i in range(40)], annotators=[EVIL, "\u202eשלום" * 200]
    )
    clf = CrowdClassifier("identity")
    embeddings = clf.embed(x)
    clf.fit_embeddings(embeddings, labels, items=labels.items)
    about = {"sources": [EVIL], "items_from": EVIL, "how": {EVIL: EVIL}, "command": EVIL, "left_out": [EVIL]}
    found, page, _ = report_on(Basis(clf, embeddings), **about)
    assert found.items
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not [attributes for tag, attributes in page.tags if tag == "img"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    assert EVIL in page.text


def test_the_page_needs_nothing_else():
    _, page, html = report_on(fitted_crowd([coin(0.9, 3)] * 3, 30))
    links = [v for _, attributes in page.tags for k, v in attributes.items() if k in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "http://" not in html
    assert "https://" not in html
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_answer_comes_first_and_in_words():
    K = 4
    gold = {0: 0, 1: 1, 2: 3}
    basis = fitted_crowd([coin(0.95, K), coin(0.9, K), coin(0.85, K), coin(0.25, K)], 80, seed=2, gold=gold)
    found, page, _ = report_on(basis, left_out=["3 cancelled annotations"])
    assert page.text.index("The answer") < page.text.index("Items that need a person") < page.text.index("Map of")
    assert (found.n_labelled, found.settled + found.n_of_kind["open"]) == (80, 80)
    assert "What 4 annotators said about 80 items" in page.text
    assert "3 (spammer-like) stands out among the annotators." in page.text
    assert "Left out: 3 cancelled annotations." in page.text
    assert "Of 3 labelled items whose true label is known, 2 would be right without it (24–94" in page.text
    assert f"It agreed on {found.check.hits}." in page.text
    basis = fitted_crowd([coin(0.95, K), coin(0.9, K)], 8)
    found, page, _ = report_on(basis)
    assert "All 8 labelled items are settled" in page.text or f"{found.settled} of 8 labelled items" in page.text
    assert "No annotator stands out; the weakest," in page.text
    assert "new items is not known: 8 labelled items are too few to hide some of them." in page.text
    assert "in the check" not in page.text
    _, page, _ = report_on(fitted_crowd([coin(0.95, 2)], 12))
    assert "There is one annotator only, whom no other label can contradict." in page.text


def test_from_which_probability_on_the_classifier_can_be_trusted():
    basis = fitted_crowd([coin(0.95, 2)] * 3, 200, spread=0.3)
    found, _, _ = report_on(basis)
    assert found.trusted.confidence == 0.5
    assert found.trusted.check.low >= 0.9
    random = np.random.default_rng(5).normal(size=(200, 6)).astype(np.float32)
    said, _ = crowd([coin(0.9, 2)] * 5, 200)
    said[150:] = -1
    clf = CrowdClassifier("identity").fit(random, said)
    found, page, _ = report_on(Basis(clf, clf.embed(random)))
    assert found.trusted is None
    assert "the check below cannot prove that it is right nine times in ten, however sure it is" in page.text


@pytest.mark.slow
def test_large_crowds_are_cut_and_said_to_be():
    said = np.full((310, 310), -1)
    said[np.arange(310), np.arange(310)] = np.arange(310) % 2
    said[:, 0] = np.arange(310) % 2
    belief = np.full((310, 2), 0.5)
    _, page, html = report_on(basis_of(belief, said))
    assert len(re.findall(r"<tr data-kind=", html)) == 300
    assert "300 of 310; annotators.csv has all." in page.text
    assert "Not settled: the first 60 of 310 are shown; consensus.csv has all." in page.text
    many = fitted_crowd([coin(0.9, 14)] * 3, 56)
    _, page, html = report_on(many)
    assert "With 14 classes a table of all answers would be too large to read" in page.text
    assert 'class="matrix"' not in html


def test_how_it_was_done(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    assert describe(CrowdClassifier("identity").fit(x, np.arange(20)[:, None] % 2), None)["Settings"] == "none; seed 0"
    clf = CrowdClassifier("identity", method="ours").fit(x, np.arange(20)[:, None] % 2)
    how = describe(clf, None)
    assert (
        how["Method"]
        == "Ours: a mixture of Gaussians with a confusion matrix for each annotator, on meta-learned embeddings"
    )
    assert how["Encoder"] == "chosen by the items: identity for feature vectors"
    assert "c = one-coin (right 3, wrong 1, weight 10)" in how["Settings"]
    assert "crowdshot 0." in how["Versions"]
    other = CrowdClassifier("identity", method="LRDS").fit(x, np.arange(20)[:, None] % 2)
    assert describe(other, "identity")["Encoder"].startswith("identity: ")
    assert "annotators is Dawid–Skene's" in describe(other, None)["Method"]
    write_report(tmp_path / "r.html", clf, clf.embed(x), Run(["l"], "x", [], how, "crowdshot adapt l"))
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!doctype html>")
