"""An attack on Diptych as a tool: kills, full disks, flipped bits, fuzzed files (`make attack`)."""
