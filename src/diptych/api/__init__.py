"""The public Python API: what `import diptych` offers. The command line calls the same functions."""

import sys

from diptych.runtime.memory import wait_briefly

if "torch" not in sys.modules:  # OpenMP reads its wait settings only once: when torch is loaded
    wait_briefly()
