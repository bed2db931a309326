"""Label texts in three languages with four annotators, and choose the next questions, on the command line."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

out = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
out.mkdir(parents=True, exist_ok=True)

TEXTS = {  # invented: complaints about a delivery, questions about a bill
    "delivery": [
        "My parcel never came.",
        "The parcel is late again.",
        "Where is my parcel, please?",
        "Das Paket kam nie an.",
        "Wo bleibt das Paket?",
        "Mi paquete no llegó.",
        "¿Dónde está mi paquete?",
    ],
    "bill": [
        "Why was I charged twice?",
        "The sum I was charged is wrong.",
        "Please explain this charge.",
        "Warum wurde doppelt abgebucht?",
        "Der Betrag ist falsch.",
        "¿Por qué me cobraron dos veces?",
        "El importe no es correcto.",
    ],
}
items = [(text, label) for label, some in TEXTS.items() for text in some]
texts = pd.DataFrame([{"item": f"t{i}", "text": text} for i, (text, _) in enumerate(items)])
rows = [  # Gus always gives the same label, and nobody labels everything
    {"item": f"t{i}", "annotator": annotator, "label": "delivery" if annotator == "Gus" else true}
    for i, (_, true) in enumerate(items)
    for number, annotator in enumerate(("Ada", "Ben", "Cleo", "Gus"))
    if (i + number) % 4
]
texts.to_csv(out / "texts.csv", index=False)
pd.DataFrame(rows).to_csv(out / "labels.csv", index=False)


def crowdshot(*words):
    print("$ crowdshot", *words)
    subprocess.run([sys.executable, "-m", "crowdshot", *map(str, words)], check=True, cwd=out)


crowdshot("adapt", "labels.csv", "--texts", "texts.csv", "--out", "results", "--overwrite")
crowdshot("next", "labels.csv", "--texts", "texts.csv", "--budget", 2, "--out", "questions.csv")
print(pd.read_csv(out / "questions.csv").to_string(index=False))
print(f"open {out / 'results' / 'report.html'} in a browser")
