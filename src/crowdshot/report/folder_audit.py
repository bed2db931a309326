"""Draw a sample of the accepted items of a results folder, and evaluate it when a person has checked it.

``audit.json`` in the folder describes the sample: its strata, the drawn items and their labels at that time, and later
the answers. The file to fill in has neither labels nor confidences, because they would influence the person who checks.

The last functions describe in sentences how far accepted labels can be trusted.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import counted, digits, listing, percent, plural, spread
from crowdshot.io.atomic import check_table, replacing, write_exactly, write_file
from crowdshot.io.cells import Ids, fold
from crowdshot.io.json_text import parse_json
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels import gold_labels
from crowdshot.labels.auditing import CERTAIN, Audit, Checked, Stratum, correct, draw, evaluate
from crowdshot.labels.columns import Columns
from crowdshot.labels.consensus import Floats, Unanimous, agreeing_labels, is_accepted
from crowdshot.labels.spelling import parts
from crowdshot.report.page.saved_report import RUN, check_results, read_run

CONSENSUS, AUDIT = "consensus.csv", "audit.json"
TRUTH, TEXT = "truth", "text"
FORMAT = 1
CORRECTED = ("corrected", "corrected_low", "corrected_high")  # columns that an audit adds to consensus.csv


@dataclass(frozen=True)
class Results:
    """The consensus of a results folder; ``known`` (N,) are items whose true label is known."""

    folder: Path
    columns: Columns
    items: Ids
    labels: list[str]
    confidence: Floats
    known: NDArray[np.bool_]
    classes: list[str]
    several: bool
    texts: Sequence[str]
    unanimous: list[Unanimous]

    @property
    def fingerprint(self) -> str:
        """Identify the items, labels and confidences."""
        rows = zip(self.items, self.labels, self.confidence, strict=True)
        text = "\n".join(f"{item}\t{label}\t{p:.6g}" for item, label, p in rows)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def n_known(self, threshold: float) -> int:
        """Return the number of accepted items whose true label is known."""
        return int((is_accepted(self.confidence, threshold) & self.known).sum())


def read_results(folder: Path) -> Results:
    """Read the consensus of a results folder; folders of earlier versions have no run.json."""
    check_results(folder, CONSENSUS)
    table = read_table(folder / CONSENSUS)
    missing = [name for name in ("confidence", "n_labels", "agreement") if name not in table.header[2:]]
    if missing:
        message = f"has no column {missing[0]!r}"
        raise CrowdshotError(message, where=table.name, found=table.header, expected="a consensus.csv of crowdshot")
    confidence, n_labels, agreement = (
        table.numbers(table.header.index(name, 2)) for name in ("confidence", "n_labels", "agreement")
    )
    items, labels = one_each(table, 0), [str(label) for label in table.text(1)]
    saved = read_run(folder) if (folder / RUN).is_file() else None
    known = set() if saved is None else set(saved.known)
    texts = [] if saved is None else saved.run.texts
    return Results(
        folder,
        Columns(table.header[0], "annotator", table.header[1]),
        items,
        labels,
        confidence,
        np.array([str(item) in known for item in items], dtype=bool),
        list(dict.fromkeys(labels)) if saved is None else saved.classes,
        saved is not None and saved.several,
        texts if len(texts) == len(items) else [],
        agreeing_labels(np.nan_to_num(n_labels).astype(np.int64), agreement >= 1, confidence),
    )


# ---- drawing ----


@dataclass(frozen=True)
class Drawn:
    """A sample that was drawn: how many of the accepted items it has, and how many were asked for.

    ``accepted`` does not count the ``known`` items, which are accepted too, but whose true label is known already.
    """

    sampled: int
    asked: int
    accepted: int
    threshold: float
    strata: list[Stratum]
    files: list[Path]
    known: int = 0


def draw_audit(
    folder: Path, size: int, out: Path, threshold: float, seed: int = 0, show: bool = False, overwrite: bool = False
) -> Drawn:
    """Draw a sample, write the table to fill in to ``out`` and the description of the sample to the folder.

    Parameters
    ----------
    folder : Path
        The results.
    size : int
        The number of items.
    out : Path
        The table to fill in.
    threshold : float
        Least confidence of an accepted item.
    seed : int
    show : bool
        Whether the table has the consensus labels.
    overwrite : bool
        Whether ``out``, and another sample that was drawn earlier, may be replaced. A larger sample with the same seed
        contains the earlier one and its answers, and replaces it without asking.
    """
    found = read_results(folder)
    check_table(out, folder / CONSENSUS)
    if out.exists() and not overwrite:
        raise CrowdshotError(
            "exists already, and may have answers", where=out, hint=Use("to replace it", overwrite=True)
        )
    earlier = _read(folder) if not overwrite and (folder / AUDIT).is_file() else None
    n_accepted = int((is_accepted(found.confidence, threshold) & ~found.known).sum())
    if not n_accepted:
        raise CrowdshotError(
            f"has no accepted item to check. {why_none_accepted(found.unanimous, threshold)}",
            where=folder,
            hint=Use("to check items with a lower confidence", threshold=0.8),
        )
    sample = draw(found.items, found.labels, found.confidence, size, threshold, seed, found.known)
    strata, rows = sample.strata, sample.rows
    columns: dict[str, Any] = {found.columns.item: found.items[rows]}
    if found.texts:
        columns[TEXT if found.columns.item != TEXT else "content"] = [found.texts[row] for row in rows]
    if show:
        columns[found.columns.label] = [found.labels[row] for row in rows]
    drawn = [
        Drawing(str(found.items[row]), int(stratum), found.labels[row], float(found.confidence[row]))
        for row, stratum in zip(rows.tolist(), sample.stratum.tolist(), strict=True)
    ]
    truths = {} if earlier is None else earlier.truths
    columns[TRUTH] = [truths.get(each.item, "") for each in drawn]
    description = Description(found.fingerprint, threshold, seed, strata, drawn, truths)
    if earlier is not None and (earlier.fingerprint != found.fingerprint or not contains(drawn, earlier.drawn)):
        raise CrowdshotError(
            f"describes an earlier sample of {counted(len(earlier.drawn), 'items')}, which somebody may be checking",
            where=folder / AUDIT,
            expected="a larger sample of the same results, with the same seed and threshold",
            hint=Use("to replace it", overwrite=True),
        )
    _write(folder, description)
    write_file(out, pd.DataFrame(columns))
    return Drawn(len(rows), size, n_accepted, threshold, strata, [out, folder / AUDIT], found.n_known(threshold))


def contains(drawn: Sequence[Drawing], earlier: Sequence[Drawing]) -> bool:
    """Return whether a sample contains an earlier one; the items may be in other strata."""
    found = {(each.item, each.label, each.confidence) for each in drawn}
    return all((each.item, each.label, each.confidence) in found for each in earlier)


# ---- audit.json ----


class Drawing(NamedTuple):
    """A drawn item with its stratum, and its label and confidence at that time."""

    item: str
    stratum: int
    label: str
    confidence: float


class Description(NamedTuple):
    """The content of audit.json; ``truths`` are the answers, {item: label}, empty before they are evaluated."""

    fingerprint: str
    threshold: float
    seed: int
    strata: list[Stratum]
    drawn: list[Drawing]
    truths: dict[str, str]
    promise: float | None = None


def _write(folder: Path, found: Description) -> None:
    strata = [[None if end == np.inf else end for end in stratum] for stratum in found.strata]
    content = {**found._asdict(), "format": FORMAT, "strata": strata}
    with replacing(folder / AUDIT) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")


def _read(folder: Path) -> Description:
    path = folder / AUDIT
    check_results(folder)
    if not path.is_file():
        hint = "Draw a sample first: `crowdshot audit FOLDER --sample 50`."
        raise CrowdshotError(
            f"has no {AUDIT}", where=folder, expected="a sample that `crowdshot audit` drew", hint=hint
        )
    content = parse_json(path.read_text("utf-8", errors="replace"), str(path))
    try:
        if content["format"] > FORMAT:
            raise ValueError(f"format {content['format']} of a newer crowdshot")
        strata = [
            Stratum(float(low), np.inf if high is None else float(high), int(items), int(drawn), float(confidence))
            for low, high, items, drawn, confidence in content["strata"]
        ]
        drawn = [Drawing(str(item), int(s), str(label), float(p)) for item, s, label, p in content["drawn"]]
        if not all(0 <= each.stratum < len(strata) for each in drawn):
            raise ValueError("an item of no stratum")
        if not all(map(_is_possible, strata)) or not all(0 <= each.confidence <= 1 for each in drawn):
            raise ValueError("impossible numbers")
        truths = {str(item): str(truth) for item, truth in content["truths"].items()}
        promise = None if content["promise"] is None else float(content["promise"])
        numbers = float(content["threshold"]), int(content["seed"])
        return Description(str(content["fingerprint"]), *numbers, strata, drawn, truths, promise)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        hint = "Draw a sample again: `crowdshot audit FOLDER --sample 50 --overwrite`."
        raise CrowdshotError(f"is damaged ({type(error).__name__}: {error})", where=path, hint=hint) from None


def _is_possible(stratum: Stratum) -> bool:
    is_range = 0 <= stratum.low < stratum.high and 0 <= stratum.confidence <= 1
    return is_range and 0 <= stratum.drawn <= stratum.items and stratum.items > 0


# ---- evaluating ----


def evaluate_audit(folder: Path, checked: Path, promise: float | None = None, other_classes: bool = False) -> Audit:
    """Evaluate a checked sample, and keep its answers in the folder.

    Parameters
    ----------
    folder : Path
        The results.
    checked : Path
        The table that was filled in.
    promise : float, optional
        The accuracy that accepted labels should have; by default the threshold.
    other_classes : bool
        Whether true labels may be no class of the results; they count as mistakes.
    """
    found, description = read_results(folder), _read(folder)
    answers = gold_labels.read(checked, found.columns)
    drawn = {each.item for each in description.drawn}
    others = [item for item in answers if item not in drawn]
    if not answers:
        message = f"has no answer in the column {TRUTH!r}"
        raise CrowdshotError(message, where=checked, expected="the true label of some items")
    if len(others) == len(answers):
        message = f"has no item of the sample; its first item is {others[0]!r}"
        expected = f"items such as {listing(sorted(drawn), 1)}"
        raise CrowdshotError(message, where=checked, found=others[0], expected=expected)
    truths = {item: truth for item, truth in answers.items() if item in drawn}
    if len(truths) < min(len(others), len(drawn)):  # the common items of two samples may have one confidence only
        message = f"answers {len(truths):,} of the {len(drawn):,} items of the sample, and {len(others):,} others"
        expected = "the table that was drawn last"
        hint = "If it is of an earlier sample, draw that one again, with the same size, threshold and seed."
        raise CrowdshotError(message, where=checked, found=others[:10], expected=expected, hint=hint)
    truths = _as_classes(truths, found, checked, other_classes)
    description = description._replace(truths=truths, promise=promise)
    _write(folder, description)
    return _audit(found, description, others)


def read_audit(folder: Path) -> Audit | None:
    """Return the audit of a folder; None if there is none, it has no answers, or it is about earlier results."""
    if not (folder / AUDIT).is_file():
        return None
    found, description = read_results(folder), _read(folder)
    if not description.truths or description.fingerprint != found.fingerprint:
        return None
    return _audit(found, description, [])


def _audit(found: Results, description: Description, others: Sequence[str]) -> Audit:
    checked = [
        Checked(
            each.item,
            each.stratum,
            each.label,
            description.truths[each.item],
            each.confidence,
            _key(each.label, found.several) == _key(description.truths[each.item], found.several),
        )
        for each in description.drawn
        if each.item in description.truths
    ]
    audit = evaluate(description.strata, checked, description.promise or description.threshold)
    outdated = description.fingerprint != found.fingerprint
    return replace(
        audit,
        sampled=len(description.drawn),
        others=list(others),
        outdated=outdated,
        known=0 if outdated else found.n_known(description.threshold),
    )


def _key(label: str, several: bool) -> frozenset[str] | str:
    return frozenset(parts(label)) if several else label


def _as_classes(truths: Mapping[str, str], found: Results, source: Path, allow_others: bool) -> dict[str, str]:
    """Return the answers with the spelling of the classes; refuse labels that are no class unless they are allowed."""
    singles = {part for name in found.classes for part in parts(name)} if found.several else set(found.classes)
    folded: dict[str, set[str]] = {}
    for name in singles:
        folded.setdefault(fold(name), set()).add(name)

    def spelled(word: str) -> str:
        alike = folded.get(fold(word), set())
        return word if word in singles or len(alike) != 1 else next(iter(alike))

    def as_class(truth: str) -> str:
        return ";".join(spelled(part) for part in parts(truth)) if found.several else spelled(truth)

    out = {item: as_class(truth) for item, truth in truths.items()}
    words = [word for truth in out.values() for word in (parts(truth) if found.several else [truth])]
    strange = sorted(set(words) - singles)
    if strange and not allow_others:
        similar = difflib.get_close_matches(strange[0], sorted(singles), 1)
        meant = f" ({strange[0]!r} may be {similar[0]!r})" if similar else ""
        raise CrowdshotError(
            f"has {counted(len(strange), 'true labels')} that {'is' if len(strange) == 1 else 'are'} no class:"
            f" {listing(strange, 5)}{meant}",
            where=source,
            found=strange[:10],
            expected=f"one of {listing(sorted(singles), 10)}",
            hint=Use("to count them as mistakes", other_classes=True),
        )
    return out


# ---- corrected confidences ----


def write_corrected(folder: Path, audit: Audit) -> Path:
    """Add the corrected confidence of accepted labels, with its 90 % interval, to consensus.csv."""
    found = read_results(folder)
    path = folder / CONSENSUS
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if len(table) != len(found.items):
        raise CrowdshotError("has blank lines", where=path, expected="the table as crowdshot wrote it")
    band = correct(found.confidence, audit.confidences, audit.right)
    within = is_accepted(found.confidence, audit.threshold) & ~found.known
    for name, values in zip(CORRECTED, band, strict=True):
        table[name] = [digits(value) if inside else "" for value, inside in zip(values, within, strict=True)]
    with replacing(path) as temporary:
        write_exactly(table, temporary)
    return path


def describe_audit(audit: Audit) -> list[str]:
    """Return sentences about the accuracy of the accepted labels, their confidence, and the promised accuracy."""
    all_ = audit.overall
    others = "other " if audit.known else ""
    return [
        *([split_accepted(all_.items, audit.known) + "."] if audit.known else []),
        f"{percent(all_.accuracy)} of the {others}{plural(all_.items, 'label')} with a confidence of"
        f" {percent(audit.threshold)} or more are right (90 % interval"
        f" {spread(all_.low, all_.high)}), estimated from {plural(all_.checked, 'checked item')}.",
        *map(_unchecked, audit.unchecked),
        _confidence(audit),
        recommend_threshold(audit),
    ]


def split_accepted(unknown: int, known: int) -> str:
    """Return how many items are accepted, and how many of them are known.

    >>> split_accepted(15, 8)
    '23 items are accepted, 8 of them with a known true label'
    """
    verb = "item is accepted" if unknown + known == 1 else "items are accepted"
    return f"{unknown + known:,} {verb}, {known:,} of them with a known true label"


def _unchecked(stratum: Stratum) -> str:
    end = " or more" if stratum.high == np.inf else f" to {percent(stratum.high)}"
    which = f"{plural(stratum.items, 'label')} with a confidence of {percent(stratum.low)}{end}"
    return (
        f"None of the {which} was checked: their accuracy is assumed to be that of the nearest checked labels, which"
        " may be wrong."
    )


def _confidence(audit: Audit) -> str:
    all_ = audit.overall
    claimed = f"their mean confidence is {percent(all_.confidence)}"
    if all_.confidence > all_.high:
        return f"The confidence is too high: {claimed}."
    if all_.confidence < all_.low:
        return f"The confidence is too low: {claimed}."
    return f"This agrees with their confidence: {claimed}."


def recommend_threshold(audit: Audit) -> str:
    """Return which threshold keeps the promised accuracy."""
    kept, promise, certain = audit.keeps, percent(audit.promise), percent(CERTAIN)
    if kept is not None:
        which = "All these labels keep" if kept is audit.overall else f"A threshold of {percent(kept.threshold)} keeps"
        these = plural(kept.items, "label")
        at_least = f"at least {100 * kept.at_least:.1f} % of these {these} are right"
        return f"{which} the promise of {promise}: {at_least} (lower bound, {certain} certain)."
    best = max(audit.estimates, key=lambda each: each.at_least)
    if all(each.high < audit.promise for each in audit.estimates):
        advice = "Have the accepted items labelled by more people, or review them yourself."
        return f"No threshold keeps the promise of {promise}. {advice}"
    shown = f"the best lower bound is {100 * best.at_least:.1f} %, at a threshold of {percent(best.threshold)}"
    return f"No threshold is shown to keep the promise of {promise}: {shown}. Check more items for a narrower interval."


COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def why_none_accepted(unanimous: Sequence[Unanimous], threshold: float) -> str:
    """Return why no item is accepted: the confidence that agreeing labels reach.

    >>> why_none_accepted([Unanimous(2, 30, 0.81), Unanimous(3, 9, 0.88)], 0.9)
    'No item is accepted: three agreeing labels, the most on an item, reach 88\xa0% here, and 90\xa0% is needed.'
    """
    if not unanimous:
        return f"No item is accepted: on no item do all labels agree, and {percent(threshold)} is needed."
    n, _, confidence = unanimous[-1]
    number = COUNTS[n] if n < len(COUNTS) else f"{n:,}"
    labels = "one label reaches" if n == 1 else f"{number} agreeing labels, the most on an item, reach"
    return f"No item is accepted: {labels} {percent(confidence)} here, and {percent(threshold)} is needed."
