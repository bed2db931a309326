"""The page as a whole: its words, and what it is made of."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from crowdshot import CrowdClassifier
from crowdshot.formatting import clean, command, percent, plural, probability, spread, times
from crowdshot.labels.annotations import Annotations
from crowdshot.report.page import facts
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.facts import Run, describe
from crowdshot.report.page.page_writer import write_page

from .made import basis_of, coin, crowd, fitted_crowd, report_on


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
    found, page, _ = report_on(Basis.of_classifier(clf, embeddings), **about)
    assert found.items
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert [script for script in scripts if script != {"type": "module"}] == [
        {"type": "application/json", "id": "decisions-data"},
        {"type": "application/json", "id": "data"},
        {"type": "application/json", "id": "threshold-texts"},
    ]
    assert not [attributes for tag, attributes in page.tags if tag == "img"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    assert EVIL in page.text


def test_the_page_needs_nothing_else():
    _, page, html = report_on(fitted_crowd([coin(0.9, 3)] * 3, 30))
    links = [v for _, attributes in page.tags for k, v in attributes.items() if k in ("src", "href")]
    assert all(link.startswith(("#", "data:", "feedback/")) for link in links)
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
    basis = fitted_crowd(
        [coin(0.95, K), coin(0.9, K), coin(0.85, K), coin(0.25, K)], 80, seed=2, gold={0: 0, 1: 1, 2: 3}
    )
    found, page, _ = report_on(basis, left_out=["3 cancelled annotations"])
    words = ["Overview", "Need review", "Weakest annotator", "Classifier accuracy", "Do next"]
    words += ["Krippendorff's alpha", "Fleiss' kappa", "Map of"]
    places = [page.text.index(word) for word in words]
    assert places == sorted(places)
    assert (found.n_labelled, found.accepted().labelled + found.of_kind()["open"]) == (80, 80)
    assert "80 items labelled by 4 annotators" in page.text
    accepted = f"Accepted {found.accepted().labelled} of 80"
    assert f"{accepted} labelled items have a label with probability 90 % or more" in page.text
    weakest = found.people[0]
    assert weakest.name == "3"
    interval = spread(weakest.low, weakest.high)
    correct = f"{percent(weakest.accuracy)} 3 correct (90 % interval {interval}, 80 labels)".replace("\u00a0", " ")
    assert f"Weakest annotator {correct}; spammer-like" in page.text
    assert "Talk to annotator \u20683\u2069 (spammer-like)." in page.text
    assert "Left out: 3 cancelled annotations." in page.text
    assert (
        "Of 3 labelled items with a known true label, 2 would be correct without it (90 % interval 24–94" in page.text
    )
    assert f"By this estimate {found.check.hits} of 80 predictions were correct." in page.text
    basis = fitted_crowd([coin(0.95, K), coin(0.9, K)], 8)
    _, page, _ = report_on(basis)
    assert "not known 8 labelled items are too few for cross-validation" in page.text
    assert "in the check" not in page.text
    _, page, _ = report_on(fitted_crowd([coin(0.95, 2)], 12))
    assert "There is only one annotator, so no other label can contradict theirs." in page.text


@pytest.mark.slow
def test_large_crowds_are_cut_and_said_to_be():
    said = np.full((310, 310), -1)
    said[np.arange(310), np.arange(310)] = np.arange(310) % 2
    said[:, 0] = np.arange(310) % 2
    posterior = np.full((310, 2), 0.5)
    _, page, html = report_on(basis_of(posterior, said))
    assert len(re.findall(r"<li data-kind=", html)) == 300
    assert "The 300 annotators who are most likely below 70 % are shown, of 310; annotators.csv has all." in page.text
    assert "Not accepted: the page shows the 60 most uncertain of 310 items; consensus.csv has all." in page.text
    many = fitted_crowd([coin(0.9, 14)] * 3, 56)
    _, page, html = report_on(many)
    assert "Confusion matrices with 14 classes are too large for this page" in page.text
    assert 'class="matrix"' not in html


def test_how_it_was_done(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    assert describe(CrowdClassifier("identity").fit(x, np.arange(20)[:, None] % 2), None)["Settings"] == "none; seed 0"
    both = CrowdClassifier("identity", method="combined").fit(x, np.arange(20)[:, None] % 2)
    assert describe(both, None)["Method"].startswith("combined:")
    assert "Dawid–Skene" not in describe(both, None)["Method"]  # its consensus is its own
    clf = CrowdClassifier("identity", method="ours").fit(x, np.arange(20)[:, None] % 2)
    how = describe(clf, None)
    assert (
        how["Method"]
        == "Ours: a mixture of Gaussians with a confusion matrix for each annotator, on meta-learned embeddings"
    )
    assert how["Encoder"] == "chosen automatically: identity for feature vectors"
    assert "c = one-coin (right 3, wrong 1, weight 10)" in how["Settings"]
    assert "crowdshot 0." in how["Versions"]
    other = CrowdClassifier("identity", method="LRDS").fit(x, np.arange(20)[:, None] % 2)
    assert describe(other, "identity")["Encoder"].startswith("identity: ")
    assert "from Dawid–Skene" in describe(other, None)["Method"]
    run = Run(["l"], "x", [], how, "crowdshot adapt l")
    write_page(tmp_path / "r.html", facts.gather(clf, clf.embed(x), run))
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!doctype html>")
