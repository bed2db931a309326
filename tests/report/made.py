"""Crowds, fitted or with posteriors of one's choice, and the pages made of them."""

from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import torch

from crowdshot import CrowdClassifier
from crowdshot.classifier.learner_contract import SideInformation
from crowdshot.labels.annotations import Annotations
from crowdshot.report.page import facts
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.facts import Run
from crowdshot.report.page.page_writer import render


def basis_of(posterior, said, annotators=None, classes=None, embeddings=None) -> Basis:
    """A basis with these posteriors (N, K) and labels (N, R), -1 = none, without any fitting."""
    posterior = np.asarray(posterior, dtype=np.float64)
    classes = range(posterior.shape[1]) if classes is None else classes
    ann = Annotations.from_matrix(np.asarray(said), annotators=annotators, classes=range(posterior.shape[1]))
    ann = Annotations(ann.item, ann.annotator, ann.label, ann.items, ann.annotators, np.array(list(classes)))
    clf = CrowdClassifier("identity")
    clf.annotations_, clf.classes_, clf.learner_, clf.settings_ = ann, ann.classes, "labeling-search", {"scale": 1.0}
    clf.encoder_ = clf._choose_encoder(np.zeros((1, 2)))
    clf._known, clf._without_gold = SideInformation.nothing(len(posterior)), posterior[:0]
    clf._model = SimpleNamespace(responsibilities=torch.from_numpy(posterior))
    x = np.arange(2 * len(posterior)).reshape(-1, 2) if embeddings is None else embeddings
    return Basis.of_classifier(clf, torch.as_tensor(x, dtype=torch.float32))


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


def fitted_crowd(confusion, n_items, seed=0, per_item=None, spread=0.5, gold=None) -> Basis:
    said, truth = crowd(confusion, n_items, seed, per_item)
    K = np.shape(confusion)[1]
    x = 3 * np.eye(K)[truth] + spread * np.random.default_rng(seed).normal(size=(n_items, K))
    clf = CrowdClassifier("identity")
    embeddings = clf.embed(x.astype(np.float32))
    return Basis.of_classifier(clf.fit_embeddings(embeddings, said, gold=gold), embeddings)


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
    found = facts.gather_facts(basis, Run(**about))
    html = render(found)
    return found, Page(html), html
