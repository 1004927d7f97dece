"""Read a junit report of pytest: name what failed and how each is run alone; fail if tests against the authors' code
(tests/parity and tests/examples) were skipped, or are fewer than .ci/parity_tests says: of the committed sets, and with
those that DIPTYCH_PARITY names.

python .ci/report.py REPORT [--failed]    --failed: only name what failed
"""

import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

PARITY = re.compile(r"(^|[._])parity([._]|$)")  # tests.parity.test_tden, tests.examples.test_uniter_parity
KNOWN = Path(__file__).with_name("parity_tests")
Case = ElementTree.Element


def name(case: Case) -> str:
    """As pytest takes it: tests/parity/test_tden.py::test_keys[VQA]."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def failed(cases: list[Case]) -> list[str]:
    """Lines about the tests that failed."""
    names = sorted({name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None})
    return [f"{len(names)} failed; each alone:", *(f"    uv run --group dev pytest -n 0 '{one}'" for one in names)]


def parity(cases: list[Case]) -> str | None:
    """What is wrong with the tests against the authors' code."""
    ours = [case for case in cases if PARITY.search(case.get("classname", ""))]
    skipped = [name(case) for case in ours if case.find("skipped") is not None]
    known = dict(line.split() for line in KNOWN.read_text().splitlines())
    least = int(known["given" if "DIPTYCH_PARITY" in os.environ else "committed"])
    print(f"{len(ours)} parity tests, of which {len(skipped)} were skipped; at least {least} are wanted")
    if skipped:
        return f"skipped: {', '.join(skipped)}"
    return f"fewer parity tests than {KNOWN} says" if len(ours) < least else None


if __name__ == "__main__":
    found = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
    if "--failed" in sys.argv:
        print("\n".join(failed(found)))
    else:
        sys.exit(parity(found))
