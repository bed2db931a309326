"""Update the tables of docs/research/inference.md from the results of benchmarks/networks.py and benchmarks/world.py.

    python benchmarks/inference_page.py

The text between the comments <!-- name --> and <!-- end --> is replaced.
"""

import re
from pathlib import Path

import pandas as pd
from networks import TWICE

PAGE = Path("docs/research/inference.md")
SCORES = Path("results/inference/scores.csv")
VARIANTS = Path("results/inference/variants.md")
QUANTILES = Path("results/world/quantiles.csv")
COLUMNS = ("accuracy", "log_loss", "over", "accepted", "right")


def means(table: pd.DataFrame) -> str:
    """Average over the crowds, full and thinned."""
    lines = ["| | right | log-loss | over | accepted → right |", "|---|---|---|---|---|"]
    for title, part in (("full", table[table["labels"] == "all"]), ("thinned", table[table["labels"] != "all"])):
        for variant, name in (("vote", "vote"), ("shipped", "**learned**")):
            m = part[part["variant"] == variant][list(COLUMNS)].mean()
            cases = (part["variant"] == variant).sum()
            lines.append(
                f"| {title} ({cases}): {name} | {m['accuracy']:.3f} | {m['log_loss']:.3f} | {m['over']:+.3f} | "
                f"{m['accepted']:.2f} → {m['right']:.3f} |"
            )
    return "\n".join(lines)


def crowds(table: pd.DataFrame) -> str:
    """Return a row for each crowd with all its labels."""
    full = table[table["labels"] == "all"].set_index(["crowd", "variant"])
    lines = [
        "| Crowd | items | right: vote | learned | log-loss: vote | learned | over | accepted → right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for crowd in sorted(table["crowd"].unique(), key=str.lower):
        vote, ours = full.loc[(crowd, "vote")], full.loc[(crowd, "shipped")]
        right = "–" if pd.isna(ours["right"]) else f"{ours['right']:.3f}"
        lines.append(
            f"| {crowd} | {int(ours['items']):,} | {vote['accuracy']:.3f} | {ours['accuracy']:.3f} | "
            f"{vote['log_loss']:.3f} | {ours['log_loss']:.3f} | {ours['over']:+.3f}"
            f" | {ours['accepted']:.2f} → {right} |"
        )
    return "\n".join(lines)


def below(table: pd.DataFrame) -> str:
    """Return the cases with an accuracy more than 0.01 below the vote."""
    wide = table.pivot(index=["crowd", "labels"], columns="variant", values="accuracy")
    ahead = wide["shipped"] - wide["vote"]
    worse = ahead[ahead < -0.01]
    found: dict[str, list[str]] = {}
    for (crowd, labels), value in worse.items():
        case = "all labels" if labels == "all" else f"{labels} an item"
        found.setdefault(crowd, []).append(f"{case} {value:.3f}".replace("-", "−"))
    cases = "; ".join(f"{crowd} ({', '.join(parts)})" for crowd, parts in found.items())
    losses = table[table["labels"] == "all"].pivot(index="crowd", columns="variant", values="log_loss")
    higher = ", ".join(losses.index[losses["shipped"] > losses["vote"]])
    return (
        f"It has more than 0.01 less right than the vote in {len(worse)} of {len(ahead)} cases: {cases}.\n"
        f"Of full crowds its log-loss is above the vote's in {higher}."
    )


def medians(table: pd.DataFrame) -> str:
    table = table.set_index("statistic")

    def both(name: str) -> tuple[float, float]:
        return table.loc[name, "world 0.5"], table.loc[name, "real 0.5"]

    (right, real_right), (vote, real_vote), (items, real_items) = map(both, ("right", "vote right", "items"))
    return (
        f"The world has smaller and harder crowds than the real ones: by the medians {items:,.0f} items for "
        f"{real_items:,.0f},\n{right:.2f} of the labels right for {real_right:.2f}, and {vote:.2f} of the votes for "
        f"{real_vote:.2f}."
    )


def main() -> None:
    scores = pd.read_csv(SCORES, dtype={"labels": str})
    scores = scores[(scores["crowd"] != TWICE) & scores["variant"].isin(["vote", "shipped"])]
    text = PAGE.read_text()
    for name, content in {
        "means": means(scores),
        "crowds": crowds(scores),
        "below": below(scores),
        "variants": VARIANTS.read_text().strip(),
        "medians": medians(pd.read_csv(QUANTILES)),
    }.items():
        pattern = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
        assert text.count(f"<!-- {name} -->") == 1, name
        text = pattern.sub(lambda _, content=content: f"\n{content}\n", text, count=1)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
