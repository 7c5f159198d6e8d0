"""The reference agent: a small agent server, the default of a sandbox.

python -m reference_agent [--host 127.0.0.1] [--port 8000]

With a model (`LLM_MODEL`, or `agent.llm` of a start request) it thinks. Without a model it executes the `run: CMD`
lines of messages. From the outside in: `__main__.py` is the program, `api.py` the HTTP API, `conversation.py` the
lifecycle and the pending actions, `log.py` the event log, `events.py` the events. `services.py`, `commands.py` and
`tunnels.py` serve a sandbox's files, commands, terminals and ports.

A `Mind` (`mind.py`) decides the agent's next step; replace it to write your own agent. `tools.py` parses the calls,
`toolbox.py` executes them, `delegation.py` gives subtasks to a helper.
"""
