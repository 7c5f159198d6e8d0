"""`python -m agent_server_client.cli`."""

import sys

from agent_server_client.cli import main

sys.exit(main())
