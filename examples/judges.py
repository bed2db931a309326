"""Combine language models as judges with three people who read a part of the answers (docs/judges.md).

The log of verdicts is simulated: three models of one family make the same mistakes, a fourth model is independent.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

out = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
out.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(0)

safe = rng.random(200) < 0.6  # the truth, which is unknown in practice
fooled = rng.random(200) < 0.3  # answers about which the whole family is wrong
WORDS = np.array(["unsafe", "safe"])


def verdicts(right):
    return WORDS[np.where(right, safe, ~safe).astype(int)]


judges = {
    **{f"family-{size}": verdicts(~fooled ^ (rng.random(200) < 0.05)) for size in ("s", "m", "l")},
    "other": verdicts(rng.random(200) < 0.8),
}
people = {
    name: np.where(rng.random(200) < 0.7, verdicts(rng.random(200) < 0.85), "") for name in ("Ada", "Ben", "Cleo")
}

log = [{"judge": j, "item": i, "verdict": f"… [[{v}]]"} for j, all_of in judges.items() for i, v in enumerate(all_of)]
log.append({"judge": "other", "item": 200, "verdict": "I'm sorry, but I can't judge this."})  # refusals are not labels
(out / "verdicts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in log))
rows = [{"item": i, "annotator": p, "label": v} for p, all_of in people.items() for i, v in enumerate(all_of) if v]
pd.DataFrame(rows).to_csv(out / "people.csv", index=False)

pd.DataFrame([{"annotator": f"family-{size}", "name": "family"} for size in ("s", "m", "l")]).to_csv(
    out / "names.csv", index=False
)
truth = pd.Series(WORDS[safe.astype(int)])


def right(*options):
    command = ["aggregate", "verdicts.jsonl", "people.csv", "--out", "consensus.csv", "--annotators", "judges.csv"]
    print("$ crowdshot", *command, *options)
    subprocess.run([sys.executable, "-m", "crowdshot", *command, *options], check=True, cwd=out, capture_output=True)
    consensus = pd.read_csv(out / "consensus.csv").set_index("item")
    return (consensus["verdict"].reindex(truth.index) == truth).mean()


votes = pd.DataFrame({**judges, **people}).replace("", None).mode(axis=1)[0]
print(f"right by vote: {(votes == truth).mean():.2f}")
print(f"right: {right():.2f}: with the family as three independent annotators")
print(f"right: {right('--names', 'names.csv'):.2f}: the family as one annotator")
print(pd.read_csv(out / "judges.csv").iloc[:, :3].round(2).to_string(index=False))
