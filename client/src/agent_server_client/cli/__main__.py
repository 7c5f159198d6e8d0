"""`python -m agent_server_client.cli`."""

from agent_server_client.cli import main

main()
