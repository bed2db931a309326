"""Send random requests to `crowdshot serve`, made from its OpenAPI document: none may be answered with 500.

    python -m venv .venv-schemathesis && .venv-schemathesis/bin/pip install schemathesis
    python integration/random_requests.py --schemathesis .venv-schemathesis/bin/schemathesis [--requests 24000]

Schemathesis, in an environment of its own, sends the requests in rounds with different seeds; half of them are wrong on
purpose. Responses must match the document. Afterwards the service must still fit, and its log must have no traceback.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

EACH = 150  # requests per operation and round; generating many more takes disproportionately long
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def write_problem(folder):
    """Write forty points in two clusters, and labels of three people for thirty of them."""
    said = [f"i{i},{who},{'cat' if i % 2 else 'dog'}" for i in range(30) for who in ("ann", "bob", "cy")]
    (folder / "labels.csv").write_text("\n".join(["item,annotator,label", *said]))
    (folder / "features.csv").write_text("\n".join(["item,x,y", *(f"i{i},{i % 2},{i % 5}" for i in range(40))]))


def listening(log, process):
    while process.poll() is None:
        found = re.search(r"listening at (http://\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.2)
    sys.exit(log.read_text())


def metric(address, name):
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        return float(re.search(rf"^crowdshot_{name} (\S+)$", answer.read().decode(), re.M)[1])


def one_round(schemathesis, address, seed, folder):
    """Return (number of requests, whether some responses were wrong)."""
    command = [schemathesis, "run", f"{address}/openapi.json", "--checks", CHECKS, "--phases", "coverage,fuzzing"]
    command += ["-n", str(EACH), "--seed", str(seed), "--workers", "4", "--no-color", "--warnings", "off"]
    command += ["--suppress-health-check", "all", "--continue-on-failure"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"([\d,]+) generated", done.stdout)
    if found is None:
        sys.exit(done.stdout[-3000:])
    if done.returncode:
        print(done.stdout)
    return int(found[1].replace(",", "")), bool(done.returncode)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemathesis", required=True)
    parser.add_argument("--requests", type=int, default=24_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = Path(options.schemathesis).absolute()  # it runs in another folder
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_problem(folder)
        log = folder / "log.txt"
        given = ["--labels", folder / "labels.csv", "--features", folder / "features.csv", "--data", folder / "live"]
        command = [sys.executable, "-m", "crowdshot", "serve", *map(str, given), "--port", "0"]
        with log.open("w") as file:
            process = subprocess.Popen(command, stderr=file)
        try:
            address = listening(log, process)
            made, failures, seed = 0, 0, options.seed
            while made < options.requests:
                number, failed_round = one_round(program, address, seed, folder)
                made, failures, seed = made + number, failures + failed_round, seed + 1
                print(f"{made:,} requests", flush=True)
            before = metric(address, "version")
            label = b'{"labels": [{"item": "i0", "annotator": "last", "label": "cat"}]}'
            request = urllib.request.Request(f"{address}/v1/labels", label, {"content-type": "application/json"})
            urllib.request.urlopen(request).close()
            while metric(address, "version") == before and metric(address, "fit_failures_total") == 0:
                time.sleep(0.5)
            failed = metric(address, "fit_failures_total")
        finally:
            process.terminate()
            process.wait()
        traces = log.read_text().count("Traceback")
    print(f"rounds with failures: {failures}; failed fits: {failed:g}; tracebacks in the log: {traces}")
    return int(bool(failures or failed or traces))


if __name__ == "__main__":
    sys.exit(main())
