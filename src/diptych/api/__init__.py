"""The public Python API: what `import diptych` offers. The command line calls the same functions."""

import sys

from diptych.runtime.memory import wait_briefly

if "torch" not in sys.modules:  # later it has no effect: OpenMP reads its settings once
    wait_briefly()
