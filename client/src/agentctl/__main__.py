"""`python -m agentctl`."""

from agentctl import main

main()
