"""Fails if a test against the authors' code was skipped, or none ran."""

import sys
from xml.etree import ElementTree

cases = [c for c in ElementTree.parse(sys.argv[1]).iter("testcase") if ".parity." in f".{c.get('classname', '')}."]
skipped = [c.get("name") for c in cases if c.find("skipped") is not None]
if not cases or skipped:
    sys.exit(f"{len(cases)} parity tests ran; skipped: {', '.join(map(str, skipped)) or 'none'}")
print(f"{len(cases)} parity tests ran, none was skipped")
