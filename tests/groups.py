"""The tests beside the quick ones, group by group, and one report: `make test-all`, or `python -m tests.groups NAME`.

A group that fails keeps no other from running. The exit status is 1 if any test failed or any group could not run.
"""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from tests.report import GROUPS

#: groups whose tests mostly wait for what they start: more of them at once than cores
WAITING = ("process", "faults", "cluster", "browser", "docker", "kubernetes")


def command(name: str, results: Path) -> list[str]:
    if name == "interop":
        return ["tests/interop/run.sh", f"--junitxml={results}"]
    workers = "4" if name in WAITING else "auto"
    options = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder", "--ignore", "tests/interop"]
    return [sys.executable, "-m", "pytest", *options, "--group", name, f"--junitxml={results}"]


def outcome(results: Path, status: int) -> tuple[str, list[str]]:
    """What a group found, in a line; and its failures, each by its id and the first line of what it said.

    status: with which its run ended; a run that was cut off has failed even where no test did.
    """
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failures = []
    for case in ElementTree.parse(results).iter("testcase") if results.exists() else ():
        found = {child.tag: child for child in case}
        state = next((tag for tag in ("failure", "error", "skipped") if tag in found), "passed")
        counts[{"failure": "failed", "error": "failed"}.get(state, state)] += 1
        said = found[state].get("message", "").partition("\n")[0][:160] if state != "passed" else ""
        if state == "skipped":
            reasons[said.removeprefix("Skipped: ")] += 1
        elif state != "passed":
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            failures.append(f"{name}: {said}")
    if status and not failures:
        failures.append(f"the run ended with status {status}")
    words = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "ran no test"
    why = "".join(f"\n      {number:4} skipped: {reason}" for reason, number in reasons.most_common())
    return words + why, failures


def main(names: list[str]) -> int:
    lines, failures = [], []
    for name in names:
        results = Path(".times") / f"{name}.xml"
        results.parent.mkdir(exist_ok=True)
        results.unlink(missing_ok=True)
        print(f"\n== {name} ==", flush=True)
        began = time.monotonic()
        status = subprocess.run(command(name, results)).returncode
        words, failed = outcome(results, status)
        lines.append(f"  {name:<11}{time.monotonic() - began:6.0f} s  {words}")
        failures += failed
    print("\n== All groups ==", *lines, sep="\n")
    if failures:
        print("\nFailed:", *(f"  {one}" for one in failures), sep="\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [*GROUPS]))
