"""Fail if a test against the authors' code was skipped, or if none ran: those of tests/parity and tests/examples."""

import re
import sys
from xml.etree import ElementTree

PARITY = re.compile(r"(^|[._])parity([._]|$)")  # tests.parity.test_tden, tests.examples.test_uniter_parity
cases = [c for c in ElementTree.parse(sys.argv[1]).iter("testcase") if PARITY.search(c.get("classname", ""))]
skipped = [c.get("name") for c in cases if c.find("skipped") is not None]
if not cases or skipped:
    sys.exit(f"{len(cases)} parity tests ran; skipped: {', '.join(map(str, skipped)) or 'none'}")
print(f"{len(cases)} parity tests ran, none was skipped")
