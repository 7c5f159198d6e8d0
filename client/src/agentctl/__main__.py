"""`python -m agentctl`."""

import sys

from agentctl import main

sys.exit(main())
