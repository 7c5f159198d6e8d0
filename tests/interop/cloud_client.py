"""The published OpenHandsCloudWorkspace as a client of this server: run by an interpreter that has openhands-workspace.

Arguments: the URL of the server, a key, the URL of the scripted model. Exits 0 when every step went as it must.
"""

import sys

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.terminal import TerminalTool  # noqa: F401 - registers the tool
from openhands.workspace import OpenHandsCloudWorkspace
from pydantic import SecretStr

URL, KEY, MODEL = sys.argv[1:]


def step(name: str, got: object, wanted: object) -> None:
    print(f"{'ok  ' if got == wanted else 'FAIL'}  {name}: {got}", flush=True)
    if got != wanted:
        sys.exit(f"wanted {wanted}")


with OpenHandsCloudWorkspace(cloud_api_url=URL, cloud_api_key=KEY, working_dir="/tmp") as workspace:
    step("the agent server is alive", workspace.alive, True)
    found = workspace.execute_command("echo $((6 * 7))")
    step("a command", (found.exit_code, found.stdout.strip()), (0, "42"))

    llm = workspace.get_llm(usage_id="agent")
    key = llm.api_key.get_secret_value() if isinstance(llm.api_key, SecretStr) else llm.api_key
    step("the model", (llm.model, llm.base_url, key), ("openai/scripted", MODEL, "key-of-the-model"))
    try:
        workspace.get_llm(profile_name="fast")
    except FileNotFoundError as error:
        step("a profile that is not there", "not found" in str(error), True)
    step("the MCP servers", workspace.get_mcp_config(), {})
    secrets = workspace.get_secrets()
    step("the names of the secrets", sorted(secrets), ["GITHUB_TOKEN", "LLM_API_KEY"])
    step("some secrets", sorted(workspace.get_secrets(names=["GITHUB_TOKEN"])), ["GITHUB_TOKEN"])
    step("a secret by its reference", secrets["GITHUB_TOKEN"].get_value(), "of-github")

    agent = Agent(llm=LLM(**llm.model_dump(exclude={"api_key"}), api_key=key), tools=[Tool(name="terminal")])
    conversation = Conversation(agent=agent, workspace=workspace, visualizer=None)
    conversation.update_secrets(secrets)
    conversation.send_message("run: echo $GITHUB_TOKEN")
    conversation.run(blocking=True, timeout=120)
    step("the run", conversation.state.execution_status.value, "finished")
    kinds = [type(event).__name__ for event in conversation.state.events]
    step("what was observed", kinds.count("ObservationEvent"), 2)
    conversation.close()
print("all steps passed")
